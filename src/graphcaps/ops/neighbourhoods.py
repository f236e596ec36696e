"""Operations over closed neighbourhoods: those of sparse ragged graphs, and of small dense graphs that arise from them.

The neighbourhood of node i is i itself and its neighbours j. Both classes have the same methods, on rows
``[*lead, N, d]``: the nodes of a ragged batch, or the B · K places of dense graphs of at most K nodes. What is computed
for a neighbourhood as a whole is a row of its centre i; what is computed for its members is a *pair tensor*: one number
per entry of the edge list and per node in the sparse form, a matrix per graph in the dense one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from graphcaps.ops.activation.hashed_dropout import HashedDropout, keep_pairs
from graphcaps.ops.propagation.propagation import (
    dense_propagate,
    edge_list,
    neighbour_count,
    neighbour_sum,
    padded_entries,
    propagate,
)
from graphcaps.ops.ragged.segment_sort import Places, sorted_places
from graphcaps.ops.ragged.top_k import descending_order, rank_of_row
from graphcaps.ops.row_sums import select_rows, sum_rows
from graphcaps.types import EdgeTable, Segments

__all__ = ["DenseNeighbourhoods", "Neighbourhoods", "RaggedNeighbourhoods"]

_BLOCK_NUMBERS = 1 << 26
"""Largest number of elements of a temporary tensor: larger ones are computed in blocks."""


_SPARE_ROWS = 1024
"""Rows that padding entries are added to: many, since additions to one row wait for each other on a GPU."""


class Neighbourhoods(Protocol):
    """What :class:`RaggedNeighbourhoods` and :class:`DenseNeighbourhoods` have in common."""

    def hop(self, x: Tensor) -> Tensor:
        """The normalised hop Â x of :func:`graphcaps.ops.propagate`, with edge weights."""
        ...

    def maximum(self, x: Tensor) -> Tensor:
        """Maximum of each column over the members of a neighbourhood."""
        ...

    def total(self, x: Tensor) -> Tensor:
        """Sum over the members of a neighbourhood, without edge weights."""
        ...

    def count(self, dtype: torch.dtype) -> Tensor:
        """Number of members of each neighbourhood, ``[*lead, N, 1]``."""
        ...

    def attention(
        self, centre: Tensor, member: Tensor, slope: float, dropout: HashedDropout | None
    ) -> Tensor:
        """Pair tensor of softmax over members j of LeakyReLU(centreᵢ + memberⱼ), ``[*lead, N, 1]`` each."""
        ...

    def weigh(self, attention: Tensor, x: Tensor) -> Tensor:
        """Sum over the members of a neighbourhood, with the weights of a pair tensor."""
        ...

    def coarsen(
        self, x: Tensor, score: Tensor, attention: Tensor | None, ratio: float
    ) -> DenseNeighbourhoods:
        """The graphs of the neighbourhoods with the highest scores; see :meth:`RaggedNeighbourhoods.coarsen`."""
        ...


@dataclass(frozen=True, eq=False)
class DenseNeighbourhoods:
    """Neighbourhoods of dense graphs of at most K nodes.

    Args:
        x (Tensor): Rows of the nodes, ``[*lead, B · K, d]``, 0 in unused places.
        size (Tensor): Number of nodes of each graph, which are the first of its K places, ``[*lead, B]``.
        adjacency (Tensor, optional): Edge weights, 0 on the diagonal and in unused places, without gradient,
            ``[*lead, B, K, K]``; ``None`` where no operation follows that needs edges.
        places (int): K.
    """

    x: Tensor
    size: Tensor
    adjacency: Tensor | None
    places: int

    @property
    def used(self) -> Tensor:
        """True in used places, ``[*lead, B, K]``."""
        return torch.arange(self.places, device=self.size.device) < self.size.unsqueeze(-1)

    def per_graph(self, rows: Tensor) -> Tensor:
        """Rows ``[*lead, B · K, d]`` as ``[*lead, B, K, d]``."""
        return rows.unflatten(-2, (self.size.size(-1), self.places))

    def _edges(self) -> Tensor:
        assert self.adjacency is not None
        return self.adjacency

    @cached_property
    def _members(self) -> Tensor:
        """True where j belongs to the neighbourhood of i, ``[*lead, B, K, K]``; an unused place is its own member."""
        adjacency = self._edges()
        return (adjacency > 0) | torch.eye(self.places, dtype=torch.bool, device=adjacency.device)

    def hop(self, x: Tensor) -> Tensor:
        return dense_propagate(self.per_graph(x), self._edges()).flatten(-3, -2)

    def maximum(self, x: Tensor) -> Tensor:
        graphs, members = self.per_graph(x), self._members
        flat: Tensor = _DenseMaximum.apply(graphs.flatten(0, -3), members.flatten(0, -3))
        return flat.reshape(x.shape)

    def total(self, x: Tensor) -> Tensor:
        return (self._members.to(x.dtype) @ self.per_graph(x)).flatten(-3, -2)

    def count(self, dtype: torch.dtype) -> Tensor:
        return self._members.sum(-1, dtype=dtype).flatten(-2).unsqueeze(-1)

    def attention(
        self, centre: Tensor, member: Tensor, slope: float, dropout: HashedDropout | None
    ) -> Tensor:
        logits = self.per_graph(centre) + self.per_graph(member).mT
        logits = torch.nn.functional.leaky_relu(logits, slope)
        attention = logits.masked_fill(~self._members, -torch.inf).softmax(-1)
        if dropout is None:
            return attention
        B, K = attention.shape[-3:-1]
        graph, i, j = (torch.arange(n, device=centre.device) for n in (B, K, K))
        keep = keep_pairs(dropout, graph[:, None, None], i[:, None], j, axes=3)
        return attention * dropout.scaled(keep, attention.dtype)

    def weigh(self, attention: Tensor, x: Tensor) -> Tensor:
        return (attention @ self.per_graph(x)).flatten(-3, -2)

    def coarsen(
        self, x: Tensor, score: Tensor, attention: Tensor | None, ratio: float
    ) -> DenseNeighbourhoods:
        """As :meth:`RaggedNeighbourhoods.coarsen`."""
        used, adjacency = self.used, self._edges()
        values = score.detach().unflatten(-1, used.shape[-2:]).masked_fill(~used, -torch.inf)
        size, places = _kept(self.size, self.places, ratio, values.dtype)
        order = values.argsort(dim=-1, descending=True, stable=True)[..., :places]
        unused = torch.arange(places, device=order.device) >= size.unsqueeze(-1)
        graphs = self.per_graph(x)
        kept = graphs.gather(-2, order.unsqueeze(-1).expand(*order.shape, graphs.size(-1)))
        kept = kept.masked_fill(unused.unsqueeze(-1), 0).flatten(-3, -2)
        if attention is None:
            return DenseNeighbourhoods(kept, size, None, places)
        with torch.no_grad():
            rows = attention.gather(-2, order.unsqueeze(-1).expand(*order.shape, self.places))
            rows = rows.masked_fill(unused.unsqueeze(-1), 0)
            coarse = (rows @ adjacency + rows) @ rows.mT
            return DenseNeighbourhoods(kept, size, _without_loops(coarse), places)


@dataclass(frozen=True, eq=False)
class RaggedNeighbourhoods:
    """Neighbourhoods of the graphs of a batch.

    Rows are taken with ``index_select``, whose gradient has a fixed order of summation on a CPU. On a GPU, sums over
    members have no fixed order.

    Args:
        edges (EdgeTable): Edges of the batch.
        segments (Segments): Graph of each node.
        source (Tensor): Member of each entry, as a flattened row: those of the edge list, padding of it, and each row
            itself, ``[E + rows]``.
        target (Tensor): Centre of each entry; at padding one of the ``spare`` rows behind those of the batch, ``[E +
            rows]``.
        spare (int): Number of such rows.
    """

    edges: EdgeTable
    segments: Segments
    source: Tensor
    target: Tensor
    spare: int = 0

    @classmethod
    def of(cls, edges: EdgeTable, segments: Segments) -> RaggedNeighbourhoods:
        """The neighbourhoods of a batch.

        Where the host does not know the number of edges, as in a captured step, the list has as many entries as the
        batch can have.
        """
        if edges.pairs is None and edges.num_entries is None and edges.max_entries is not None:
            listed, spare = padded_entries(edges, edges.max_entries, _SPARE_ROWS), _SPARE_ROWS
        else:
            pairs = edge_list(edges)
            listed, spare = (pairs.source, pairs.target), 0
        own = torch.arange(segments.index.numel(), device=segments.index.device)
        source, target = (torch.cat([each, own]) for each in listed)
        return cls(edges, segments, source, target, spare)

    @property
    def _num_rows(self) -> int:
        return self.segments.index.numel()

    @cached_property
    def _is_padding(self) -> Tensor | None:
        """True at padding entries, ``[E + rows]``; ``None`` if there are none."""
        return self.target >= self._num_rows if self.spare else None

    @cached_property
    def _centre(self) -> Tensor:
        """Row of the batch to read for the centre of each entry; any row at padding, ``[E + rows]``."""
        return self.target if self._is_padding is None else self.target.where(~self._is_padding, self.source)

    def hop(self, x: Tensor) -> Tensor:
        return propagate(x, self.edges)

    def maximum(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        start = rows.new_full((self._num_rows + self.spare, rows.size(-1)), -torch.inf)
        index = self.target.unsqueeze(-1).expand(-1, rows.size(-1))
        highest = start.scatter_reduce(0, index, select_rows(rows, self.source), "amax")
        return highest[: self._num_rows].reshape(x.shape)

    def total(self, x: Tensor) -> Tensor:
        if self.edges.weight is None:
            return neighbour_sum(x, self.edges) + x
        return self._add(select_rows(x.flatten(0, -2), self.source)).reshape(x.shape)

    def count(self, dtype: torch.dtype) -> Tensor:
        return (neighbour_count(self.edges) + 1).to(dtype).unsqueeze(-1)

    def attention(
        self, centre: Tensor, member: Tensor, slope: float, dropout: HashedDropout | None
    ) -> Tensor:
        a, b = centre.reshape(-1), member.reshape(-1)
        logits = torch.nn.functional.leaky_relu(
            select_rows(a, self._centre) + select_rows(b, self.source), slope
        )
        # The largest logit is subtracted for the range of numbers only; it has no effect on the gradient.
        size = self._num_rows + self.spare
        start = a.detach().new_full((size,), -torch.inf)
        largest = start.scatter_reduce(0, self.target, logits.detach(), "amax")
        exponential = (logits - largest[self.target]).exp()
        attention = exponential / select_rows(sum_rows(exponential, self.target, size), self.target)
        if dropout is None:
            return attention
        index, local = (t.reshape(-1) for t in (self.segments.index, rank_of_row(self.segments)))
        replica = self._centre // self.segments.num_rows
        of_pairs = dropout.of_replicas(replica)
        keep = keep_pairs(of_pairs, index[self._centre], local[self._centre], local[self.source], axes=0)
        return attention * of_pairs.scaled(keep, attention.dtype)

    def weigh(self, attention: Tensor, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        return self._add(select_rows(rows, self.source) * attention.unsqueeze(-1)).reshape(x.shape)

    def _add(self, values: Tensor) -> Tensor:
        """Sum of the entries of each neighbourhood, ``[rows, …]``."""
        return sum_rows(values, self.target, self._num_rows + self.spare)[: self._num_rows]

    def coarsen(
        self, x: Tensor, score: Tensor, attention: Tensor | None, ratio: float
    ) -> DenseNeighbourhoods:
        r"""The graphs of the neighbourhoods with the highest scores.

        .. math:: A'_{ik} = \sum_{jl} \alpha_{ij} (A + I)_{jl} \alpha_{kl}, \quad i \ne k

        for the :math:`\lceil \mathrm{ratio} \cdot n \rceil` neighbourhoods i, k of a graph that are kept. Among equal
        scores the earlier one is kept. The edges have no gradient.

        Args:
            x (Tensor): Rows of all neighbourhoods, ``[*lead, N, d]``.
            score (Tensor): Their scores, ``[*lead, N]``.
            attention (Tensor, optional): Pair tensor α; ``None`` for a result without edges.
            ratio (float): Fraction of the neighbourhoods to keep.
        """
        segments = self.segments
        largest = int(segments.sizes.max()) if segments.max_size is None else segments.max_size
        largest = max(min(largest, segments.num_rows), 1)
        size, places = _kept(segments.sizes, largest, ratio, score.dtype)
        kept = sorted_places(segments, descending_order(segments, score), places, size)
        rows = kept.take(x).flatten(-3, -2)
        if attention is None:
            return DenseNeighbourhoods(rows, size, None, places)
        with torch.no_grad():
            return DenseNeighbourhoods(rows, size, self._coarse_edges(attention, kept, largest), places)

    def _coarse_edges(self, attention: Tensor, kept: Places, largest: int) -> Tensor:
        """A′ of the kept neighbourhoods, ``[*lead, B, K, K]``."""
        segments = self.segments
        *lead, V = segments.index.shape
        B, K = segments.num_graphs, kept.places
        # S [V, K]: attention of each kept neighbourhood to each node of its graph.
        place = kept.place.reshape(-1)[self._centre]
        if self._is_padding is not None:
            place = place.masked_fill(self._is_padding, -1)
        S = attention.new_zeros(len(self.edges.node.reshape(-1)) * K)
        S.index_add_(0, self.source * K + place.clamp_min(0), attention.masked_fill(place < 0, 0))
        S = S.reshape(*lead, V, K)
        T = neighbour_sum(S, self.edges) + S  # (A + I) S
        # Rows of each graph, as an index into S and T with one more row of zeros.
        start = torch.arange(math.prod(lead), device=S.device).reshape(*lead, 1) * V if lead else 0
        first, local = (segments.ptr[..., :-1] + start).reshape(-1, 1), torch.arange(largest, device=S.device)
        rows = (first + local).masked_fill(local >= segments.sizes.reshape(-1, 1), S.numel() // K)
        S, T = (torch.nn.functional.pad(t.reshape(-1, K), (0, 0, 0, 1)) for t in (S, T))
        block = max(_BLOCK_NUMBERS // (largest * K), 1)
        coarse = [S[index].mT @ T[index] for index in rows.split(block)]
        return _without_loops(torch.cat(coarse).reshape(*lead, B, K, K))


def _kept(size: Tensor, largest: int, ratio: float, dtype: torch.dtype) -> tuple[Tensor, int]:
    """Number of neighbourhoods to keep of each graph, rounded up in ``dtype`` as torch-geometric does, and the most."""
    most = (ratio * torch.tensor(float(largest), dtype=dtype)).ceil()
    return (ratio * size.to(dtype)).ceil().long(), int(most)


def _without_loops(adjacency: Tensor) -> Tensor:
    """The matrices with 0 on their diagonals, in place."""
    adjacency.diagonal(dim1=-2, dim2=-1).zero_()
    return adjacency


class _DenseMaximum(torch.autograd.Function):
    """Maximum over the members of each neighbourhood, in blocks of members.

    Args:
        x (Tensor): ``[L, K, d]``.
        members (Tensor): True where j belongs to the neighbourhood of i, ``[L, K, K]``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, members: Tensor) -> Tensor:
        K = x.size(-2)
        block = max(_BLOCK_NUMBERS // max(x.numel(), 1), 1)
        best = torch.full_like(x, -torch.inf)
        argument = torch.zeros_like(x, dtype=torch.int64)
        for first in range(0, K, block):
            allowed = members[..., first : first + block].unsqueeze(-1)  # [L, K, block, 1]
            candidates = x[:, None, first : first + block].where(allowed, -torch.inf)
            value, index = candidates.max(-2)
            larger = value > best
            best = torch.where(larger, value, best)
            argument = torch.where(larger, index + first, argument)
        ctx.save_for_backward(argument)
        return best

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (argument,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter_add(-2, argument, grad), None
