"""What the input columns of a model are made of, written down as data.

A recipe is chosen (:class:`FeatureRecipe`), fitted once on the graphs to learn from, saved beside the model
and applied to every graph after that. It refuses graphs that it does not fit.
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
    "check_finite_attributes",
    "count_edge_labels",
    "edge_label_columns",
    "find_unseen_edge_labels",
    "node_label_columns",
    "propagate_powers",
    "report_unseen_edge_labels",
    "report_unseen_node_labels",
]


_DIAGONAL = 1e-8  # keeps the row sum of an isolated node above zero, so that the node keeps its own x


def propagate_powers(store: GraphStore, x: np.ndarray, count: int) -> Iterator[np.ndarray]:
    r"""Yields :math:`Ax, A^2x, \dots` with :math:`A = D^{-1/2}(\mathrm{Adj} + 10^{-8}I)D^{-1/2}`, in float64.

    Args:
        store (GraphStore): N nodes with their edges; weights are not used.
        x (numpy.ndarray): float64, ``[N, k]``.
        count (int): How many propagate_powers.
    """
    adjacency = _adjacency(store)
    scale = (store.degree.cpu().numpy() + _DIAGONAL)[:, None] ** -0.5
    for _ in range(count):
        x = x * scale
        x = (adjacency @ x + _DIAGONAL * x) * scale
        yield x


def _adjacency(store: GraphStore) -> csr_array:
    """Adjacency of all graphs side by side, entries 1 in float64, ``[N, N]``."""
    N, degree = store.num_nodes, store.degree.cpu()
    first = store.node_ptr[:-1].repeat_interleave(store.sizes).cpu()  # first node of each node's graph
    wide = torch.int32 if max(N, store.neighbours.numel()) < 2**31 else torch.int64
    column = store.neighbours.cpu().to(wide) + first.to(wide).repeat_interleave(degree)
    ones = np.ones(column.numel())
    return csr_array((ones, column.numpy(), store.edge_ptr.cpu().to(wide).numpy()), shape=(N, N))


def check_finite_attributes(store: GraphStore, owner: str, dtype: torch.dtype) -> np.ndarray | None:
    """The node attributes in float64, ``[N, A]``, refused where one is not a finite number in ``dtype``."""
    if store.node_attributes is None:
        return None
    values = store.node_attributes.cpu()
    wrong = ~torch.isfinite(values.to(dtype))
    if wrong.any():
        row, column = (int(part) for part in wrong.nonzero()[0])
        place = f"attribute {column} of {_node(store, row)} of {store.name}"
        raise ArgumentError(
            owner, "store", "hold finite node attributes", f"{float(values[row, column])} in {place}"
        )
    return values.double().numpy()


def node_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The columns of the node labels, ``[N]`` each."""
    if store.node_labels is None:
        return []
    return list(store.node_labels.cpu().long().T.numpy())


def report_unseen_node_labels(
    store: GraphStore, column: int, values: np.ndarray, wrong: np.ndarray, unseen: Literal["refuse", "ignore"]
) -> None:
    """Raises, or warns, about labels that have no input column: which, on how many nodes, and where first."""
    strangers = np.unique(values[wrong])
    molecules = "element" in store.truth  # their labels have names
    named = ", ".join(str(value) for value in strangers[:3]) + (", …" if len(strangers) > 3 else "")
    named = describe_labels(store, column, strangers) if molecules else named
    unit, count = "atom" if molecules else "node", int(wrong.sum())
    first = _node(store, int(np.flatnonzero(wrong)[0]))
    found = f"{named} on {count} {unit}{'' if count == 1 else 's'}, first on {first} of {store.name}"
    if unseen == "ignore":
        warnings.warn(
            f"FeatureRecipe.apply: labels that have no input column are encoded as zeros: {found}.",
            stacklevel=4,
        )
        return
    raise ArgumentError(
        "FeatureRecipe.apply",
        "store",
        "hold only atoms as seen in training"
        if molecules
        else f"hold only node labels that have an input column, in label column {column}",
        found,
        "Train on molecules that have them, or pass unseen='ignore'."
        if molecules
        else "Fit the recipe on graphs with these labels, or pass unseen='ignore'.",
    )


def _node(store: GraphStore, row: int) -> str:
    first = store.node_ptr.cpu()
    graph = int(torch.searchsorted(first, row, right=True)) - 1
    return f"node {row - int(first[graph])} of graph {graph}"


_Blocks = tuple[tuple[int, ...], ...]


