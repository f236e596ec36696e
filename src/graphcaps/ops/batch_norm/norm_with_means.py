"""Batch normalisation of the nodes of a batch, and the mean of every graph, in one operation."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.batch_norm.batch_norm import Running, batch_norm
from graphcaps.ops.ragged.reductions import segment_mean
from graphcaps.types import Segments

__all__ = ["NormWithMeans", "norm_with_means"]


class NormWithMeans(NamedTuple):
    """Normalised rows and their means.

    Args:
        rows (Tensor): Normalised rows, ``[*lead, V, C]``, zero at padding.
        means (Tensor, optional): Their mean over each graph, ``[*lead, B, C]``.
        inputs (Tensor): The rows before normalisation. Other readers of them should read this tensor: their gradient
            then joins that of the normalisation without a further pass over the rows.
    """

    rows: Tensor
    means: Tensor | None
    inputs: Tensor


@full_precision
def norm_with_means(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    segments: Segments,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
    residual: bool = True,
    divisor: int | None = None,
) -> NormWithMeans:
    """Normalises rows, and takes the mean of every graph, as a residual connection needs it.

    Args:
        x, weight, bias, running, training, momentum, epsilon: As in
            :func:`graphcaps.ops.batch_norm.batch_norm.batch_norm`; rows are the nodes of the batch.
        segments (Segments): Which row belongs to which graph.
        residual (bool): Whether the means are computed. (default: True)
        divisor (int, optional): As in :func:`graphcaps.ops.ragged.reductions.segment_mean`.
    """
    form = select("norm_with_means", _norm_with_means, x, weight, segments.index, training=training)
    results = form(
        x, weight, bias, running, segments,
        training=training, momentum=momentum, epsilon=epsilon, residual=residual, divisor=divisor,
    )  # fmt: skip
    return NormWithMeans(*results)


def _norm_with_means(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    segments: Segments,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
    residual: bool,
    divisor: int | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    rows = batch_norm(
        x, segments.row_mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon
    )
    return rows, segment_mean(rows, segments, divisor) if residual else None, x
