"""Frozen data classes that the layers exchange: batches, capsules and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from graphcaps.memo import Memo, remember

__all__ = [
    "AdjacencyBits",
    "BatchLayout",
    "CapsuleLevel",
    "CoarseLevel",
    "EdgeLabelUse",
    "EdgeList",
    "EdgeTable",
    "FeatureRows",
    "FeatureTable",
    "GraphBatch",
    "HGCNOutput",
    "LossOptions",
    "LossTerms",
    "Members",
    "ModelOutput",
    "Precision",
    "Routing",
    "Segments",
    "ShapeRepr",
    "TrainingLoss",
]

Precision = Literal["float32", "tf32", "bf16"]
"""Precision of matrix products on a GPU; all other operations use float32."""

EdgeLabelUse = Literal["counts", "messages", "both"]
"""How a model reads edge labels: as counts in the node features, in the message passing under the votes, or both."""


class ShapeRepr:
    """Base class whose ``repr`` shows tensors by their shape: ``Routing(capsules=[2, 5, 8], assignment=[7, 5])``."""

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
    """The graph of each row of a ragged ``[*lead, V, …]`` tensor with B graphs.

    Rows of a graph are contiguous, and graphs are in order. Rows after the last graph are padding. A graph without rows
    is padding, or a graph without nodes: neither counts in statistics and means over graphs.

    Args:
        ptr (Tensor): First row of each graph, and the end of the last, ``[*lead, B + 1]``.
        index (Tensor): Graph of each row, B at padding, ``[*lead, V]``.
        padded (bool): Whether there may be padding rows or graphs. Stored on the host, so that reading it needs no
            synchronisation.
        max_size (int, optional): Number of rows of the largest graph, or an upper bound, if the host has it.
        may_be_empty (bool): Whether there may be graphs without nodes. Results of padding graphs are undefined; those
            of a graph without nodes are zero capsules, which costs an operation per level. (default: False)
        memo (dict): Cache of tensors that ops derive from this object.
    """

    ptr: Tensor
    index: Tensor
    padded: bool = True
    max_size: int | None = None
    may_be_empty: bool = False
    memo: Memo = field(default_factory=dict, repr=False, init=False)

    @property
    def num_graphs(self) -> int:
        """Number of graphs B, padding included."""
        return self.ptr.size(-1) - 1

    @property
    def num_rows(self) -> int:
        """Number of rows V, padding included."""
        return self.index.size(-1)

    @property
    def sizes(self) -> Tensor:
        """Number of rows of each graph, ``[*lead, B]``."""
        return self.ptr[..., 1:] - self.ptr[..., :-1]

    @property
    def row_mask(self) -> Tensor | None:
        """True at real rows, ``[*lead, V]``; ``None`` without padding."""
        if not self.padded:
            return None
        return remember(self.memo, "row_mask", lambda: self.index < self.num_graphs)

    @property
    def graph_mask(self) -> Tensor | None:
        """True at graphs with rows, ``[*lead, B]``; ``None`` without padding."""
        if not self.padded:
            return None
        return remember(self.memo, "graph_mask", lambda: self.sizes > 0)

    @classmethod
    def from_sizes(cls, sizes: Tensor) -> Segments:
        """Segments without padding rows for graphs of these sizes, ``[*lead, B]``, with equal sums over B."""
        *lead, B = sizes.shape
        ptr = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))
        flat = sizes.reshape(-1)
        graphs = torch.arange(B, device=sizes.device).expand(*lead, B).reshape(-1)
        index = graphs.repeat_interleave(flat).reshape(*lead, -1)
        empty = bool((sizes == 0).any())
        max_size = int(sizes.max()) if sizes.numel() else 0
        return cls(ptr, index, padded=empty, max_size=max_size, may_be_empty=empty)

    @classmethod
    def from_index(cls, index: Tensor, num_graphs: int | None = None) -> Segments:
        """Segments of a torch-geometric ``batch`` vector, ``[*lead, V]``, sorted along its last axis."""
        stated = num_graphs is not None
        B = num_graphs if num_graphs is not None else (int(index.max()) + 1 if index.numel() else 0)
        edges = torch.arange(B + 1, device=index.device).expand(*index.shape[:-1], B + 1).contiguous()
        ptr = torch.searchsorted(index.contiguous(), edges)
        # Without a stated number of graphs all rows are real, and only a graph before the last can be empty.
        empty = stated or bool((ptr[..., 1:] == ptr[..., :-1]).any())
        return cls(ptr, index, padded=empty, may_be_empty=empty)


@dataclass(frozen=True, repr=False, eq=False)
class AdjacencyBits(ShapeRepr):
    """Adjacency matrices as bits, one per pair of nodes of a graph.

    The row of a node has a 32-bit word for each 32 nodes of its graph: bit k of word w is 1 if node 32 w + k of the
    graph is its neighbour.

    Args:
        words (Tensor): Concatenated rows, int32, ``[W]``.
        start (Tensor): First word of each node of the store, ``[N]``.
        dense (bool): Whether graphs are so dense that products iterate over bits instead of neighbour lists.
    """

    words: Tensor
    start: Tensor
    dense: bool = False


@dataclass(frozen=True, repr=False, eq=False)
class EdgeList(ShapeRepr):
    """The edges of a batch as pairs of its flattened rows: each edge in both directions, once, no self-loops.

    Args:
        source, target (Tensor): Rows that are connected, ``[E]`` each.
        weight (Tensor, optional): Weight of each pair, ``[E]``. (default: all 1)
        kind (Tensor, optional): Kind of each pair, see :mod:`graphcaps.ops.edge_kinds`, ``[E]``.
    """

    source: Tensor
    target: Tensor
    weight: Tensor | None = None
    kind: Tensor | None = None


@dataclass(frozen=True, repr=False, eq=False)
class EdgeTable(ShapeRepr):
    """The edges of a batch, as references into the arrays of its store.

    Row v of the batch is node ``node[v]`` of the store, whose neighbours are the rows
    ``first[v] + neighbours[ptr[node[v]] : ptr[node[v] + 1]]``. No edge is copied. Every edge is stored in both
    directions with the same weight and kind. There are no duplicate edges and no self-loops.

    Args:
        ptr (Tensor): First entry of each node of the store, ``[N + 1]``.
        neighbours (Tensor): Neighbours, counted from the first node of their graph, ascending for each node, ``[M]``.
        weight (Tensor, optional): Weight of each entry, ``[M]``. (default: all 1)
        node (Tensor): Node of the store for each row, −1 at padding, ``[*lead, V]``.
        first (Tensor): First row of the graph of each row, ``[*lead, V]``.
        num_entries (int, optional): Number of entries of all rows, if the host has it.
        max_degree (int, optional): Largest degree, or an upper bound, if the host has it.
        bits (AdjacencyBits, optional): The same edges as bits.
        graphs (Tensor, optional): First row of each graph, and the end of the last, ``[*lead, B + 1]``.
        pairs (EdgeList, optional): The same edges as a list, if the table was made from one.
        kind (Tensor, optional): Kind of each entry, see :mod:`graphcaps.ops.edge_kinds`, int32, ``[M]``.
        max_entries (int, optional): Upper bound of the number of entries, which depends on the shape of the batch only.
        memo (dict): Cache of tensors that ops derive from this object.
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
    pairs: EdgeList | None = None
    kind: Tensor | None = None
    max_entries: int | None = None
    memo: Memo = field(default_factory=dict, repr=False, init=False)


