"""A projection of standardised features that reads them where the store has them; no row is copied.

Forward, a program owns a block of slots and adds up rows of the weight, one for each entry of a slot: features
are mostly zeros. For the gradient of the weight rows of x and of dz meet in tiles on the tensor cores.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.kernels.precision import dot_precision
from graphcaps.ops.kernels.project_passes import (
    fold_kernel,
    join_kernel,
    rows_kernel,
    statistics_kernel,
    weights_kernel,
)
from graphcaps.types import FeatureRows

__all__ = ["project", "statistics"]

_ROWS, _SIDE = 16, 64
"""Slots of a tile of the gradient, and its columns of x and of dz: what two warps hold without spilling."""

_PROGRAMS = 2048
"""Programs that keep a large GPU busy; the slots of a replica are cut into as many parts as that takes."""


def statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """As :func:`graphcaps.ops.project.statistics`."""
    table = rows.table
    *lead, B = rows.graphs.shape
    C = table.x.size(-1)
    mean, rstd = (torch.empty_like(running[0]) for _ in range(2))
    statistics_kernel[(torch.Size(lead).numel(), triton.cdiv(C, 32))](
        table.sums, table.squares, table.node_ptr, rows.graphs.contiguous(), table.shift, *running, mean, rstd,
        B, C, momentum, epsilon, TRAINING=training, GRAPHS=32, WIDTH=32, num_warps=4,
    )  # fmt: skip
    return mean, rstd


def project(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """As :func:`graphcaps.ops.project.project`, in float32."""
    found: Tensor = _Project.apply(rows, weight, scale, mean)
    return found


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
        weight, scale, mean = weight.contiguous(), scale.contiguous(), mean.contiguous()
        ctx.rows, ctx.precision = rows, dot_precision()
        ctx.save_for_backward(weight, scale, mean)
        table, node = rows.table, rows.node.contiguous()
        V, (C, D) = node.size(-1), weight.shape[-2:]
        replicas = weight.numel() // (C * D)
        unit, width = _unit(D), _width(D, 128)
        folded, offset = torch.empty_like(weight), weight.new_empty(*weight.shape[:-2], D)
        narrow = min(width, 32)
        fold_kernel[(replicas, triton.cdiv(D, narrow))](
            weight, scale, mean, folded, offset, C, D // unit,
            UNIT=unit, CHANNELS=32, WIDTH=narrow, num_warps=4,
        )  # fmt: skip
        out = weight.new_empty(*node.shape, D)
        tall = min(64, (2048 if unit > 1 else 1024) // width)
        blocks = triton.cdiv(V, tall)
        # Slots of one replica one after another: they read the same rows of the weight.
        rows_kernel[(replicas * blocks, triton.cdiv(D, width))](
            node, table.ptr, table.columns, table.values, folded, offset, out, V, C, D // unit, blocks,
            UNIT=unit, ROWS=tall, WIDTH=width, num_warps=4,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, scale, mean = ctx.saved_tensors
        table, node, grad = ctx.rows.table, ctx.rows.node.contiguous(), grad.contiguous()
        V, (C, D) = node.size(-1), weight.shape[-2:]
        replicas = weight.numel() // (C * D)
        # Numbers that are loaded one by one take more registers.
        height, width = _width(C, _SIDE), _width(D, _SIDE if _unit(D) > 1 else _SIDE // 2)
        across = triton.cdiv(C, height), triton.cdiv(D, width)
        tiles, parts = _cut(V, replicas * across[0] * across[1])
        found = weight.new_empty(replicas * parts, C, D)
        # Two warps: with four, tiles of 64 rows would take another path through the hardware.
        weights_kernel[(*across, replicas * parts)](
            table.x, node, table.shift, mean, grad, found, V, C // _unit(C), D // _unit(D), parts, tiles,
            C_UNIT=_unit(C), D_UNIT=_unit(D), PRECISION=ctx.precision,
            ROWS=_ROWS, CHANNELS=height, WIDTH=width, num_warps=2, num_stages=3,
        )  # fmt: skip
        dweight, dscale = torch.empty_like(weight), torch.empty_like(scale)
        join_kernel[(replicas, triton.cdiv(C, 16))](
            found, weight, scale, dweight, dscale, C, D // _unit(D), parts,
            UNIT=_unit(D), CHANNELS=16, WIDTH=_width(D, 128), num_warps=4,
        )  # fmt: skip
        return None, dweight, dscale, None


def _unit(width: int) -> int:
    """Numbers that a load may take at once."""
    return math.gcd(width, 4)


def _width(size: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(size)))


def _cut(V: int, programs: int) -> tuple[int, int]:
    """Tiles of a part and parts of V slots, where each part takes this many programs."""
    blocks = triton.cdiv(V, _ROWS)
    parts = min(blocks, max(1, _PROGRAMS // programs))
    tiles = triton.cdiv(blocks, parts)
    return tiles, triton.cdiv(blocks, tiles)
