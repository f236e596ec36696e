"""Batch normalisation, a hop and the mean capsule of every graph, in few passes over the rows.

Forward: one pass for the statistics and the means, and the hop, which normalises the rows that it gathers. Backward: a
hop of the gradient, to which the gradient of the means is added and which also computes the sums for γ and β; and one
pass for the gradient of the rows. The rows are returned for other readers, so that their gradient is added in that
same pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.batch_norm.batch_norm_triton import add_tables, mask_bytes, rows_gradient
from graphcaps.ops.batch_norm.graph_moments_triton import graph_statistics
from graphcaps.ops.propagation.neighbour_sum_triton import NormTerms, adjacency_product, hop_scale
from graphcaps.ops.ragged.ragged_triton import MeanGradient
from graphcaps.types import EdgeTable, Segments

__all__ = ["normalised_hop"]


def normalised_hop(
    u: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    edges: EdgeTable,
    segments: Segments,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
    residual: bool,
    divisor: int | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Â û, the mean of û over each graph, and u itself, where û is u normalised by the statistics of these rows.

    Args:
        u (Tensor): ``[*lead, V, d]``, float32; padding rows may hold anything.
        weight, bias (Tensor): γ and β, ``[*lead, d]``.
        running (tuple): Running mean and variance, ``[*lead, d]``, updated in place.
        edges (EdgeTable): A; weights, if there are any, get no gradient.
        segments (Segments): Which row belongs to which graph.
        momentum, epsilon (float): As in :class:`graphcaps.nn.RaggedBatchNorm`.
        training (bool): Always true: statistics are those of these rows.
        residual (bool): Whether the mean is computed.
        divisor (int, optional): Of a graph's sum; by default its number of rows.

    Returns:
        tuple: ``[*lead, V, d]``, zero at padding; ``[*lead, B, d]`` or ``None``; and ``u``, which other
        readers of the argument should read instead.
    """
    divide_by = float(divisor or 0) if residual else None
    options = running, edges, segments, momentum, epsilon, divide_by, dot_precision()
    outputs: tuple[Tensor, Tensor | None, Tensor] = _NormalisedHop.apply(u, weight, bias, *options)
    return outputs


class _NormalisedHop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        bias: Tensor,
        running: tuple[Tensor, Tensor],
        edges: EdgeTable,
        segments: Segments,
        momentum: float,
        epsilon: float,
        divisor: float | None,
        precision: str,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        ctx.set_materialize_grads(False)
        rows, weight, bias = u.contiguous(), weight.contiguous(), bias.contiguous()
        (mean, var, count), mean_capsules, _ = graph_statistics(
            rows,
            segments.ptr.contiguous(),
            weight,
            bias,
            running,
            momentum=momentum,
            epsilon=epsilon,
            divisor=divisor,
            max_size=segments.max_size,
        )
        terms, scale = NormTerms(mean, var, weight, bias, epsilon), hop_scale(edges)
        h, _ = adjacency_product(rows, edges, scale, True, precision, terms)
        ctx.save_for_backward(rows, weight, bias, mean, var, count, scale)
        ctx.options = edges, segments, epsilon, divisor or 0.0, precision
        return h, mean_capsules, u.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor | None, dmean: Tensor | None, extra_grad: Tensor | None) -> Any:
        u, weight, bias, mean, var, count, scale = ctx.saved_tensors
        edges, segments, epsilon, divisor, precision = ctx.options
        dh = torch.zeros_like(u) if dh is None else dh
        terms = NormTerms(mean, var, weight, bias, epsilon, u, MeanGradient.of(dmean, segments, divisor))
        g, tables = adjacency_product(dh, edges, scale, True, precision, terms)
        assert tables is not None
        dbias, dweight = (sums.view_as(weight) for sums in add_tables(*tables))
        du = None
        if ctx.needs_input_grad[0]:
            mask, statistics = mask_bytes(segments.row_mask), (mean, var, count)
            du = rows_gradient(u, g, mask, weight, dweight, dbias, statistics, epsilon, extra_grad=extra_grad)
        return du, dweight, dbias, *[None] * 7
