"""``FeatureRecipe``: the input columns of a model, described as data.

A recipe is configured, fitted once on the training graphs, saved with the model and applied to every graph after that.
It refuses graphs whose columns or labels differ from those it was fitted on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from graphcaps.data.datasets.element_labels import describe_labels
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = [
    "FeatureRecipe",
    "LabelBlocks",
    "UnseenPolicy",
    "check_column_counts",
    "check_finite_attributes",
    "count_edge_labels",
    "edge_label_columns",
    "find_unseen_edge_labels",
    "find_unseen_node_labels",
    "node_label_columns",
    "propagate_powers",
    "report_unseen_edge_labels",
    "report_unseen_node_labels",
]

LabelBlocks = tuple[tuple[int, ...], ...]
"""Values with an input column, ascending, for each label column."""

UnseenPolicy = Literal["refuse", "ignore"]
"""Handling of labels without an input column: raise an error, or encode them as zeros with a warning."""

_MAX_LABEL_VALUES = 4096  # a label column with more values holds identifiers, not categories
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

    A label column keeps the whole range from its smallest to its largest value if at least half of that range occurs
    in the fitted graphs (DD's 82 values from 1 to 89 keep 89 columns), else only the values that occur.

    Args:
        attributes (bool): Use the node attributes, if the graphs have any. (default: ``True``)
        labels (bool): Use the node labels, if the graphs have any. (default: ``True``)
        degree (bool): Add the degree as a number. (default: ``True``)
        degree_onehot (int, optional): Add the degree as cap + 1 one-hot columns, the last for all degrees from the
            cap on; ``None`` adds none. (default: 100)
        propagation (int): Largest power p of A. (default: 3)
        edge_labels (bool): Add to x the number of incident edges with each edge label, if the graphs have edge labels;
            the published model drops them. (default: ``False``)
        num_attributes (int, optional): Number of attribute columns, set by fitting.
        label_values, edge_label_values (tuple, optional): Values with an input column, ascending, for each label
            column of nodes and of edges, set by fitting.

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
    edge_labels: bool = False
    edge_label_values: LabelBlocks | None = None

    def __post_init__(self) -> None:
        for name in ("attributes", "labels", "degree", "edge_labels"):
            _expect(isinstance(getattr(self, name), bool), name, "be true or false", getattr(self, name))
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
            (self.edge_label_values is not None) == (self.edge_labels and self.num_attributes is not None),
            "edge_label_values",
            "be given if and only if edge labels are used and the recipe is fitted",
            self.edge_label_values,
        )
        if self.num_attributes is None or self.label_values is None:
            return
        _expect(
            _is_count(self.num_attributes), "num_attributes", "be a non-negative integer", self.num_attributes
        )
        for name in ("label_values", "edge_label_values"):
            for values in getattr(self, name) or ():
                ascending = len(values) > 0 and all(type(value) is int for value in values)
                ascending = ascending and all(a < b for a, b in pairwise(values))
                _expect(ascending, name, "hold ascending integers for each column", values)

    # ------------------------------------------------------------------ columns
    @property
    def is_fitted(self) -> bool:
        """Whether the attribute columns and label values are set."""
        return self.label_values is not None

    @property
    def num_base_columns(self) -> int:
        """Number of columns of x: attributes, one-hot labels and edge label counts; 1 if there is none of these."""
        attributes, blocks = self._fitted("num_base_columns")
        return max(attributes + sum(len(values) for values in (*blocks, *(self.edge_label_values or ()))), 1)

    @property
    def num_columns(self) -> int:
        """Number of input columns."""
        onehot = 0 if self.degree_onehot is None else self.degree_onehot + 1
        return self.num_base_columns * (1 + self.propagation) + int(self.degree) + onehot

    def column_names(self) -> list[str]:
        """Name of each column, such as ``label[0]=6``, ``degree``, ``degree=3`` and ``A^2 label[0]=6``."""
        attributes, blocks = self._fitted("column_names")
        base = [f"attribute[{column}]" for column in range(attributes)]
        base += [f"label[{block}]={value}" for block, values in enumerate(blocks) for value in values]
        for block, values in enumerate(self.edge_label_values or ()):
            base += [f"edges[{block}]={value}" for value in values]
        base = base or ["one"]
        names = list(base)
        if self.degree:
            names.append("degree")
        if self.degree_onehot is not None:
            names += [f"degree={count}" for count in range(self.degree_onehot)]
            names.append(f"degree>={self.degree_onehot}")
        return names + [f"A^{power} {name}" for power in range(1, self.propagation + 1) for name in base]

    # ------------------------------------------------------------------ fitting and applying
    def fit(self, store: GraphStore) -> FeatureRecipe:
        """Returns a fitted copy, with the attribute columns and label values of ``store``.

        Raises:
            ArgumentError: If the store is empty, an attribute is not finite, or a label column has more than 4,096
                values.
        """
        if not len(store):
            raise ArgumentError("FeatureRecipe.fit", "store", "hold at least one graph", "none")
        attributes = (
            check_finite_attributes(store, "FeatureRecipe.fit", torch.float64) if self.attributes else None
        )
        blocks = _label_values(node_label_columns(store) if self.labels else [], "node", store.name)
        edge_blocks = (
            _label_values(edge_label_columns(store), "edge", store.name) if self.edge_labels else None
        )
        num_attributes = 0 if attributes is None else attributes.shape[1]
        return replace(
            self, num_attributes=num_attributes, label_values=blocks, edge_label_values=edge_blocks
        )

    def apply(
        self,
        store: GraphStore,
        *,
        unseen: UnseenPolicy = "refuse",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Computes the input columns of all nodes of ``store``, ``[N, num_columns]``, on the store's device.

        Args:
            store (GraphStore): Graphs with the attribute and label columns of the fitted graphs.
            unseen (str): ``"refuse"`` raises on a label without a column; ``"ignore"`` encodes it as zeros and warns
                with counts. (default: ``"refuse"``)
            dtype (torch.dtype): ``torch.float32`` or ``torch.float64``. (default: ``torch.float32``)

        Raises:
            ArgumentError: If the recipe is not fitted or does not fit the store.
        """
        owner = "FeatureRecipe.apply"
        if unseen not in ("refuse", "ignore"):
            raise ArgumentError(owner, "unseen", "be 'refuse' or 'ignore'", repr(unseen))
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(owner, "dtype", "be torch.float32 or torch.float64", dtype)
        x = self._base_columns(store, unseen, dtype)  # [N, k], float64
        degree = store.degree.cpu()
        k, rows = x.shape[1], torch.arange(store.num_nodes)
        out = torch.zeros(store.num_nodes, self.num_columns, dtype=dtype)
        out[:, :k] = torch.from_numpy(x)
        column = k
        if self.degree:
            out[:, column] = degree.to(dtype)
            column += 1
        if self.degree_onehot is not None:
            out[rows, column + degree.clamp_max(self.degree_onehot)] = 1
            column += self.degree_onehot + 1
        if self.propagation:
            for power in propagate_powers(store, x, self.propagation):
                out[:, column : column + k] = torch.from_numpy(power)
                column += k
        return out.to(store.device)

    def _base_columns(self, store: GraphStore, unseen: UnseenPolicy, dtype: torch.dtype) -> np.ndarray:
        """x: attributes, one-hot labels and edge label counts, or ones, in float64, ``[N, num_base_columns]``."""
        owner = "FeatureRecipe.apply"
        num_attributes, blocks = self._fitted("apply")
        attributes = check_finite_attributes(store, owner, dtype) if self.attributes else None
        check_column_counts(self, store, owner, "store", "the recipe was fitted on")
        edge_blocks = self.edge_label_values or ()
        if not num_attributes and not blocks and not edge_blocks:
            return np.ones((store.num_nodes, 1))
        x = np.zeros((store.num_nodes, self.num_base_columns))
        if not store.num_nodes:
            return x
        if attributes is not None:
            x[:, :num_attributes] = attributes
        column = num_attributes
        columns = node_label_columns(store) if self.labels else []
        for block, (values, labels) in enumerate(zip(blocks, columns, strict=True)):
            index, has_column = _find(values, labels)
            if not has_column.all():
                report_unseen_node_labels(store, block, labels, ~has_column, unseen)
            rows = np.flatnonzero(has_column)
            x[rows, column + index[rows]] = 1
            column += len(values)
        if edge_blocks:
            report_unseen_edge_labels(store, edge_blocks, unseen)
            x[:, column:] = count_edge_labels(store, edge_blocks)
        return x

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
        return cls(**arguments)


