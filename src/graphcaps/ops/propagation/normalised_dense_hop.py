"""Batch normalisation, the hop among the capsules of a level, and their mean, in one operation."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.batch_norm.batch_norm import Running, batch_norm
from graphcaps.ops.propagation.propagation import dense_hop

__all__ = ["DenseHop", "normalised_dense_hop"]


class DenseHop(NamedTuple):
    """Capsules of a level after normalisation and one hop.

    Args:
        h (Tensor): Âû, ``[*lead, B, n, d]``, where û are the normalised capsules.
        mean (Tensor): Mean of û over each graph, ``[*lead, B, 1, d]``.
        sums (Tensor, optional): Sum of h over each graph, ``[*lead, B, d]``, without gradient; for the first iteration
            of routing. ``None`` where it would need a pass of its own.
    """

    h: Tensor
    mean: Tensor
    sums: Tensor | None = None


@full_precision
def normalised_dense_hop(
    u: Tensor,
    adjacency: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> DenseHop:
    """Normalises the capsules of a level, propagates them once, and takes their mean in every graph.

    Args:
        u (Tensor): Capsules, ``[*lead, B, n, d]``.
        adjacency (Tensor): A, ``[*lead, B, n, n]``.
        mask (Tensor, optional): True at graphs with nodes, ``[*lead, B]``; the others do not count. (default: all)
        weight, bias, running, training, momentum, epsilon: As in
            :func:`graphcaps.ops.batch_norm.batch_norm.batch_norm`.
    """
    form = select("normalised_dense_hop", _normalised_dense_hop, u, adjacency, weight, training=training)
    return form(
        u, adjacency, mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon
    )


def _normalised_dense_hop(
    u: Tensor,
    adjacency: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> DenseHop:
    rows = batch_norm(
        u.flatten(-3, -2), mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon
    )
    return DenseHop(*dense_hop(rows.unflatten(-2, u.shape[-3:-1]), adjacency))
