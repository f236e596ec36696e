"""Adam's update of one stacked parameter, in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["update_"]

_BLOCK = 1024


@triton.jit
def _update_kernel(  # type: ignore[no-untyped-def]
    p, g, m, v, size, root, active, n, beta1, beta2, epsilon, decay, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
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
    rate = tl.load(size + f).to(tl.float32)
    scale = tl.load(root + f).to(tl.float32)
    change = first / (tl.sqrt(second) * scale + epsilon) * rate
    tl.store(m + place, first, mask=mask)
    tl.store(v + place, second, mask=mask)
    tl.store(p + place, weight - change, mask=mask)


def update_(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    size: Tensor,
    root: Tensor,
    active: Tensor | None,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
) -> None:
    """Updates weights ``p [F, …]`` and moments ``m``, ``v`` in place.

    Args:
        size (Tensor): Rate over the first moment's correction, ``[F]``.
        root (Tensor): One over the root of the second moment's correction, ``[F]``.
        active (Tensor, optional): True at replicas that move, ``[F]``.
    """
    F = p.size(0)
    n = p.numel() // F
    grid = (triton.cdiv(n, _BLOCK), F)
    _update_kernel[grid](
        p, g.contiguous(), m, v, size, root, size if active is None else active, n,
        betas[0], betas[1], epsilon, weight_decay, MASKED=active is not None, BLOCK=_BLOCK,
    )  # fmt: skip
