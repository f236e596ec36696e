"""Named, frozen values that travel between the layers: batches in, capsules out."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

__all__ = [
    "AdjacencyBits",
    "BatchLayout",
    "CapsuleLevel",
    "ClassOutput",
    "EdgeTable",
    "FeatureRows",
    "FeatureTable",
    "GraphBatch",
    "HGCNOutput",
    "LossTerms",
    "Precision",
    "Routing",
    "Segments",
    "ShapeRepr",
]

Precision = Literal["float32", "tf32", "bf16"]
"""Precision of matrix products on a GPU; sums and everything else stay float32."""


class ShapeRepr:
    """Shows tensors by their shape: ``Routing(capsules=[2, 5, 8], assignment=[7, 5])``."""

    def __repr__(self) -> str:
        shown = []
        for entry in fields(self):  # type: ignore[arg-type]
            if entry.repr:
                shown.append(f"{entry.name}={_short(getattr(self, entry.name))}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    if isinstance(value, tuple):
        return f"({', '.join(_short(item) for item in value)})"
    return repr(value)


@dataclass(frozen=True, repr=False, eq=False)
class Segments(ShapeRepr):
    """Which rows of a ragged ``[*lead, V, …]`` tensor belong to which of B graphs.

    Rows of one graph lie together, graphs in order. Rows after the last graph are padding, and so are
    graphs without rows.

    Args:
        ptr (Tensor): First row of each graph, and the end of the last, ``[*lead, B + 1]``.
        index (Tensor): Graph of each row, B at padding, ``[*lead, V]``.
        padded (bool): Whether there may be padding rows or graphs (kept on the host, so that asking
            costs no synchronisation).
        max_size (int, optional): Rows of the largest graph, or a bound on it, where the host knows it.
        memo (dict): What ops derived from these tensors, kept for the next op of the same batch.
    """

    ptr: Tensor
    index: Tensor
    padded: bool = True
    max_size: int | None = None
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, init=False)

    @property
    def num_graphs(self) -> int:
        """B, padding graphs included."""
        return self.ptr.size(-1) - 1

    @property
    def num_rows(self) -> int:
        """V, padding rows included."""
        return self.index.size(-1)

    @property
    def sizes(self) -> Tensor:
        """Rows of each graph, ``[*lead, B]``."""
        return self.ptr[..., 1:] - self.ptr[..., :-1]

    @property
    def row_mask(self) -> Tensor | None:
        """True at real rows, ``[*lead, V]``; ``None`` where nothing is padding."""
        if not self.padded:
            return None
        if "row_mask" not in self.memo:
            self.memo["row_mask"] = self.index < self.num_graphs
        mask: Tensor = self.memo["row_mask"]
        return mask

    @property
    def graph_mask(self) -> Tensor | None:
        """True at real graphs, ``[*lead, B]``; ``None`` where nothing is padding."""
        return self.sizes > 0 if self.padded else None

    @classmethod
    def from_sizes(cls, sizes: Tensor) -> Segments:
        """Segments without padding for graphs of the given sizes, ``[*lead, B]``, equal sums over B."""
        *lead, B = sizes.shape
        ptr = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))
        flat = sizes.reshape(-1)
        graphs = torch.arange(B, device=sizes.device).expand(*lead, B).reshape(-1)
        index = graphs.repeat_interleave(flat).reshape(*lead, -1)
        padded = bool((sizes == 0).any())
        return cls(ptr, index, padded=padded, max_size=int(sizes.max()) if sizes.numel() else 0)

    @classmethod
    def from_index(cls, index: Tensor, num_graphs: int | None = None) -> Segments:
        """Segments of a torch-geometric ``batch`` vector, ``[*lead, V]``, sorted along its last axis."""
        known = num_graphs is not None
        B = num_graphs if num_graphs is not None else (int(index.max()) + 1 if index.numel() else 0)
        edges = torch.arange(B + 1, device=index.device).expand(*index.shape[:-1], B + 1).contiguous()
        ptr = torch.searchsorted(index.contiguous(), edges)
        # Without a stated count every row is real and only an inner graph can be empty.
        return cls(ptr, index, padded=known or bool((ptr[..., 1:] == ptr[..., :-1]).any()))


@dataclass(frozen=True, repr=False, eq=False)
class AdjacencyBits(ShapeRepr):
    """Who is joined with whom, a bit per pair of nodes of a graph.

    The row of a node has a word of 32 bits for each 32 nodes of its graph: bit k of word w is 1 where node
    32 w + k of the graph is its neighbour.

    Args:
        words (Tensor): All rows one after another, int32, ``[W]``.
        start (Tensor): First word of each node of the store, ``[N]``.
        dense (bool): Whether there are so many neighbours that products walk the bits, not the neighbours.
    """

    words: Tensor
    start: Tensor
    dense: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class EdgeTable(ShapeRepr):
    """The edges of a batch, read from the arrays of the store that it was drawn from.

    Slot v of the batch holds node ``node[v]`` of the store, whose neighbours are the slots
    ``first[v] + neighbours[ptr[node[v]] : ptr[node[v] + 1]]``. No edge is copied. Every edge stands in
    both directions with one weight, never twice, and no node is its own neighbour.

    Args:
        ptr (Tensor): First entry of each node of the store, ``[N + 1]``.
        neighbours (Tensor): Neighbours, counted from the first node of their graph, ``[M]``.
        weight (Tensor, optional): Weight of each entry, ``[M]``; all ones where there is none.
        node (Tensor): Store node of each slot, −1 at padding, ``[*lead, V]``.
        first (Tensor): First slot of the slot's graph, ``[*lead, V]``.
        num_entries (int, optional): Entries of all slots together, where the host knows it.
        max_degree (int, optional): Most neighbours of a node, or a bound on it, where the host knows it.
        bits (AdjacencyBits, optional): The same edges as bits, where they were made.
        graphs (Tensor, optional): First slot of each graph, and the end of the last, ``[*lead, B + 1]``.
        memo (dict): What ops derived from these tensors, kept for the next op of the same batch.
    """

    ptr: Tensor
    neighbours: Tensor
    weight: Tensor | None
    node: Tensor
    first: Tensor
    num_entries: int | None = None
    max_degree: int | None = None
    bits: AdjacencyBits | None = None
    graphs: Tensor | None = None
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, init=False)


@dataclass(frozen=True, repr=False, eq=False)
class GraphBatch(ShapeRepr):
    """Graphs of one step: all nodes of all graphs in one ragged tensor.

    Args:
        features (Tensor or FeatureRows): Node features, ``[*lead, V, in]``, or where in the store they are.
        segments (Segments): Which node belongs to which graph.
        edges (EdgeTable): The edges, by reference.
        y (Tensor, optional): Class of each graph, −1 at padding, ``[*lead, B]``.
    """

    features: Tensor | FeatureRows
    segments: Segments
    edges: EdgeTable
    y: Tensor | None = None

    @cached_property
    def x(self) -> Tensor:
        """The features as a tensor; gathered when they are first asked for."""
        return self.features if isinstance(self.features, Tensor) else self.features.gather()

    @property
    def num_graphs(self) -> int:
        return self.segments.num_graphs


@dataclass(frozen=True, repr=False, eq=False)
class BatchLayout(ShapeRepr):
    """B graphs of a store, one after another, in the V rows of a batch.

    Args:
        graphs (Tensor): Graphs of the store, −1 for none, ``[*lead, B]``.
        ptr (Tensor): First row of each graph, and the end of the last, ``[*lead, B + 1]``.
        index (Tensor): Graph of each row, B at padding, ``[*lead, V]``.
        node (Tensor): Node of the store in each row, −1 at padding, ``[*lead, V]``.
        first (Tensor): First row of the row's graph, 0 at padding, ``[*lead, V]``.
        mask (Tensor): True at real rows, ``[*lead, V]``.
        y (Tensor, optional): Class of each graph, −1 for none, ``[*lead, B]``.
        active (Tensor): Whether a replica has a graph, ``[*lead]``.
    """

    graphs: Tensor
    ptr: Tensor
    index: Tensor
    node: Tensor
    first: Tensor
    mask: Tensor
    y: Tensor | None
    active: Tensor


@dataclass(frozen=True, repr=False, eq=False)
class Routing(ShapeRepr):
    """What routing by agreement found.

    Args:
        capsules (Tensor): Wholes u, ``[*lead, B, J, d]``.
        assignment (Tensor): Weights c of the last round, ``[*lead, V, J]``; rows sum to 1, padding is 0.
    """

    capsules: Tensor
    assignment: Tensor


@dataclass(frozen=True, repr=False, eq=False)
class CapsuleLevel(ShapeRepr):
    """One level of the hierarchy.

    Args:
        capsules (Tensor): Wholes of this level, ``[*lead, B, J, d]``.
        assignment (Tensor): How far each part belongs to each whole: ``[*lead, V, J]`` over nodes,
            ``[*lead, B, J_below, J]`` above the first level.
        adjacency (Tensor, optional): Graph among the wholes, ``[*lead, B, J, J]``; ``None`` at the
            class level, where nothing is built on it.
    """

    capsules: Tensor
    assignment: Tensor
    adjacency: Tensor | None


@dataclass(frozen=True, repr=False, eq=False)
class HGCNOutput(ShapeRepr):
    """What :class:`graphcaps.nn.HGCN` computes for a batch.

    Args:
        class_scores (Tensor): Lengths of the class capsules, ``[*lead, B, O]``.
        class_capsules (Tensor): Class capsules, ``[*lead, B, O, d]``.
        primary (Tensor): Primary capsules of the nodes, ``[*lead, V, d]``.
        levels (tuple): One :class:`CapsuleLevel` per capsule layer; the last is the class level.
        reconstruction_loss (Tensor, optional): One number per replica, ``[*lead]``.
    """

    class_scores: Tensor
    class_capsules: Tensor
    primary: Tensor
    levels: tuple[CapsuleLevel, ...]
    reconstruction_loss: Tensor | None = None


@dataclass(frozen=True, repr=False, eq=False)
class ClassOutput(ShapeRepr):
    """What a classifier without capsules computes for a batch: ``class_scores [*lead, B, O]``."""

    class_scores: Tensor


@dataclass(frozen=True, repr=False, eq=False)
class LossTerms(ShapeRepr):
    """A loss and what it is made of, one number per replica.

    Args:
        total (Tensor): What is minimised, ``[*lead]``.
        terms (dict): Its parts by name, before they are weighted, ``[*lead]`` each.
    """

    total: Tensor
    terms: dict[str, Tensor]


@dataclass(frozen=True, repr=False, eq=False)
class FeatureTable(ShapeRepr):
    """Features of all N nodes of a store, from which ``shift`` was taken, and those of them that are not zero.

    Args:
        x (Tensor): The features themselves, ``[N, in]``.
        shift (Tensor): Taken from every row for all that follows, ``[in]``.
        ptr (Tensor): First entry of each node, and the end of the last, int32, ``[N + 1]``.
        columns, values (Tensor): Column (int32) and shifted feature of each entry, ``[P]``.
        sums, squares (Tensor): Of shifted features over the nodes of each graph, float64, ``[G, in]``.
        node_ptr (Tensor): First node of each graph, and the end of the last, ``[G + 1]``.
        sparse (bool): Whether so few entries are listed that products walk them.
    """

    x: Tensor
    shift: Tensor
    ptr: Tensor
    columns: Tensor
    values: Tensor
    sums: Tensor
    squares: Tensor
    node_ptr: Tensor
    sparse: bool = True


@dataclass(frozen=True, repr=False, eq=False)
class FeatureRows(ShapeRepr):
    """The features of a batch, read from the table of the store that it was drawn from.

    Args:
        table (FeatureTable): Features of the whole store.
        node (Tensor): Store node of each slot, −1 at padding, ``[*lead, V]``.
        graphs (Tensor): Store graph of each graph of the batch, −1 for none, ``[*lead, B]``.
        cleared (bool): Whether padding rows are 0 where rows are gathered, or hold anything.
    """

    table: FeatureTable
    node: Tensor
    graphs: Tensor
    cleared: bool = False

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.node.shape, self.table.x.size(-1)))

    def gather(self) -> Tensor:
        rows = self.table.x.index_select(0, self.node.clamp_min(0).reshape(-1)).reshape(self.shape)
        return rows.masked_fill(self.node.lt(0).unsqueeze(-1), 0) if self.cleared else rows