def _label_values(columns: list[np.ndarray], kind: str, name: str) -> LabelBlocks:
    """The values with an input column, for each label column of nodes or edges."""
    blocks = []
    for column, labels in enumerate(columns):
        values = [int(value) for value in np.unique(labels)]
        if len(values) > _MAX_LABEL_VALUES:
            raise ArgumentError(
                "FeatureRecipe.fit",
                "store",
                f"hold at most {_MAX_LABEL_VALUES} distinct values in a {kind} label column",
                f"{len(values)} in label column {column} of {name}",
                f"Use {'edge_' if kind == 'edge' else ''}labels=False, or pass such labels as attributes.",
            )
        if not values:  # edge labels of graphs without edges
            continue
        span = values[-1] - values[0] + 1  # len(range(…)) would fail above 2^63 − 1
        keep_range = span <= 2 * len(values)
        blocks.append(tuple(range(values[0], values[-1] + 1) if keep_range else values))
    return tuple(blocks)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _expect(condition: bool, name: str, expected: str, got: object) -> None:
    if not condition:
        raise ArgumentError("FeatureRecipe", name, expected, got)


# ---------------------------------------------------------------------- columns of a store
def check_column_counts(
    recipe: FeatureRecipe, store: GraphStore, owner: str, argument: str, fitted_on: str
) -> None:
    """Checks that a store has as many label and attribute columns as the recipe was fitted on.

    Args:
        recipe (FeatureRecipe): A fitted recipe.
        store (GraphStore): Graphs.
        owner, argument (str): Owner and argument that an error message names.
        fitted_on (str): End of the phrase "as the graphs that …" of an error message.

    Raises:
        ArgumentError: If the numbers of columns differ.
    """
    # Graphs without nodes have no labels and attributes, and graphs without edges no edge labels.
    counts = {
        "node label": (
            recipe.labels and bool(store.num_nodes),
            len(recipe.label_values or ()),
            store.node_labels,
        ),
        "node attribute": (
            recipe.attributes and bool(store.num_nodes),
            recipe.num_attributes or 0,
            store.node_attributes,
        ),
        "edge label": (
            recipe.edge_labels and bool(store.neighbours.numel()),
            len(recipe.edge_label_values or ()),
            store.edge_labels,
        ),
    }
    for kind, (used, expected, table) in counts.items():
        got = 0 if table is None else table.size(1)
        if used and expected != got:
            raise ArgumentError(
                owner,
                argument,
                f"have {_columns_in_words(expected, kind)}, as the graphs that {fitted_on}",
                f"{_columns_in_words(got, kind)} in {store.name}",
            )