def edge_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The columns of the edge labels, one entry per direction of an edge, ``[M]`` each."""
    if store.edge_labels is None:
        return []
    return list(store.edge_labels.cpu().long().T.numpy())


def count_edge_labels(store: GraphStore, blocks: _Blocks) -> np.ndarray:
    """Incident edges of each node with each known label, in float64, ``[N, columns]``; others are not counted."""
    N = store.num_nodes
    counts = np.zeros((N, sum(len(values) for values in blocks)))
    source = np.repeat(np.arange(N), store.degree.cpu().numpy())
    place = 0
    for known, values in zip(
        blocks, edge_label_columns(store), strict=False
    ):  # none where no graph has edges
        index, hit = _find(known, values)
        flat = source[hit] * len(known) + index[hit]
        block = np.bincount(flat, minlength=N * len(known)).reshape(N, len(known))
        counts[:, place : place + len(known)] = block
        place += len(known)
    return counts


def find_unseen_edge_labels(store: GraphStore, blocks: _Blocks) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Per label column with labels that have no input column: its number, their entries, and all values."""
    found = []
    for column, (known, values) in enumerate(zip(blocks, edge_label_columns(store), strict=False)):
        rows = np.flatnonzero(~_find(known, values)[1])
        if len(rows):
            found.append((column, rows, values))
    return found


def report_unseen_edge_labels(
    store: GraphStore, blocks: _Blocks, unseen: Literal["refuse", "ignore"]
) -> None:
    """Raises, or warns, about edge labels that have no input column: which, on how many edges, and where first."""
    for column, rows, values in find_unseen_edge_labels(store, blocks):
        strangers = np.unique(values[rows])
        named = ", ".join(str(value) for value in strangers[:3]) + (", …" if len(strangers) > 3 else "")
        count = len(rows) // 2  # both directions are entries
        graph = int(np.searchsorted(store.host_entry_ptr.numpy(), rows[0], side="right")) - 1
        found = (
            f"{named} on {count} {'edge' if count == 1 else 'edges'}, first in graph {graph} of {store.name}"
        )
        if unseen == "ignore":
            told = f"FeatureRecipe.apply: labels of edges that have no input column are not counted: {found}."
            warnings.warn(told, stacklevel=4)
            continue
        raise ArgumentError(
            "FeatureRecipe.apply",
            "store",
            f"hold only edge labels that have an input column, in label column {column}",
            found,
            "Fit the recipe on graphs with these labels, or pass unseen='ignore'.",
        )


