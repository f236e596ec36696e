"""Adam's update of up to 16 stacked parameters in one launch: one program per block of a parameter and replica."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.adam.adam import AdamMemo

__all__ = ["adam_update_"]

PARAMETERS = 16
"""Largest number of parameters of a launch."""
_BLOCK = 1024


@triton.jit
def _select_pointer(  # type: ignore[no-untyped-def]
    k, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15
):
    """Pointer number k. Pointers cannot be indexed, but their addresses can be selected."""
    address = tl.where(k == 1, a1.to(tl.int64), a0.to(tl.int64))
    address = tl.where(k == 2, a2.to(tl.int64), address)
    address = tl.where(k == 3, a3.to(tl.int64), address)
    address = tl.where(k == 4, a4.to(tl.int64), address)
    address = tl.where(k == 5, a5.to(tl.int64), address)
    address = tl.where(k == 6, a6.to(tl.int64), address)
    address = tl.where(k == 7, a7.to(tl.int64), address)
    address = tl.where(k == 8, a8.to(tl.int64), address)
    address = tl.where(k == 9, a9.to(tl.int64), address)
    address = tl.where(k == 10, a10.to(tl.int64), address)
    address = tl.where(k == 11, a11.to(tl.int64), address)
    address = tl.where(k == 12, a12.to(tl.int64), address)
    address = tl.where(k == 13, a13.to(tl.int64), address)
    address = tl.where(k == 14, a14.to(tl.int64), address)
    address = tl.where(k == 15, a15.to(tl.int64), address)
    return address.to(tl.pointer_type(tl.float32))


@triton.jit
def _update_kernel(  # type: ignore[no-untyped-def]
    blocks, steps, rate, active,
    p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15,
    g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15,
    m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15,
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15,
    beta1, beta2, log1, log2, epsilon, decay, MASKED: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    f = tl.program_id(1)
    k = tl.load(blocks + 3 * tl.program_id(0))
    n = tl.load(blocks + 3 * tl.program_id(0) + 2)
    i = tl.load(blocks + 3 * tl.program_id(0) + 1) + tl.arange(0, BLOCK)
    p = _select_pointer(k, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15)
    g = _select_pointer(k, g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15)
    m = _select_pointer(k, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
    v = _select_pointer(k, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15)
    is_active = True
    if MASKED:
        is_active = tl.load(active + f) != 0
    mask = (i < n) & is_active
    offsets = f.to(tl.int64) * n + i
    if EACH:  # pointers to one number per replica
        decay = tl.load(decay + f).to(tl.float32)
        rate += f
    weight = tl.load(p + offsets, mask=mask, other=0.0)
    gradient = tl.load(g + offsets, mask=mask, other=0.0) + decay * weight
    first = tl.load(m + offsets, mask=mask, other=0.0)
    second = tl.load(v + offsets, mask=mask, other=0.0)
    first += (gradient - first) * (1 - beta1)
    second = second * beta2 + gradient * gradient * (1 - beta2)
    # 1 − βᵗ in float64: for β near 1 and small t, float32 would lose most digits.
    count = tl.load(steps + f)
    size = (tl.load(rate) / (1.0 - tl.exp(count * log1))).to(tl.float32)
    scale = (1.0 / tl.sqrt(1.0 - tl.exp(count * log2))).to(tl.float32)
    change = first / (tl.sqrt(second) * scale + epsilon) * size
    tl.store(m + offsets, first, mask=mask)
    tl.store(v + offsets, second, mask=mask)
    tl.store(p + offsets, weight - change, mask=mask)


def adam_update_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    steps: Tensor,
    rate: Tensor,
    active: Tensor | None,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float | Tensor,
    memo: AdamMemo,
) -> None:
    """As :func:`graphcaps.ops.adam.adam.adam_update_`, one launch for up to ``PARAMETERS`` parameters."""
    for start in range(0, len(parameters), PARAMETERS):
        chunk = slice(start, start + PARAMETERS)
        p, g, m, v = parameters[chunk], grads[chunk], first[chunk], second[chunk]
        sizes = tuple(tensor.numel() // tensor.size(0) for tensor in p)
        if sizes not in memo:
            memo[sizes] = _blocks(sizes, p[0].device)
        blocks = memo[sizes]
        pointers: list[Tensor] = []
        for tensors in (p, [grad.contiguous() for grad in g], m, v):
            pointers += [*tensors, *[tensors[0]] * (PARAMETERS - len(tensors))]
        _update_kernel[(len(blocks), p[0].size(0))](
            blocks, steps, rate, steps if active is None else active, *pointers,
            betas[0], betas[1], math.log(betas[0]), math.log(betas[1]), epsilon, weight_decay,
            MASKED=active is not None, EACH=isinstance(weight_decay, Tensor), BLOCK=_BLOCK,
        )  # fmt: skip


def _blocks(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """What each program updates: parameter, first number, and numbers of the parameter per replica, ``[blocks, 3]``."""
    rows = [(k, start, n) for k, n in enumerate(sizes) for start in range(0, n, _BLOCK)]
    return torch.tensor(rows, dtype=torch.int32, device=device)
