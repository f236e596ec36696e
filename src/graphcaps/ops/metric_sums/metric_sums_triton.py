"""Loss terms and correct predictions of a step, added to those of the epoch in one launch; one program per replica."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["accumulate_metrics_"]

_BLOCK = 128


@triton.jit(do_not_specialize=["B", "C", "T"])
def _accumulate_kernel(  # type: ignore[no-untyped-def]
    values, scores, y, sums, finite_steps, correct, B, C, T,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, TERMS: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(0)
    F = tl.num_programs(0)
    o = tl.arange(0, WIDTH)
    graphs = tl.zeros((BLOCK,), tl.int32)
    num_correct = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, B, BLOCK):
        b = first + tl.arange(0, BLOCK)
        label = tl.load(y + f * B + b, mask=b < B, other=-1)
        offsets = (f * B + b)[:, None] * C + o[None, :]
        inside = (b < B)[:, None] & (o < C)[None, :]
        score = tl.load(scores + offsets, mask=inside, other=float("-inf"))
        best = tl.argmax(score, 1, tie_break_left=True)
        graphs += (label >= 0).to(tl.int32)
        num_correct += ((label >= 0) & (best == label)).to(tl.int32)
    tl.store(correct + f, tl.load(correct + f) + tl.sum(num_correct, 0).to(tl.float64))
    t = tl.arange(0, TERMS)
    value = tl.load(values + t * F + f, mask=t < T, other=0.0)
    before = tl.load(sums + t * F + f, mask=t < T, other=0.0)
    tl.store(sums + t * F + f, before + value.to(tl.float64) * tl.sum(graphs, 0), mask=t < T)
    # False for NaN and for both infinities.
    finite = tl.abs(value) < float("inf")
    finite_before = tl.load(finite_steps + t * F + f, mask=t < T, other=0.0)
    tl.store(finite_steps + t * F + f, finite_before + finite.to(tl.float64), mask=t < T)


def accumulate_metrics_(
    values: Tensor, scores: Tensor, y: Tensor, sums: Tensor, finite_steps: Tensor, correct: Tensor
) -> None:
    """As :func:`graphcaps.ops.metric_sums.metric_sums.accumulate_metrics_`, in one launch."""
    F, B, C = scores.shape
    T = values.size(0)
    _accumulate_kernel[(F,)](
        values.contiguous(), scores.contiguous(), y.contiguous(), sums, finite_steps, correct, B, C, T,
        BLOCK=_BLOCK, WIDTH=triton.next_power_of_2(C), TERMS=triton.next_power_of_2(T),
    )  # fmt: skip