def _find(known: tuple[int, ...], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Place of each value among the ascending known ones, and whether it is one of them."""
    codes = np.asarray(known, dtype=np.int64)
    index = np.searchsorted(codes, values).clip(max=len(codes) - 1)
    return index, codes[index] == values


_MAX_VALUES = 4096  # more values than this in one label column are identifiers, not categories


@dataclass(frozen=True)
class FeatureRecipe:
    r"""Input columns of a graph's nodes, as the released HGCN program makes them.

    With x the attributes, the one-hot node labels and, where asked for, the counts of the labels of incident
    edges, or a column of ones where there is none of these, the columns are

    .. math::
        [\,x,\; \deg,\; \mathrm{onehot}(\min(\deg, \mathrm{cap})),\; Ax,\; A^2x,\; \dots,\; A^px\,],
        \qquad A = D^{-1/2}(\mathrm{Adj} + 10^{-8} I)D^{-1/2}

    where Adj is the adjacency of 0 and 1 (edge weights are the model's matter and do not enter here), deg its
    row sums and D the diagonal of deg + 1e-8. Sums are taken in float64. Every graph is computed by itself.

    A label column keeps the whole range from its smallest to its largest value where at least half of that
    range was seen in fitting (DD's 82 values from 1 to 89 keep 89 columns), and else the seen values alone.

    Args:
        attributes (bool): Use the node attributes where the graphs have any. (default: ``True``)
        labels (bool): Use the node labels where the graphs have any. (default: ``True``)
        degree (bool): Add the degree as a number. (default: ``True``)
        degree_onehot (int, optional): Add the degree as cap + 1 columns, the last for all degrees from the
            cap on; ``None`` leaves them out. (default: 100)
        propagation (int): Largest power p of A. (default: 3)
        edge_labels (bool): Add to x how many incident edges carry each edge label, where the graphs have edge
            labels; the published model drops them. (default: ``False``)
        num_attributes (int, optional): Attribute columns, known from fitting.
        label_values, edge_label_values (tuple, optional): Values with a column, ascending, for each label
            column of nodes and of edges, known from fitting.

    Example:
        ``recipe = FeatureRecipe().fit(store); x = recipe.apply(store)``
    """

    attributes: bool = True
    labels: bool = True
    degree: bool = True
    degree_onehot: int | None = 100
    propagation: int = 3
    num_attributes: int | None = None
    label_values: tuple[tuple[int, ...], ...] | None = None
    edge_labels: bool = False
    edge_label_values: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name in ("attributes", "labels", "degree", "edge_labels"):
            _expect(isinstance(getattr(self, name), bool), name, "be true or false", getattr(self, name))
        cap = self.degree_onehot
        _expect(cap is None or _count(cap), "degree_onehot", "be a whole number from 0 on, or none", cap)
        _expect(_count(self.propagation), "propagation", "be a whole number from 0 on", self.propagation)
        _expect(
            (self.num_attributes is None) == (self.label_values is None),
            "label_values",
            "be given together with 'num_attributes'",
            "one of the two",
        )
        _expect(
            (self.edge_label_values is not None) == (self.edge_labels and self.num_attributes is not None),
            "edge_label_values",
            "be given where edge labels are used and the recipe is fitted, and nowhere else",
            self.edge_label_values,
        )
        if self.num_attributes is None or self.label_values is None:
            return
        _expect(
            _count(self.num_attributes), "num_attributes", "be a whole number from 0 on", self.num_attributes
        )
        for name in ("label_values", "edge_label_values"):
            for values in getattr(self, name) or ():
                ascending = len(values) > 0 and all(type(value) is int for value in values)
                ascending = ascending and all(a < b for a, b in pairwise(values))
                _expect(ascending, name, "hold ascending whole numbers for each column", values)

    # ------------------------------------------------------------------ columns
    @property
    def is_fitted(self) -> bool:
        return self.label_values is not None

    @property
    def num_base_columns(self) -> int:
        """Columns of x: attributes, one-hot labels and counts of edge labels, or 1 where there is none."""
        attributes, blocks = self._fitted("num_base_columns")
        return max(attributes + sum(len(values) for values in (*blocks, *(self.edge_label_values or ()))), 1)

    @property
    def num_columns(self) -> int:
        """Columns of the input."""
        onehot = 0 if self.degree_onehot is None else self.degree_onehot + 1
        return self.num_base_columns * (1 + self.propagation) + int(self.degree) + onehot

    def column_names(self) -> list[str]:
        """One name per column, such as ``label[0]=6``, ``degree``, ``degree=3`` and ``A^2 label[0]=6``."""
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
        """A fitted copy: knows the attribute columns and label values of ``store``."""
        if not len(store):
            raise ArgumentError("FeatureRecipe.fit", "store", "hold at least one graph", "none")
        attributes = (
            check_finite_attributes(store, "FeatureRecipe.fit", torch.float64) if self.attributes else None
        )
        blocks = _label_values(node_label_columns(store) if self.labels else [], "node", store.name)
        edges = _label_values(edge_label_columns(store), "edge", store.name) if self.edge_labels else None
        num_attributes = 0 if attributes is None else attributes.shape[1]
        return replace(self, num_attributes=num_attributes, label_values=blocks, edge_label_values=edges)

    def apply(
        self,
        store: GraphStore,
        *,
        unseen: Literal["refuse", "ignore"] = "refuse",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Input columns of all nodes of ``store``, ``[N, num_columns]``, on the store's device.

        Args:
            store (GraphStore): Graphs with the attribute and label columns that were fitted.
            unseen (str): ``"refuse"`` raises on a label that has no column; ``"ignore"`` gives such a node
                zeros there, and warns with counts. (default: ``"refuse"``)
            dtype (torch.dtype): ``torch.float32`` or ``torch.float64``. (default: ``torch.float32``)

        Raises:
            ArgumentError: If the recipe is not fitted or the store does not fit it.
        """
        owner = "FeatureRecipe.apply"
        if unseen not in ("refuse", "ignore"):
            raise ArgumentError(owner, "unseen", "be 'refuse' or 'ignore'", repr(unseen))
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(owner, "dtype", "be torch.float32 or torch.float64", dtype)
        x = self._base(store, unseen, dtype)  # [N, k], float64
        degree = store.degree.cpu()
        k, rows = x.shape[1], torch.arange(store.num_nodes)
        out = torch.zeros(store.num_nodes, self.num_columns, dtype=dtype)
        out[:, :k] = torch.from_numpy(x)
        place = k
        if self.degree:
            out[:, place] = degree.to(dtype)
            place += 1
        if self.degree_onehot is not None:
            out[rows, place + degree.clamp_max(self.degree_onehot)] = 1
            place += self.degree_onehot + 1
        if self.propagation:
            for power in propagate_powers(store, x, self.propagation):
                out[:, place : place + k] = torch.from_numpy(power)
                place += k
        return out.to(store.device)

    def _base(self, store: GraphStore, unseen: Literal["refuse", "ignore"], dtype: torch.dtype) -> np.ndarray:
        """Attributes, one-hot labels and counts of edge labels, or ones, in float64, ``[N, num_base_columns]``."""
        owner = "FeatureRecipe.apply"
        num_attributes, blocks = self._fitted("apply")
        attributes = check_finite_attributes(store, owner, dtype) if self.attributes else None
        columns = node_label_columns(store) if self.labels else []
        found = {
            "node attribute": (num_attributes, 0 if attributes is None else attributes.shape[1]),
            "node label": (len(blocks), len(columns)),
        }
        edges = self.edge_label_values or ()
        if self.edge_labels and store.neighbours.numel():  # graphs without edges have no labels on them
            found["edge label"] = (len(edges), len(edge_label_columns(store)))
        for kind, (expected, got) in found.items():
            if expected != got:
                raise ArgumentError(
                    owner,
                    "store",
                    f"have {_columns(expected, kind)}, as the graphs that the recipe was fitted on",
                    f"{_columns(got, kind)} in {store.name}",
                )
        if not num_attributes and not blocks and not edges:
            return np.ones((store.num_nodes, 1))
        x = np.zeros((store.num_nodes, self.num_base_columns))
        if attributes is not None:
            x[:, :num_attributes] = attributes
        place = num_attributes
        for column, (known, values) in enumerate(zip(blocks, columns, strict=True)):
            codes = np.asarray(known, dtype=np.int64)
            index = np.searchsorted(codes, values).clip(max=len(codes) - 1)
            hit = codes[index] == values
            if not hit.all():
                report_unseen_node_labels(store, column, values, ~hit, unseen)
            rows = np.flatnonzero(hit)
            x[rows, place + index[rows]] = 1
            place += len(codes)
        if edges:
            report_unseen_edge_labels(store, edges, unseen)
            x[:, place:] = count_edge_labels(store, edges)
        return x

    def _fitted(self, asked: str) -> tuple[int, tuple[tuple[int, ...], ...]]:
        if self.num_attributes is None or self.label_values is None:
            raise ArgumentError(
                f"FeatureRecipe.{asked}", "recipe", "be fitted", "one that is not", "Call fit(store) first."
            )
        return self.num_attributes, self.label_values

    # ------------------------------------------------------------------ saving
    def to_dict(self) -> dict[str, Any]:
        """The recipe in JSON's own types; :meth:`from_dict` reads it back."""
        values = asdict(self)
        for name in ("label_values", "edge_label_values"):
            if values[name] is not None:
                values[name] = [list(block) for block in values[name]]
        if not self.edge_labels:  # as it was written before there was this choice
            del values["edge_labels"], values["edge_label_values"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureRecipe:
        """Reads what :meth:`to_dict` wrote; an entry left out keeps its default, an unknown one raises."""
        known = [entry.name for entry in fields(cls)]
        for name in values:
            if name not in known:
                raise ArgumentError(
                    "FeatureRecipe.from_dict", name, f"be one of {', '.join(known)}", "a stranger"
                )
        read = dict(values)
        for name in ("label_values", "edge_label_values"):
            blocks = read.get(name)
            if blocks is not None:
                nested = isinstance(blocks, list | tuple)
                nested = nested and all(isinstance(block, list | tuple) for block in blocks)
                _expect(nested, name, "be a list of lists", blocks)
                read[name] = tuple(tuple(block) for block in blocks)
        return cls(**read)


def _label_values(columns: list[np.ndarray], kind: str, name: str) -> tuple[tuple[int, ...], ...]:
    """The values with an input column, for each label column of nodes or edges."""
    blocks = []
    for column, values in enumerate(columns):
        seen = [int(value) for value in np.unique(values)]
        if len(seen) > _MAX_VALUES:
            raise ArgumentError(
                "FeatureRecipe.fit",
                "store",
                f"hold at most {_MAX_VALUES} different values in a {kind} label column",
                f"{len(seen)} in label column {column} of {name}",
                f"Leave such labels out with {'edge_' if kind == 'edge' else ''}labels=False, or hand them over "
                "as attributes.",
            )
        if not seen:  # labels of edges, and no edge
            continue
        span = seen[-1] - seen[0] + 1  # len(range) would refuse one above 2^63 - 1
        blocks.append(tuple(range(seen[0], seen[-1] + 1) if span <= 2 * len(seen) else seen))
    return tuple(blocks)


def _columns(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind} column{'' if count == 1 else 's'}"


def _count(value: object) -> bool:
    return type(value) is int and value >= 0


def _expect(condition: bool, name: str, expected: str, got: object) -> None:
    if not condition:
        raise ArgumentError("FeatureRecipe", name, expected, got)