@dataclass(frozen=True, repr=False, eq=False)
class Members(ShapeRepr):
    """The members of the coarse rows of a level: P pairs of a coarse row and a row of the level below.

    Args:
        source (Tensor): Row of the level below of each pair, 0 at padding, ``[*lead, P]``.
        segments (Segments): Coarse row of each pair: its "graphs" are the V' coarse rows.
        weights (Tensor, optional): Weights of each pair, undefined at padding, ``[*lead, P, H]``.
    """

    source: Tensor
    segments: Segments
    weights: Tensor | None = None


@dataclass(frozen=True, repr=False, eq=False)
class CoarseLevel(ShapeRepr):
    """A precomputed coarser level of the graphs of a batch (:mod:`graphcaps.ops.structure`).

    Args:
        segments (Segments): Graph of each of the V' coarse rows.
        edges (EdgeTable): Edges of the coarse graphs, by reference.
        members (Members): Rows of the level below that each coarse row has as members.
    """

    segments: Segments
    edges: EdgeTable
    members: Members


@dataclass(frozen=True, repr=False, eq=False)
class GraphBatch(ShapeRepr):
    """A batch of graphs: the nodes of all graphs in one ragged tensor.

    Args:
        features (Tensor or FeatureRows): Node features, ``[*lead, V, in]``, or references to those of the store.
        segments (Segments): Graph of each node.
        edges (EdgeTable): The edges, by reference.
        y (Tensor, optional): Class of each graph, −1 at padding, ``[*lead, B]``.
        levels (tuple): Precomputed coarser levels, from the finest to the coarsest. (default: none)
        columns (Tensor, optional): Precomputed columns of the nodes, undefined at padding, ``[*lead, V, c]``.
    """

    features: Tensor | FeatureRows
    segments: Segments
    edges: EdgeTable
    y: Tensor | None = None
    levels: tuple[CoarseLevel, ...] = ()
    columns: Tensor | None = None

    @classmethod
    def without_nodes(
        cls, lead: tuple[int, ...], num_graphs: int, x: Tensor, y: Tensor | None = None
    ) -> GraphBatch:
        """A batch of graphs without nodes: a single padding row, because operations need one.

        Args:
            lead (tuple): Leading axes.
            num_graphs (int): Number of graphs B.
            x (Tensor): Features of no nodes, ``[0, in]``.
            y (Tensor, optional): Class of each graph, ``[*lead, B]``.
        """
        index = torch.full((*lead, 1), num_graphs, device=x.device)
        ptr = index.new_zeros(*lead, num_graphs + 1)
        segments = Segments(ptr, index, padded=True, max_size=0, may_be_empty=True)
        none = index.new_zeros(0, dtype=torch.int32)
        node, first = torch.full_like(index, -1), torch.zeros_like(index)
        edges = EdgeTable(index.new_zeros(2), none, None, node, first, 0, 0, graphs=ptr, kind=none)
        return cls(x.new_zeros(*lead, 1, x.size(-1)), segments, edges, y)

    @cached_property
    def x(self) -> Tensor:
        """The features as a tensor, gathered at the first access."""
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
        graph_mask (Tensor): True at graphs with nodes, ``[*lead, B]``.
        y (Tensor, optional): Class of each graph, −1 for none, ``[*lead, B]``.
        active (Tensor): Whether a replica has a graph, ``[*lead]``.
    """

    graphs: Tensor
    ptr: Tensor
    index: Tensor
    node: Tensor
    first: Tensor
    mask: Tensor
    graph_mask: Tensor
    y: Tensor | None
    active: Tensor


@dataclass(frozen=True, repr=False, eq=False)
class Routing(ShapeRepr):
    """Result of routing by agreement.

    Args:
        capsules (Tensor): Output capsules u, ``[*lead, B, J, d]``.
        assignment (Tensor): Coefficients c of the last iteration, ``[*lead, V, J]``; rows sum to 1, padding is 0.
        iterations (Tensor, optional): Coefficients of all R iterations, ``[R, *lead, V, J]``, if a trace was asked for.
    """

    capsules: Tensor
    assignment: Tensor
    iterations: Tensor | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False, eq=False)
class Contributions(ShapeRepr):
    """Contributions to the lengths of output capsules (:mod:`graphcaps.ops.routing.contributions`).

    The sum over the input capsules of a graph, plus the residual's, is the length of the output capsule.

    Args:
        inputs (Tensor): Contribution of each input capsule to each output capsule of its graph, ``[*lead, V, J]`` over
            nodes, ``[*lead, B, J_below, J]`` above the first level; negative ones shorten the capsule.
        residual (Tensor): Contribution of the residual, ``[*lead, B, J]``; 0 without one.
    """

    inputs: Tensor
    residual: Tensor


@dataclass(frozen=True, repr=False, eq=False)
class CapsuleLevel(ShapeRepr):
    """One level of the capsule hierarchy.

    Args:
        capsules (Tensor): Capsules of this level, ``[*lead, B, J, d]``.
        assignment (Tensor): Assignment of the capsules below to those of this level: ``[*lead, V, J]`` over nodes,
            ``[*lead, B, J_below, J]`` above the first level.
        adjacency (Tensor, optional): Coarse graph of the capsules, ``[*lead, B, J, J]``; ``None`` at the class level.
        iterations (Tensor, optional): Assignments of all R routing iterations, ``[R, …]`` before the axes of
            ``assignment``, which is the last of them; ``None`` without a trace.
        contributions (Contributions, optional): Contributions to the lengths of the capsules; ``None`` without a trace.
    """

    capsules: Tensor
    assignment: Tensor
    adjacency: Tensor | None
    iterations: Tensor | None = field(default=None, repr=False)
    contributions: Contributions | None = field(default=None, repr=False)


@dataclass(frozen=True, repr=False, eq=False)
class ModelOutput(ShapeRepr):
    """Output of a model for a batch. Models with further results derive their own class from it.

    Args:
        class_scores (Tensor): Class scores, ``[*lead, B, O]``; the model's ``scores`` says what they are.
    """

    class_scores: Tensor


@dataclass(frozen=True, repr=False, eq=False)
class HGCNOutput(ModelOutput):
    """Output of :class:`graphcaps.nn.HGCN` for a batch.

    Args:
        class_scores (Tensor): Lengths of the class capsules, ``[*lead, B, O]``.
        class_capsules (Tensor): Class capsules, ``[*lead, B, O, d]``.
        primary (Tensor): Primary capsules of the nodes, ``[*lead, V, d]``.
        levels (tuple): One :class:`CapsuleLevel` per capsule layer; the last is the class level.
        reconstruction_loss (Tensor, optional): One number per replica, ``[*lead]``.
    """

    class_capsules: Tensor
    primary: Tensor
    levels: tuple[CapsuleLevel, ...]
    reconstruction_loss: Tensor | None = None


RECONSTRUCTION_WEIGHT = 0.1
"""Published weight of the reconstruction loss."""


@dataclass(frozen=True, repr=False, eq=False)
class LossOptions(ShapeRepr):
    """Weights in the loss of a model; a model ignores those of terms that it does not have.

    Args:
        class_weight (Tensor, optional): Weight of each class, ``[O]`` or ``[*lead, O]``. (default: 1 each)
        reconstruction_weight (float or Tensor): Weight β of the reconstruction loss; one per replica, ``[*lead]``, as a
            tensor. (default: 0.1)
        graph_weight (Tensor, optional): Weight of each graph of the batch in the classification loss, ``[*lead, B]``.
            (default: 1 each)
    """

    class_weight: Tensor | None = None
    reconstruction_weight: float | Tensor = RECONSTRUCTION_WEIGHT
    graph_weight: Tensor | None = None


@dataclass(frozen=True, repr=False, eq=False)
class LossTerms(ShapeRepr):
    """A loss and its terms, one number per replica.

    Args:
        total (Tensor): The loss that is minimised, ``[*lead]``.
        terms (dict): Its terms by name, before weighting, ``[*lead]`` each.
        stacked (Tensor, optional): The loss and its terms in one tensor, ``[terms + 1, *lead]``, if they are made so.
    """

    total: Tensor
    terms: dict[str, Tensor]
    stacked: Tensor | None = field(default=None, repr=False)

    def values(self) -> Tensor:
        """The loss and its terms without gradient, ``[terms + 1, *lead]``."""
        if self.stacked is not None:
            return self.stacked
        return torch.stack([self.total, *self.terms.values()]).detach()

    def plus(self, name: str, term: Tensor | None, weight: float | Tensor) -> LossTerms:
        """The loss with one more term ``[*lead]``; without it if there is none, or its weight is the number 0."""
        if term is None or (not isinstance(weight, Tensor) and weight == 0):
            return self
        if isinstance(weight, Tensor):
            total = torch.addcmul(self.total, term, weight)
        else:
            total = torch.add(self.total, term, alpha=weight)
        return LossTerms(total, {**self.terms, name: term})


@dataclass(frozen=True, repr=False, eq=False)
class TrainingLoss(ShapeRepr):
    """The loss of a training batch.

    Args:
        terms (LossTerms): The loss.
        class_scores (Tensor): Class scores, ``[*lead, B, O]``.
    """

    terms: LossTerms
    class_scores: Tensor

    def backward(self, update: Callable[[], None] | None = None) -> None:
        """Adds the gradients of the loss to those of the parameters.

        Args:
            update (callable, optional): Updates the parameters that have a gradient, and drops these gradients. A loss
                may call it as soon as it reads some parameters no more and has their gradients, to compute the others
                meanwhile. (default: nothing is updated)
        """
        # Replicas are independent: the gradients of each are as if it were alone.
        root: Tensor = _Root.apply(self.terms.total)
        root.backward()


class _Root(torch.autograd.Function):
    """A number whose gradient is that of every replica; its value has no meaning.

    A sum over the replicas has the same gradient, in two more kernels of a step. Ones as an argument of ``backward``
    have it too, but torch then imports sympy for half a second.
    """

    @staticmethod
    def forward(ctx: Any, total: Tensor) -> Tensor:
        ctx.shape = total.shape
        return total.new_empty(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.expand(ctx.shape)


@dataclass(frozen=True, repr=False, eq=False)
class FeatureTable(ShapeRepr):
    """Features of all N nodes of a store, and the sparse form of these features minus ``shift``.

    Args:
        x (Tensor): Features, ``[N, in]``.
        shift (Tensor): Subtracted from every row in the fields below, ``[in]``.
        ptr (Tensor): First nonzero entry of each node, and the end of the last, int32, ``[N + 1]``.
        columns, values (Tensor): Column (int32) and shifted feature of each entry, ``[P]``.
        sums, squares (Tensor): Sums of shifted features and of their squares over each graph, float64, ``[G, in]``.
        node_ptr (Tensor): First node of each graph, and the end of the last, ``[G + 1]``.
        sparse (bool): Whether there are so few entries that products iterate over them.
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
    """The features of a batch, as references into the feature table of its store.

    Args:
        table (FeatureTable): Features of the whole store.
        node (Tensor): Node of the store for each row, −1 at padding, ``[*lead, V]``.
        graphs (Tensor): Graph of the store for each graph of the batch, −1 at padding, ``[*lead, B]``.
        cleared (bool): Whether gathered padding rows are 0; otherwise they are undefined.
    """

    table: FeatureTable
    node: Tensor
    graphs: Tensor
    cleared: bool = False

    @property
    def shape(self) -> torch.Size:
        """Shape of the gathered features."""
        return torch.Size((*self.node.shape, self.table.x.size(-1)))

    def gather(self) -> Tensor:
        """The features as a tensor, ``[*lead, V, in]``."""
        rows = self.table.x.index_select(0, self.node.clamp_min(0).reshape(-1)).reshape(self.shape)
        return rows.masked_fill(self.node.lt(0).unsqueeze(-1), 0) if self.cleared else rows
