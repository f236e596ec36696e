r"""Random pairs of nodes of each graph: K matchings of all its nodes.

The nodes of a graph are shuffled by a hash. In matching k, the node at position p is paired with the one at position
:math:`c_k - p \bmod n`, where :math:`c_k = u + \lfloor k n / K \rfloor \bmod n` and u is uniform over the n positions.
Nodes at positions p and q are paired if p + q modulo n is one of the :math:`c_k`: with probability K / n for every
shuffle, and always with K = n. Pairs are symmetric. Whether two nodes are paired follows from their positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.ops.activation.hashed_dropout import hash_rows
from graphcaps.types import Segments

__all__ = ["SampledPairs", "sample_pairs"]


@dataclass(frozen=True, eq=False)
class SampledPairs:
    """K sampled partners of every node; in a graph of n < K nodes there are n.

    All tensors are flat over F replicas: row s of replica r is row ``r V + s``.

    Args:
        order (Tensor): Row at each position, ``[F · V]``; the positions of a graph are its rows.
        position (Tensor): Position of each row after the shuffle, from 0 in each graph, ``[F · V]``.
        first (Tensor): First row of each row's graph, ``[F · V]``.
        size (Tensor): Nodes of each row's graph, at least 1, ``[F · V]``.
        start (Tensor): u of each row's graph, ``[F · V]``.
        pairs (int): K.
    """

    order: Tensor
    position: Tensor
    first: Tensor
    size: Tensor
    start: Tensor
    pairs: int

    def count(self, rows: slice) -> Tensor:
        """Number of partners of each row: the smaller of K and n."""
        return self.size[rows].clamp_max(self.pairs)

    def partner(self, rows: slice, k: int) -> Tensor:
        """Partner of each row in matching ``k``; a graph without that matching repeats another partner."""
        n = self.size[rows]
        position = (self.start[rows] + k * n // self.count(rows) - self.position[rows]) % n
        return self.order.index_select(0, position.add_(self.first[rows]))

    def matching_of(self, a: Tensor, b: Tensor) -> Tensor:
        """The matching in which two rows of a graph are paired, K if there is none."""
        n = self.size.index_select(0, a)
        count = n.clamp_max(self.pairs)
        t = (
            self.position.index_select(0, a)
            + self.position.index_select(0, b)
            - self.start.index_select(0, a)
        )
        t %= n
        # The one k with ⌊k n / K⌋ = t, if any, is the first with k n / K ≥ t.
        k = (t * count + n - 1) // n
        paired = (k < count) & (k * n // count == t)
        return k.masked_fill(~paired, self.pairs)


def sample_pairs(keys: Tensor, segments: Segments, pairs: int) -> SampledPairs:
    """Samples K partners of every node, without host–device synchronisation.

    The sample of a replica does not depend on the other replicas.

    Args:
        keys (Tensor): ``[*lead, 2]``, from :func:`graphcaps.ops.activation.hashed_dropout.next_step_keys`.
        segments (Segments): Which row belongs to which graph.
        pairs (int): K.
    """
    index, B = segments.index, segments.num_graphs
    *lead, V = index.shape
    shift = torch.arange(torch.Size(lead).numel(), device=index.device).unsqueeze(-1) * V
    shuffled = (index << 31) + hash_rows(keys, V, 1)  # graph by graph
    order = shuffled.argsort(dim=-1, stable=True)
    position = torch.empty_like(order).scatter_(
        -1, order, torch.arange(V, device=index.device).expand_as(order)
    )
    graph_of_row = index.clamp_max(B - 1)
    first = segments.ptr[..., :-1].gather(-1, graph_of_row)
    sizes = segments.sizes.clamp_min(1)
    # Two hashes give 62 bits, so that the remainder is uniform for all practical purposes.
    high, low = hash_rows(keys.flip(-1), B, 2).long().unflatten(-1, (B, 2)).unbind(-1)
    start = ((high << 31) + low) % sizes

    def flat(numbers: Tensor) -> Tensor:
        return numbers.reshape(-1)

    return SampledPairs(
        flat(order.reshape(-1, V) + shift),
        flat(position - first),
        flat(first.reshape(-1, V) + shift),
        flat(sizes.gather(-1, graph_of_row)),
        flat(start.gather(-1, graph_of_row)),
        pairs,
    )
