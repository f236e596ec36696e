"""``FeatureRecipe``: the input columns of a model, described as data.

A recipe is configured, fitted once on the training graphs, saved with the model and applied to every graph after that.
It refuses graphs whose columns or labels differ from those it was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphcaps.chemistry.featurizers import Featurizer, find_featurizer
from graphcaps.config import FeatureConfig
from graphcaps.data.batching import size_chunks
from graphcaps.data.features.compatibility import UnseenPolicy, check_graphs, non_finite_attributes
from graphcaps.data.features.label_columns import (
    LabelBlocks,
    edge_label_columns,
    find_values,
    label_indices,
    node_label_columns,
)
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edge_kinds import MOST_EDGE_KINDS, count_edge_kinds
from graphcaps.types import EdgeLabelUse

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # imported late: most commands compute no propagated columns

__all__ = ["FeatureRecipe", "count_edge_labels", "propagate_powers"]

_MAX_LABEL_VALUES = 4096  # a label column with more values holds identifiers, not categories
_NODES_PER_STEP, _ENTRIES_PER_STEP = 1 << 16, 1 << 20  # nodes and edge entries that are encoded at once
_CONSTANT = 1e-12  # deviation in units of the largest value, up to which a column differs by rounding only
_DIAGONAL = 1e-8  # keeps the row sum of an isolated node above zero, so that Ax keeps its x


@dataclass(frozen=True)
class FeatureRecipe:
    r"""Input columns of the nodes, as in the released HGCN program.

    With x the attributes, the one-hot node labels and, optionally, the label counts of incident edges, or a column of
    ones where there is none of these, the columns are

    .. math::
        [\,x,\; \deg,\; \mathrm{onehot}(\min(\deg, \mathrm{cap})),\; Ax,\; A^2x,\; \dots,\; A^px\,],
        \qquad A = D^{-1/2}(\mathrm{Adj} + 10^{-8} I)D^{-1/2}

    where Adj is the binary adjacency (edge weights enter in the model, not here), deg its row sums and D the diagonal
    of deg + 1e-8. Sums are taken in float64. Every graph is computed independently of the others.

    With ``standardise`` an attribute a enters as :math:`(a - \mu) / \sigma`, with mean and standard deviation over the
    nodes of the fitted graphs. A column that is constant there becomes 0 in all graphs: it says nothing about classes,
    and another value in a later graph would have no weight to meet. Columns of zeros and ones are kept as they are.

    A label column keeps the whole range from its smallest to its largest value if at least half of that range occurs
    in the fitted graphs (DD's 82 values from 1 to 89 keep 89 columns), else only the values that occur. Columns are in
    ascending order of the labels' codes (:mod:`graphcaps.data.label_encoding`): integers by value, then text. Molecules
    read from SMILES keep only the values that occur: a column that is zero in training would have untrained weights.

    Args:
        attributes (bool): Use the node attributes, if the graphs have any. (default: ``True``)
        labels (bool): Use the node labels, if the graphs have any. (default: ``True``)
        degree (bool): Add the degree as a number. (default: ``True``)
        degree_onehot (int, optional): Add the degree as cap + 1 one-hot columns, the last for all degrees from the
            cap on; ``None`` adds none. (default: 100)
        propagation (int): Largest power p of A. (default: 3)
        edge_labels (str, optional): How edge labels are used, if the graphs have any. ``"counts"`` adds to x the number
            of incident edges with each label, ``"messages"`` gives the edges a kind that the model reads in its
            message passing (:meth:`edge_kind`), ``"both"`` does both. (default: not at all, as published)
        standardise (bool): Standardise the attributes. (default: ``False``, as published)
        num_attributes (int, optional): Number of attribute columns, set by fitting.
        label_values, edge_label_values (tuple, optional): Values with an input column, ascending, for each label
            column of nodes and of edges, set by fitting.
        attribute_mean, attribute_std (tuple, optional): Mean and standard deviation of each attribute column, set by
            fitting with ``standardise``: 0 and 1 for a column that is kept, a deviation of 0 for a constant one.
        label_names (dict): Text of the values that are codes of text, set by fitting. It follows from the values and
            is not compared.
        fragments (str, optional): Fragments of molecules that were read from SMILES, ``"all"`` or ``"largest"``, set
            by fitting; new molecules are read in the same way. ``None`` for other graphs.
        featurizer (str, optional): Featurizer of the molecules that the recipe was fitted on, set by fitting. It
            gives the meaning of the label columns, and new SMILES are read with it.
        source_columns (dict): Names of the columns ``node_labels``, ``node_attributes`` and ``edge_labels`` of the
            fitted graphs, where they have names, set by fitting. New graphs must have attributes of the same names
            (:func:`graphcaps.data.features.compatibility.check_graphs`).

    Raises:
        ArgumentError: If an argument is invalid.

    Example:
        ``recipe = FeatureRecipe().fit(store); x = recipe.apply(store)``
    """

    attributes: bool = True
    labels: bool = True
    degree: bool = True
    degree_onehot: int | None = 100
    propagation: int = 3
    num_attributes: int | None = None
    label_values: LabelBlocks | None = None
    edge_labels: EdgeLabelUse | None = None
    edge_label_values: LabelBlocks | None = None
    standardise: bool = False
    attribute_mean: tuple[float, ...] | None = None
    attribute_std: tuple[float, ...] | None = None
    label_names: dict[int, str] = field(default_factory=dict, compare=False)
    fragments: Literal["all", "largest"] | None = None
    featurizer: str | None = None
    source_columns: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("attributes", "labels", "degree", "standardise"):
            _expect(isinstance(getattr(self, name), bool), name, "be true or false", getattr(self, name))
        uses = get_args(EdgeLabelUse)
        known = self.edge_labels is None or self.edge_labels in uses
        _expect(known, "edge_labels", f"be one of {', '.join(uses)}, or None", self.edge_labels)
        known = self.fragments in (None, "all", "largest")
        _expect(known, "fragments", "be 'all', 'largest' or None", self.fragments)
        cap = self.degree_onehot
        _expect(cap is None or _is_count(cap), "degree_onehot", "be a non-negative integer or None", cap)
        _expect(_is_count(self.propagation), "propagation", "be a non-negative integer", self.propagation)
        _expect(
            (self.num_attributes is None) == (self.label_values is None),
            "label_values",
            "be given together with 'num_attributes'",
            "one of the two",
        )
        _expect(
            (self.edge_label_values is not None)
            == (self.edge_labels is not None and self.num_attributes is not None),
            "edge_label_values",
            "be given if and only if edge labels are used and the recipe is fitted",
            self.edge_label_values,
        )
        for name in ("attribute_mean", "attribute_std"):
            self._check_moments(name, getattr(self, name))
        if self.num_attributes is None or self.label_values is None:
            return
        if self.featurizer is not None:
            _check_blocks(find_featurizer(self.featurizer, "FeatureRecipe"), self.label_values, "node")
            _check_blocks(find_featurizer(self.featurizer), self.edge_label_values or (), "edge")
        _expect(
            _is_count(self.num_attributes), "num_attributes", "be a non-negative integer", self.num_attributes
        )
        for name in ("label_values", "edge_label_values"):
            for values in getattr(self, name) or ():
                ascending = len(values) > 0 and all(type(value) is int for value in values)
                ascending = ascending and all(a < b for a, b in pairwise(values))
                _expect(ascending, name, "hold ascending integers for each column", values)
        self._check_source_columns(self.num_attributes, self.label_values)

    def _check_source_columns(self, num_attributes: int, label_values: LabelBlocks) -> None:
        """Checks that there is a different name for each label and attribute column that has names."""
        widths = {
            "node_labels": len(label_values),
            "node_attributes": num_attributes,
            "edge_labels": len(self.edge_label_values or ()),
        }
        for table, names in self.source_columns.items():
            _expect(table in widths, "source_columns", f"have the keys {', '.join(widths)}", repr(table))
            valid = len(names) == widths[table] == len(set(names))
            valid = valid and all(isinstance(name, str) for name in names)
            _expect(valid, "source_columns", f"hold {widths[table]} different names for '{table}'", names)

    def _check_moments(self, name: str, values: tuple[float, ...] | None) -> None:
        """Checks that there is a finite number per attribute, if attributes are standardised."""
        _expect(
            (values is not None) == (self.standardise and self.num_attributes is not None),
            name,
            "be given if and only if attributes are standardised and the recipe is fitted",
            values,
        )
        if values is None:
            return
        numbers = all(type(value) in (int, float) and np.isfinite(value) for value in values)
        numbers = numbers and len(values) == self.num_attributes
        numbers = numbers and (name == "attribute_mean" or all(value >= 0 for value in values))
        _expect(numbers, name, "hold a finite number for each attribute", values)

    # ------------------------------------------------------------------ columns
    @property
    def is_fitted(self) -> bool:
        """Whether the attribute columns and label values are set."""
        return self.label_values is not None

    @property
    def num_base_columns(self) -> int:
        """Number of columns of x: attributes, one-hot labels and edge label counts; 1 if there is none of these."""
        attributes, blocks = self._fitted("num_base_columns")
        return max(attributes + sum(len(values) for values in (*blocks, *self._counted_labels)), 1)

    @property
    def num_columns(self) -> int:
        """Number of input columns."""
        onehot = 0 if self.degree_onehot is None else self.degree_onehot + 1
        return self.num_base_columns * (1 + self.propagation) + int(self.degree) + onehot

    def column_names(self) -> list[str]:
        """Name of each column, such as ``label[0]=6``, ``degree``, ``degree=3`` and ``A^2 label[0]=6``.

        Columns of a featurizer have its words: ``element=N``, ``hybridisation=sp2``, ``bond type=double``. An attribute
        has its name in the fitted graphs, ``attribute[mass]``, or its index.
        """
        attributes, blocks = self._fitted("column_names")
        base = [
            f"attribute[{name}]" for name in self.source_columns.get("node_attributes", range(attributes))
        ]
        for kind, prefix, values in (
            ("node", "label", blocks),
            ("edge", "edges", self._counted_labels),
        ):
            for block, labels in enumerate(self._words(kind, values)):
                name = f"{prefix}[{block}]"
                if self.featurizer is not None:
                    name = find_featurizer(self.featurizer).columns(kind)[block].name
                    name = name if kind == "node" else f"bond {name}"
                base += [f"{name}={label}" for label in labels]
        base = base or ["one"]
        names = list(base)
        if self.degree:
            names.append("degree")
        if self.degree_onehot is not None:
            names += [f"degree={count}" for count in range(self.degree_onehot)]
            names.append(f"degree>={self.degree_onehot}")
        return names + [f"A^{power} {name}" for power in range(1, self.propagation + 1) for name in base]

    @property
    def node_labels(self) -> list[list[int | str]]:
        """The node labels with an input column, for each label column: numbers, text for codes of text, and the words
        of a featurizer."""
        _, blocks = self._fitted("node_labels")
        return self._words("node", blocks)

    def _words(self, kind: str, blocks: LabelBlocks) -> list[list[int | str]]:
        """Label values of nodes or edges as numbers or words."""
        if self.featurizer is None:
            return [[self.label_names.get(value, value) for value in values] for values in blocks]
        columns = find_featurizer(self.featurizer).columns(kind)
        return [
            [column.word(value) for value in values] for column, values in zip(columns, blocks, strict=False)
        ]

    # ------------------------------------------------------------------ edge labels
    @property
    def edge_kinds(self) -> tuple[int, ...]:
        """Number of values of each edge label column that the message passing reads; () if it reads none."""
        self._fitted("edge_kinds")
        return tuple(len(values) for values in self.edge_label_values or ()) if self._in_messages else ()

    @property
    def _in_messages(self) -> bool:
        return self.edge_labels in ("messages", "both")

    @property
    def _counted_labels(self) -> LabelBlocks:
        """The edge labels with an input column."""
        return (self.edge_label_values or ()) if self.edge_labels in ("counts", "both") else ()

    def edge_kind(self, store: GraphStore) -> Tensor | None:
        """Kind of each edge entry (:mod:`graphcaps.ops.edge_kinds`), int32, ``[M]``, on the store's device.

        A label that is not among the fitted ones counts as any other value. ``None`` if the message passing does not
        read edge labels, or the fitted graphs had none.
        """
        sizes, entries = self.edge_kinds, store.neighbours.numel()
        if not sizes:
            return None
        factors = np.cumprod([1, *(count + 1 for count in sizes[:0:-1])])[::-1]
        kinds = np.zeros(entries, dtype=np.int32)
        for start in range(0, entries, _ENTRIES_PER_STEP):  # so that no wider table of all entries is held
            end = min(start + _ENTRIES_PER_STEP, entries)
            kinds[start:end] = (self._edge_indices(store, start, end) + 1) @ factors
        return torch.from_numpy(kinds).to(store.device)

    def edge_attr(self, store: GraphStore) -> Tensor | None:
        """Index of each edge entry's label among the fitted ones, −1 for any other, ``[M, C]``, on the store's device.

        This is the ``edge_attr`` of a model that reads edge labels; :func:`graphcaps.data.to_pyg` puts it into
        torch-geometric graphs. ``None`` where :meth:`edge_kind` is ``None``.
        """
        if not self.edge_kinds:
            return None
        indices = self._edge_indices(store, 0, store.neighbours.numel()).astype(np.int64)
        return torch.from_numpy(indices).to(store.device)

    def _edge_indices(self, store: GraphStore, start: int, end: int) -> np.ndarray:
        """:meth:`edge_attr` of the entries from ``start`` to ``end`` − 1, on the host."""
        labels = None if store.edge_labels is None else store.edge_labels[start:end]
        found = label_indices(self.edge_label_values or (), labels)
        if found.shape[1] == len(self.edge_kinds):
            return found
        indices = np.full(
            (end - start, len(self.edge_kinds)), -1
        )  # graphs without edges have no label columns
        indices[:, : found.shape[1]] = found
        return indices

    # ------------------------------------------------------------------ fitting and applying
    @classmethod
    def from_config(cls, features: FeatureConfig) -> FeatureRecipe:
        """The unfitted recipe of a configuration, whose limit of nodes is applied before encoding."""
        taken = {name: value for name, value in asdict(features).items() if name != "max_nodes"}
        return cls(**taken)

    def fit(self, store: GraphStore) -> FeatureRecipe:
        """Returns a fitted copy, with the attribute columns and label values of ``store``.

        Raises:
            ArgumentError: If the store is empty, an attribute is not finite, or a label column has more than 4,096
                values.
        """
        if not len(store):
            raise ArgumentError("FeatureRecipe.fit", "store", "hold at least one graph", "none")
        attributes = store.node_attributes if self.attributes else None
        for graph, reason in () if attributes is None else non_finite_attributes(store, torch.float64):
            got = f"graph {graph} of {store.name}: {reason}"
            raise ArgumentError("FeatureRecipe.fit", "store", "hold finite node attributes", got)
        blocks = _label_values(store, "node") if self.labels else ()
        edge_blocks = _label_values(store, "edge") if self.edge_labels else None
        kinds = count_edge_kinds(tuple(map(len, edge_blocks or ()))) if self._in_messages else 0
        if kinds > MOST_EDGE_KINDS:
            raise ArgumentError(
                "FeatureRecipe.fit",
                "store",
                f"have at most {MOST_EDGE_KINDS:,} combinations of edge labels for edge_labels='{self.edge_labels}'",
                f"{kinds:,} in {store.name}",
                "Use edge_labels='counts'.",
            )
        mean, std = _attribute_moments(attributes) if self.standardise else (None, None)
        values = {value for block in (*blocks, *(edge_blocks or ())) for value in block}
        read = {
            "node_labels": bool(blocks),
            "node_attributes": attributes is not None,
            "edge_labels": bool(edge_blocks),
        }
        return replace(
            self,
            num_attributes=0 if attributes is None else attributes.size(1),
            label_values=blocks,
            edge_label_values=edge_blocks,
            attribute_mean=mean,
            attribute_std=std,
            label_names={code: text for code, text in store.label_names.items() if code in values},
            fragments=store.fragments,
            featurizer=store.featurizer,
            source_columns={
                table: names
                for table, is_read in read.items()
                if is_read and (names := store.column_names(table)) is not None
            },
        )

    def apply(
        self,
        store: GraphStore,
        *,
        unseen: UnseenPolicy = "refuse",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Checks the graphs (:func:`check_graphs`) and computes their input columns, as :meth:`encode` does.

        Args:
            store (GraphStore): Graphs with the attribute and label columns of the fitted graphs.
            unseen (str): ``"refuse"`` raises on a label without a column; ``"ignore"`` encodes it as zeros and warns
                with counts. (default: ``"refuse"``)
            dtype (torch.dtype): ``torch.float32`` or ``torch.float64``. (default: ``torch.float32``)

        Raises:
            ArgumentError: If the recipe is not fitted or does not fit the store.
        """
        owner = "FeatureRecipe.apply"
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(owner, "dtype", "be torch.float32 or torch.float64", dtype)
        self._fitted("apply")
        checked = check_graphs(store, self, unseen=unseen, dtype=dtype, owner=owner, argument="store")
        return self.encode(checked.require(), dtype)

    def encode(self, store: GraphStore, dtype: torch.dtype = torch.float32) -> Tensor:
        """Computes the input columns of all nodes, ``[N, num_columns]``, on the store's device.

        Args:
            store (GraphStore): Graphs that were checked by :func:`check_graphs`, or that the recipe was fitted on;
                labels without a column are encoded as zeros.
            dtype (torch.dtype): ``torch.float32`` or ``torch.float64``. (default: ``torch.float32``)
        """
        out = torch.zeros(store.num_nodes, self.num_columns, dtype=dtype)
        if store.num_nodes <= _NODES_PER_STEP:
            self._encode_into(out.numpy(), store)
        else:  # in steps, so that no copy of all rows in float64 is held
            for start, end in size_chunks(store, _NODES_PER_STEP, _ENTRIES_PER_STEP):
                first, stop = store.host_node_ptr[[start, end]].tolist()
                self._encode_into(out[first:stop].numpy(), store[start:end])
        return out.to(store.device)

    @np.errstate(over="ignore")
    def _encode_into(self, out: np.ndarray, store: GraphStore) -> None:
        """Writes the input columns of all nodes into ``out``, zeros of shape ``[N, num_columns]``.

        What is too large for the type of ``out`` becomes infinite.
        """
        x = self._base_columns(store)  # [N, k], float64
        degree = np.diff(store.edge_ptr.cpu().numpy())
        k = x.shape[1]
        out[:, :k] = x
        column = k
        if self.degree:
            out[:, column] = degree
            column += 1
        if self.degree_onehot is not None:
            out[np.arange(len(out)), column + np.minimum(degree, self.degree_onehot)] = 1
            column += self.degree_onehot + 1
        if self.propagation:
            for power in propagate_powers(store, x, self.propagation):
                out[:, column : column + k] = power
                column += k

    def _base_columns(self, store: GraphStore) -> np.ndarray:
        """x: attributes, one-hot labels and edge label counts, or ones, in float64, ``[N, num_base_columns]``."""
        num_attributes, blocks = self._fitted("encode")
        edge_blocks = self._counted_labels
        if not num_attributes and not blocks and not edge_blocks:
            return np.ones((store.num_nodes, 1))
        x = np.zeros((store.num_nodes, self.num_base_columns))
        if not store.num_nodes:
            return x
        if self.attributes and store.node_attributes is not None:
            attributes = store.node_attributes.cpu().double().numpy()
            x[:, :num_attributes] = self._standardised(attributes) if self.standardise else attributes
        column = num_attributes
        if self.labels and blocks:
            index = label_indices(blocks, store.node_labels)  # [N, label columns]
            sizes = [len(values) for values in blocks]
            rows, places = np.nonzero(index >= 0)
            x[rows, (index + (column + np.cumsum(sizes) - sizes))[rows, places]] = 1
            column += sum(sizes)
        if edge_blocks:
            x[:, column:] = count_edge_labels(store, edge_blocks)
        return x

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        """(a − μ) / σ, and 0 where σ = 0, ``[N, num_attributes]``."""
        mean, std = np.asarray(self.attribute_mean), np.asarray(self.attribute_std)
        result: np.ndarray = (values - mean) * np.divide(1, std, out=np.zeros_like(std), where=std > 0)
        return result

    def _fitted(self, method: str) -> tuple[int, LabelBlocks]:
        """``num_attributes`` and ``label_values`` of a fitted recipe."""
        if self.num_attributes is None or self.label_values is None:
            owner = f"FeatureRecipe.{method}"
            raise ArgumentError(owner, "recipe", "be fitted", "an unfitted one", "Call fit(store) first.")
        return self.num_attributes, self.label_values

    # ------------------------------------------------------------------ saving
    def to_dict(self) -> dict[str, Any]:
        """The recipe in JSON types, for :meth:`from_dict`."""
        values = asdict(self)
        for name in ("label_values", "edge_label_values"):
            if values[name] is not None:
                values[name] = [list(block) for block in values[name]]
        for name in ("attribute_mean", "attribute_std"):
            if values[name] is not None:
                values[name] = list(values[name])
        values["label_names"] = {
            str(code): text for code, text in self.label_names.items()
        }  # JSON has text keys
        values["source_columns"] = {table: list(names) for table, names in self.source_columns.items()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureRecipe:
        """Reads a recipe that :meth:`to_dict` wrote; a missing entry has its default.

        Raises:
            ArgumentError: If an entry is unknown or invalid.
        """
        names = [entry.name for entry in fields(cls)]
        for name in values:
            if name not in names:
                raise ArgumentError(
                    "FeatureRecipe.from_dict", name, f"be one of {', '.join(names)}", "an unknown entry"
                )
        arguments = dict(values)
        for name in ("label_values", "edge_label_values"):
            blocks = arguments.get(name)
            if blocks is not None:
                nested = isinstance(blocks, list | tuple)
                nested = nested and all(isinstance(block, list | tuple) for block in blocks)
                _expect(nested, name, "be a list of lists", blocks)
                arguments[name] = tuple(tuple(block) for block in blocks)
        for name in ("attribute_mean", "attribute_std"):
            moments = arguments.get(name)
            if moments is not None:
                _expect(isinstance(moments, list | tuple), name, "be a list", moments)
                arguments[name] = tuple(moments)
        label_names = arguments.get("label_names", {})
        named = isinstance(label_names, Mapping)
        named = named and all(str(code).isdecimal() for code in label_names)
        named = named and all(isinstance(text, str) for text in label_names.values())
        _expect(named, "label_names", "be an object with codes as keys and text as values", label_names)
        arguments["label_names"] = {int(code): text for code, text in label_names.items()}
        columns = arguments.get("source_columns", {})
        listed = isinstance(columns, Mapping) and all(
            isinstance(names, list | tuple) for names in columns.values()
        )
        _expect(listed, "source_columns", "be an object with lists of names as values", columns)
        arguments["source_columns"] = {table: tuple(names) for table, names in columns.items()}
        return cls(**arguments)


def _attribute_moments(attributes: Tensor | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the columns ``[N, A]``: 0 and 1 for a column of zeros and ones, which is not
    standardised, and a deviation of 0 for a column that is constant up to rounding."""
    if attributes is None or not attributes.numel():
        width = 0 if attributes is None else attributes.size(1)
        return (0.0,) * width, (1.0,) * width
    values = attributes.cpu().double().numpy()
    low, high = values.min(0), values.max(0)
    magnitude = np.maximum(np.abs(low), np.abs(high))
    unit = np.where(magnitude > 0, magnitude, 1)  # squares of very large values would overflow
    mean, std = (values / unit).mean(0) * unit, (values / unit).std(0)
    std = np.where((low == high) | (std <= _CONSTANT), 0, std * unit)
    mean = np.where(low == high, low, mean)
    binary = (low == 0) & (high == 1) & np.isin(values, (0, 1)).all(0)
    mean, std = np.where(binary, 0, mean), np.where(binary, 1, std)
    return tuple(mean.tolist()), tuple(std.tolist())


def _label_values(store: GraphStore, kind: str) -> LabelBlocks:
    """The values with an input column, for each label column of nodes or edges."""
    blocks = []
    for column, labels in enumerate(
        node_label_columns(store) if kind == "node" else edge_label_columns(store)
    ):
        values = [int(value) for value in np.unique(labels)]
        if len(values) > _MAX_LABEL_VALUES:
            raise ArgumentError(
                "FeatureRecipe.fit",
                "store",
                f"hold at most {_MAX_LABEL_VALUES} distinct values in a {kind} label column",
                f"{len(values)} in label column {column} of {store.name}",
                f"Use {'edge_' if kind == 'edge' else ''}labels=False, or pass such labels as attributes.",
            )
        if not values:  # edge labels of graphs without edges
            continue
        span = values[-1] - values[0] + 1  # len(range(…)) would fail above 2^63 − 1
        keep_range = span <= 2 * len(values) and store.featurizer is None
        blocks.append(tuple(range(values[0], values[-1] + 1) if keep_range else values))
    return tuple(blocks)


def _check_blocks(featurizer: Featurizer, blocks: LabelBlocks, kind: str) -> None:
    """Rejects label values that a featurizer does not have."""
    columns = featurizer.columns(kind)
    valid = not blocks or len(blocks) == len(columns)
    valid = valid and all(
        0 <= min(values) <= max(values) < len(column.values)
        for values, column in zip(blocks, columns, strict=False)
        if values
    )
    name = "label_values" if kind == "node" else "edge_label_values"
    _expect(valid, name, f"hold codes of the featurizer '{featurizer.name}'", blocks)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _expect(condition: bool, name: str, expected: str, got: object) -> None:
    if not condition:
        raise ArgumentError("FeatureRecipe", name, expected, got)


# ---------------------------------------------------------------------- columns of a store
def count_edge_labels(store: GraphStore, blocks: LabelBlocks) -> np.ndarray:
    """Number of incident edges of each node with each label of ``blocks``, in float64, ``[N, columns]``."""
    N = store.num_nodes
    counts = np.zeros((N, sum(len(values) for values in blocks)))
    source = np.repeat(np.arange(N), store.degree.cpu().numpy())
    column = 0
    # Graphs without edges have no label columns: zip stops early.
    for values, labels in zip(blocks, edge_label_columns(store), strict=False):
        index, has_column = find_values(values, labels)
        flat = source[has_column] * len(values) + index[has_column]
        block = np.bincount(flat, minlength=N * len(values)).reshape(N, len(values))
        counts[:, column : column + len(values)] = block
        column += len(values)
    return counts


def propagate_powers(store: GraphStore, x: np.ndarray, count: int) -> Iterator[np.ndarray]:
    r"""Yields :math:`Ax, A^2x, \dots` with :math:`A = D^{-1/2}(\mathrm{Adj} + 10^{-8}I)D^{-1/2}`, in float64.

    Args:
        store (GraphStore): N nodes with their edges; weights are not used.
        x (numpy.ndarray): float64, ``[N, k]``.
        count (int): Number of powers.
    """
    adjacency = _adjacency(store)
    scale = (np.diff(store.edge_ptr.cpu().numpy()) + _DIAGONAL)[:, None] ** -0.5
    for _ in range(count):
        x = x * scale
        x = (adjacency @ x + _DIAGONAL * x) * scale
        yield x


def _adjacency(store: GraphStore) -> csr_array:
    """Block-diagonal adjacency of all graphs, entries 1 in float64, ``[N, N]``."""
    from scipy.sparse import csr_array

    N, nodes, entries = store.num_nodes, store.host_node_ptr.numpy(), store.host_entry_ptr.numpy()
    wide = np.int32 if max(N, store.neighbours.numel()) < 2**31 else np.int64
    # The first node of its graph, for each entry.
    column = store.neighbours.cpu().numpy() + np.repeat(nodes[:-1].astype(wide), np.diff(entries))
    ptr = store.edge_ptr.cpu().numpy().astype(wide)
    return csr_array((np.ones(len(column)), column, ptr), shape=(N, N))
