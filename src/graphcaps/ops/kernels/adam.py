"""Adam's update of one stacked parameter, in one pass."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["update_"]

_BLOCK = 1024


@triton.jit(do_not_specialize=["n"])
def _update_kernel(  # type: ignore[no-untyped-def]
    p, g, m, v, steps, rate, active, n, beta1, beta2, log1, log2, epsilon, decay,
    MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(1)
    moves = True
    if MASKED:
        moves = tl.load(active + f) != 0
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < n) & moves
    place = f.to(tl.int64) * n + i
    weight = tl.load(p + place, mask=mask, other=0.0)
    slope = tl.load(g + place, mask=mask, other=0.0) + decay * weight
    first = tl.load(m + place, mask=mask, other=0.0)
    second = tl.load(v + place, mask=mask, other=0.0)
    first += (slope - first) * (1 - beta1)
    second = second * beta2 + slope * slope * (1 - beta2)
    # 1 − βᵗ in float64: for β near 1 and small t float32 would keep few of its digits.
    count = tl.load(steps + f)
    size = (tl.load(rate) / (1.0 - tl.exp(count * log1))).to(tl.float32)
    scale = (1.0 / tl.sqrt(1.0 - tl.exp(count * log2))).to(tl.float32)
    change = first / (tl.sqrt(second) * scale + epsilon) * size
    tl.store(m + place, first, mask=mask)
    tl.store(v + place, second, mask=mask)
    tl.store(p + place, weight - change, mask=mask)


def update_(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    steps: Tensor,
    rate: Tensor,
    active: Tensor | None,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
) -> None:
    """Updates weights ``p [F, …]`` and moments ``m``, ``v`` in place.

    Args:
        steps (Tensor): Updates of each replica, this one counted, float64, ``[F]``.
        rate (Tensor): Learning rate, float64, ``[]``.
        active (Tensor, optional): True at replicas that move, ``[F]``.
    """
    F = p.size(0)
    n = p.numel() // F
    grid = (triton.cdiv(n, _BLOCK), F)
    _update_kernel[grid](
        p, g.contiguous(), m, v, steps, rate, steps if active is None else active, n,
        betas[0], betas[1], math.log(betas[0]), math.log(betas[1]), epsilon, weight_decay,
        MASKED=active is not None, BLOCK=_BLOCK,
    )  # fmt: skip
