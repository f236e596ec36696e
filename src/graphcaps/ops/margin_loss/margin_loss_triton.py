"""The margin loss and its gradient in one pass over the scores; one program per replica."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["margin_loss"]

_BLOCK = 128


@triton.jit(do_not_specialize=["B", "C"])
def _margin_kernel(  # type: ignore[no-untyped-def]
    scores, y, loss, grad_scores, B, C, upper, lower, absent,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(0)
    if EACH:  # pointers to one number per replica
        upper = tl.load(upper + f)
        lower = tl.load(lower + f)
    o = tl.arange(0, WIDTH)
    real = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, B, BLOCK):
        b = first + tl.arange(0, BLOCK)
        real += (tl.load(y + f * B + b, mask=b < B, other=-1) >= 0).to(tl.int32)
    graph_weight = 1.0 / tl.maximum(tl.sum(real, 0), 1).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, B, BLOCK):
        b = first + tl.arange(0, BLOCK)
        label = tl.load(y + f * B + b, mask=b < B, other=-1)
        valid = (label >= 0)[:, None] & (o < C)[None, :]
        inside = (b < B)[:, None] & (o < C)[None, :]
        offsets = (f * B + b)[:, None] * C + o[None, :]
        score = tl.load(scores + offsets, mask=valid, other=0.0)
        true = label[:, None] == o[None, :]
        # Comparisons, not maximum, so that NaN stays NaN.
        below, above = upper - score, score - lower
        below, above = tl.where(below < 0, 0.0, below), tl.where(above < 0, 0.0, above)
        value = tl.where(true, below * below, absent * above * above)
        total += tl.sum(tl.where(valid, value, 0.0), 1)
        gradient = tl.where(true, -2.0 * below, 2.0 * absent * above) * graph_weight
        tl.store(grad_scores + offsets, tl.where(valid, gradient, 0.0), mask=inside)
    tl.store(loss + f, tl.sum(total, 0) * graph_weight)


def margin_loss(
    class_scores: Tensor,
    y: Tensor,
    upper: float | Tensor,
    lower: float | Tensor,
    absent_weight: float,
    class_weight: Tensor | None = None,
    graph_weight: Tensor | None = None,
) -> Tensor:
    """As :func:`graphcaps.ops.margin_loss.margin_loss.margin_loss`, without weights of classes and graphs."""
    loss: Tensor = _MarginLoss.apply(class_scores, y, upper, lower, absent_weight)
    return loss


class _MarginLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, y: Tensor, upper: float | Tensor, lower: float | Tensor, absent: float
    ) -> Tensor:
        *lead, B, C = scores.shape
        each = isinstance(upper, Tensor) and isinstance(lower, Tensor)
        if isinstance(upper, Tensor) and isinstance(lower, Tensor):
            upper, lower = upper.float().contiguous(), lower.float().contiguous()
        scores, y = scores.contiguous(), y.contiguous()
        loss, grad_scores = scores.new_empty(lead), torch.empty_like(scores)
        _margin_kernel[(torch.Size(lead).numel(),)](
            scores, y, loss, grad_scores, B, C, upper, lower, absent,
            BLOCK=_BLOCK, WIDTH=triton.next_power_of_2(C), EACH=each,
        )  # fmt: skip
        ctx.save_for_backward(grad_scores)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (grad_scores,) = ctx.saved_tensors
        return grad_scores * grad[..., None, None], None, None, None, None