def check_finite_attributes(store: GraphStore, owner: str, dtype: torch.dtype) -> np.ndarray | None:
    """The node attributes in float64, ``[N, A]``; ``None`` if the store has none.

    Raises:
        ArgumentError: If an attribute is not finite in ``dtype``.
    """
    if store.node_attributes is None:
        return None
    values = store.node_attributes.cpu()
    wrong = ~torch.isfinite(values.to(dtype))
    if wrong.any():
        row, column = (int(index) for index in wrong.nonzero()[0])
        where = f"attribute {column} of {_node_in_words(store, row)} of {store.name}"
        raise ArgumentError(
            owner, "store", "hold finite node attributes", f"{float(values[row, column])} in {where}"
        )
    return values.double().numpy()


def node_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The node label columns, ``[N]`` each."""
    return [] if store.node_labels is None else list(store.node_labels.cpu().long().T.numpy())


def edge_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The edge label columns, with an entry per direction of an edge, ``[M]`` each."""
    return [] if store.edge_labels is None else list(store.edge_labels.cpu().long().T.numpy())


def count_edge_labels(store: GraphStore, blocks: LabelBlocks) -> np.ndarray:
    """Number of incident edges of each node with each label of ``blocks``, in float64, ``[N, columns]``."""
    N = store.num_nodes
    counts = np.zeros((N, sum(len(values) for values in blocks)))
    source = np.repeat(np.arange(N), store.degree.cpu().numpy())
    column = 0
    # Graphs without edges have no label columns: zip stops early.
    for values, labels in zip(blocks, edge_label_columns(store), strict=False):
        index, has_column = _find(values, labels)
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
    scale = (store.degree.cpu().numpy() + _DIAGONAL)[:, None] ** -0.5
    for _ in range(count):
        x = x * scale
        x = (adjacency @ x + _DIAGONAL * x) * scale
        yield x


