r"""Which nodes of a graph meet in a sample of its pairs: a matching of all nodes, K times over.

The nodes of a graph are shuffled by a hash. Then the node at place p meets the one at place
:math:`c_k - p \bmod n`, where :math:`c_k = u + \lfloor k n / K \rfloor \bmod n` and u is drawn from all n numbers.
Two nodes at the places p and q meet where p + q is one of the :math:`c_k`: with probability K / n, whatever the
shuffle, and surely with K = n. Who is met meets back. Whether two given nodes meet is arithmetic on their places.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.ops.activation.hashed_dropout import hash_positions
from graphcaps.types import Segments

__all__ = ["SampledPairs", "sample_pairs"]


@dataclass(frozen=True, eq=False)
class SampledPairs:
    """K samples of every node; a graph of fewer than K nodes has as many as it has nodes.

    Everything is flat over replicas: slot s of replica r is F-wide row ``r V + s``.

    Args:
        order (Tensor): Slot at each place, ``[F · V]``; places of a graph are its rows.
        place (Tensor): Place of each slot, counted from its graph's first, ``[F · V]``.
        first (Tensor): First slot of each slot's graph, ``[F · V]``.
        size (Tensor): Nodes of each slot's graph, at least 1, ``[F · V]``.
        start (Tensor): u of each slot's graph, ``[F · V]``.
        pairs (int): K.
    """

    order: Tensor
    place: Tensor
    first: Tensor
    size: Tensor
    start: Tensor
    pairs: int

    def count(self, rows: slice) -> Tensor:
        """SampledPairs of each slot: K, or n where that is less."""
        return self.size[rows].clamp_max(self.pairs)

    def partner(self, rows: slice, meeting: int) -> Tensor:
        """Whom these slots meet; in a meeting that a small graph does not have, one of the others again."""
        n = self.size[rows]
        place = (self.start[rows] + meeting * n // self.count(rows) - self.place[rows]) % n
        return self.order.index_select(0, place.add_(self.first[rows]))

    def sample_of(self, a: Tensor, b: Tensor) -> Tensor:
        """Number of the meeting of two slots of a graph, K where they do not meet."""
        n = self.size.index_select(0, a)
        count = n.clamp_max(self.pairs)
        t = self.place.index_select(0, a) + self.place.index_select(0, b) - self.start.index_select(0, a)
        t %= n
        # The one k with ⌊k n / K⌋ = t, if any, is the first with k n / K ≥ t.
        k = (t * count + n - 1) // n
        met = (k < count) & (k * n // count == t)
        return k.masked_fill(~met, self.pairs)


def sample_pairs(keys: Tensor, segments: Segments, pairs: int) -> SampledPairs:
    """SampledPairs under ``keys [*lead, 2]`` (:func:`graphcaps.ops.activation.hashed_dropout.next_step_keys`), without
    asking the host.

    A replica has the same ones alone as among others.
    """
    index, B = segments.index, segments.num_graphs
    *lead, V = index.shape
    shift = torch.arange(torch.Size(lead).numel(), device=index.device).unsqueeze(-1) * V
    shuffled = (index << 31) + hash_positions(keys, V)  # graph by graph
    order = shuffled.argsort(dim=-1, stable=True)
    place = torch.empty_like(order).scatter_(-1, order, torch.arange(V, device=index.device).expand_as(order))
    own = index.clamp_max(B - 1)
    first = segments.ptr[..., :-1].gather(-1, own)
    sizes = segments.sizes.clamp_min(1)
    # Two hashes make 62 bits, so that a remainder is as good as uniform.
    high, low = hash_positions(keys.flip(-1), 2 * B).long().unflatten(-1, (B, 2)).unbind(-1)
    start = ((high << 31) + low) % sizes

    def flat(numbers: Tensor) -> Tensor:
        return numbers.reshape(-1)

    return SampledPairs(
        flat(order.reshape(-1, V) + shift),
        flat(place - first),
        flat(first.reshape(-1, V) + shift),
        flat(sizes.gather(-1, own)),
        flat(start.gather(-1, own)),
        pairs,
    )