def _adjacency(store: GraphStore) -> csr_array:
    """Block-diagonal adjacency of all graphs, entries 1 in float64, ``[N, N]``."""
    N, degree = store.num_nodes, store.degree.cpu()
    first = store.node_ptr[:-1].repeat_interleave(store.sizes).cpu()  # first node of each node's graph
    wide = torch.int32 if max(N, store.neighbours.numel()) < 2**31 else torch.int64
    column = store.neighbours.cpu().to(wide) + first.to(wide).repeat_interleave(degree)
    ones = np.ones(column.numel())
    return csr_array((ones, column.numpy(), store.edge_ptr.cpu().to(wide).numpy()), shape=(N, N))


# ---------------------------------------------------------------------- unseen labels
def find_unseen_node_labels(
    store: GraphStore, recipe: FeatureRecipe
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Node labels without an input column.

    Returns:
        list: For each label column that has such labels, its index, their rows, and all labels of the column.
    """
    columns = node_label_columns(store) if recipe.labels else []
    if not store.num_nodes:  # graphs without nodes have no label columns
        return []
    return _find_unseen(recipe.label_values or (), columns, strict=True)


def find_unseen_edge_labels(
    store: GraphStore, blocks: LabelBlocks
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Edge labels without an input column, as in :func:`find_unseen_node_labels` with edge entries as rows."""
    return _find_unseen(blocks, edge_label_columns(store), strict=False)  # no columns if no graph has edges


def _find_unseen(
    blocks: LabelBlocks, columns: list[np.ndarray], *, strict: bool
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    unseen = []
    for column, (values, labels) in enumerate(zip(blocks, columns, strict=strict)):
        rows = np.flatnonzero(~_find(values, labels)[1])
        if len(rows):
            unseen.append((column, rows, labels))
    return unseen


def _find(values: tuple[int, ...], labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each label among the ascending values, and whether it is one of them."""
    codes = np.asarray(values, dtype=np.int64)
    index = np.searchsorted(codes, labels).clip(max=len(codes) - 1)
    return index, codes[index] == labels


def report_unseen_node_labels(
    store: GraphStore, column: int, labels: np.ndarray, unseen_mask: np.ndarray, policy: UnseenPolicy
) -> None:
    """Raises or warns about node labels without an input column: which, on how many nodes, and the first node."""
    values = np.unique(labels[unseen_mask])
    molecules = "element" in store.truth  # their labels have names
    words = describe_labels(store, column, values) if molecules else _first_values(values)
    unit, count = "atom" if molecules else "node", int(unseen_mask.sum())
    first = _node_in_words(store, int(np.flatnonzero(unseen_mask)[0]))
    got = f"{words} on {count} {unit}{'' if count == 1 else 's'}, first on {first} of {store.name}"
    if policy == "ignore":
        message = f"FeatureRecipe.apply: labels that have no input column are encoded as zeros: {got}."
        warnings.warn(message, stacklevel=4)
        return
    raise ArgumentError(
        "FeatureRecipe.apply",
        "store",
        "hold only atoms as seen in training"
        if molecules
        else f"hold only node labels that have an input column, in label column {column}",
        got,
        "Train on molecules that have them, or pass unseen='ignore'."
        if molecules
        else "Fit the recipe on graphs with these labels, or pass unseen='ignore'.",
    )


def report_unseen_edge_labels(store: GraphStore, blocks: LabelBlocks, policy: UnseenPolicy) -> None:
    """Raises or warns about edge labels without an input column: which, on how many edges, and the first graph."""
    for column, rows, labels in find_unseen_edge_labels(store, blocks):
        words = _first_values(np.unique(labels[rows]))
        count = len(rows) // 2  # an edge has two entries
        graph = int(np.searchsorted(store.host_entry_ptr.numpy(), rows[0], side="right")) - 1
        got = (
            f"{words} on {count} {'edge' if count == 1 else 'edges'}, first in graph {graph} of {store.name}"
        )
        if policy == "ignore":
            message = f"FeatureRecipe.apply: edge labels that have no input column are not counted: {got}."
            warnings.warn(message, stacklevel=4)
            continue
        raise ArgumentError(
            "FeatureRecipe.apply",
            "store",
            f"hold only edge labels that have an input column, in label column {column}",
            got,
            "Fit the recipe on graphs with these labels, or pass unseen='ignore'.",
        )


def _first_values(values: np.ndarray) -> str:
    return ", ".join(str(value) for value in values[:3]) + (", …" if len(values) > 3 else "")


def _node_in_words(store: GraphStore, row: int) -> str:
    first = store.node_ptr.cpu()
    graph = int(torch.searchsorted(first, row, right=True)) - 1
    return f"node {row - int(first[graph])} of graph {graph}"


def _columns_in_words(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind} column{'' if count == 1 else 's'}"
