"""Batch normalisation, activation and residual connection in the passes of the normalisation alone.

Statistics are those of :mod:`graphcaps.ops.batch_norm.batch_norm_triton`. The pass that normalises also activates and
adds the residual. The two passes of the gradient compute the activation again from the rows, so that nothing but the
rows is kept. A program of a gated activation reads a column and its gate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import fast_reciprocal
from graphcaps.ops.batch_norm.batch_norm_triton import Grid, add_tables, real_rows, rows_of_entry

__all__ = ["NormedRows", "activate_rows", "activated_gradients"]


class NormedRows(NamedTuple):
    """Rows, and their normalisation.

    Args:
        epsilon (float): Added to the variance.
        x (Tensor): Rows, ``[*lead, V, C]``.
        mask (Tensor, optional): From :func:`graphcaps.ops.batch_norm.batch_norm_triton.mask_bytes`.
        mean, var (Tensor): ``[*lead, C]``.
        num_rows (Tensor, optional): Number of real rows, ``[replicas]``, if these are statistics of the rows.
        weight, bias (Tensor): γ and β, ``[*lead, C]``, contiguous.
    """

    epsilon: float
    x: Tensor
    mask: Tensor | None
    mean: Tensor
    var: Tensor
    num_rows: Tensor | None
    weight: Tensor
    bias: Tensor


def activate_rows(rows: NormedRows, residual: Tensor | None, gated: bool) -> Tensor:
    """Normalises rows, activates them and adds the residual."""
    epsilon, x, mask, mean, var, _, weight, bias = rows
    out = x.new_empty(*x.shape[:-1], x.size(-1) // 2 if gated else x.size(-1))
    g = Grid(out)
    _forward_kernel[g.row_grid](
        x, x if residual is None else residual.contiguous(), x if mask is None else mask, mean, var, weight, bias,
        out, g.V, g.units, g.blocks, rows_of_entry(mask, g.V), epsilon, UNIT=g.unit, MASKED=mask is not None,
        RESIDUAL=residual is not None, GATED=gated, ROWS=g.rows, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    return out


def activated_gradients(
    rows: NormedRows, grad: Tensor, gated: bool, *, of_rows: bool = True
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of the rows, if ``of_rows``, of γ and of β from that of the result of :func:`activate_rows`."""
    epsilon, x, mask, mean, var, count, weight, bias = rows
    g = Grid(grad, 2048 if gated else 4096)  # a gate needs as many registers as its column
    grad_sum, grad_hat_sum = (x.new_empty(g.replicas, g.parts, x.size(-1)) for _ in range(2))
    common = (x, grad, x if mask is None else mask, mean, var, weight, bias)
    options: dict[str, Any] = {
        **{"UNIT": g.unit, "MASKED": mask is not None, "GATED": gated},
        **{"WIDTH": g.width, "num_warps": 4},
    }
    entry = rows_of_entry(mask, g.V)
    _sums_kernel[g.part_grid](
        *common, grad_sum, grad_hat_sum, g.V, g.units, g.parts, g.tiles, entry, epsilon, ROWS=g.summed, **options,
    )  # fmt: skip
    dbias, dweight = (sums.view_as(weight) for sums in add_tables(grad_sum, grad_hat_sum))
    if not of_rows:
        return None, dweight, dbias
    dx = torch.empty_like(x)
    _gradient_kernel[g.row_grid](
        *common, dweight, dbias, x if count is None else count, dx, g.V, g.units, g.blocks, entry, epsilon,
        TRAINED=count is not None, ROWS=g.rows, **options,
    )  # fmt: skip
    return dx, dweight, dbias


@triton.jit
def _columns(mean, var, weight, bias, at, wide, epsilon):  # type: ignore[no-untyped-def]
    """Centre, scale, γ and β of some columns of a replica."""
    scale = tl.rsqrt(tl.load(var + at, mask=wide, other=1.0) + epsilon)
    centre = tl.load(mean + at, mask=wide, other=0.0)
    gamma = tl.load(weight + at, mask=wide, other=0.0)
    beta = tl.load(bias + at, mask=wide, other=0.0)
    return centre[None, :], scale[None, :], gamma[None, :], beta[None, :]


@triton.jit
def _sigmoid(x):  # type: ignore[no-untyped-def]
    e = tl.exp(-tl.abs(x))  # at most 1
    return tl.where(x < 0, e, 1.0) * fast_reciprocal(1 + e)


@triton.jit
def _gradient_of_normed(a, gate, grad, GATED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Gradient of the normalised column and, if gated, of its gate, from that of the result."""
    if GATED:
        opened = _sigmoid(gate)
        by_gate = tl.where(a > 0, a, 0.0) * opened * (1 - opened) * grad
        by_column = tl.where(a > 0, opened * grad, 0.0)
    else:
        by_gate = grad
        by_column = tl.where(a > 0, grad, 0.0)
    return by_column, by_gate


@triton.jit(do_not_specialize=["V", "units", "blocks", "EACH"])
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, residual, mask, mean, var, weight, bias, out, V, units, blocks, EACH, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, RESIDUAL: tl.constexpr, GATED: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    X = 2 * C if GATED else C  # columns of x
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    first_row = tl.program_id(0) % blocks * ROWS
    local = tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    valid = real_rows(mask, base, first_row + local, V, EACH, MASKED)[:, None] & wide[None, :]
    at = x + (base + first_row) * X + local[:, None] * X + columns[None, :]
    centre, scale, gamma, beta = _columns(mean, var, weight, bias, replica * X + columns, wide, epsilon)
    a = (tl.load(at, mask=valid, other=0.0) - centre) * scale * gamma + beta
    # Comparisons, not maxima, so that NaN stays NaN.
    y = tl.where(a <= 0, 0.0, a)
    if GATED:
        centre, scale, gamma, beta = _columns(
            mean, var, weight, bias, replica * X + C + columns, wide, epsilon
        )
        y *= _sigmoid((tl.load(at + C, mask=valid, other=0.0) - centre) * scale * gamma + beta)
    y = tl.where(valid, y, 0.0)
    inside = (first_row + local < V)[:, None] & wide[None, :]
    offsets = (base + first_row) * C + local[:, None] * C + columns[None, :]
    if RESIDUAL:
        y += tl.load(residual + offsets, mask=inside, other=0.0)
    tl.store(out + offsets, y, mask=inside)


@triton.jit(do_not_specialize=["V", "units", "parts", "tiles", "EACH"])
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, grad, mask, mean, var, weight, bias, grad_sum, grad_hat_sum, V, units, parts, tiles, EACH, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, GATED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient of the normalised rows, and of it times x̂, over the real rows of each part."""
    C = units * UNIT
    X = 2 * C if GATED else C
    replica = (tl.program_id(0) // parts).to(tl.int64)
    base = replica * V
    begin = tl.program_id(0) % parts * tiles * ROWS
    local = tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    centre, scale, gamma, beta = _columns(mean, var, weight, bias, replica * X + columns, wide, epsilon)
    gate_centre, gate_scale, gate_gamma, gate_beta = centre, scale, gamma, beta
    if GATED:
        gate_centre, gate_scale, gate_gamma, gate_beta = _columns(
            mean, var, weight, bias, replica * X + C + columns, wide, epsilon
        )
    first = tl.zeros([ROWS, WIDTH], tl.float32)
    second = tl.zeros([ROWS, WIDTH], tl.float32)
    gate_first = tl.zeros([ROWS, WIDTH], tl.float32)
    gate_second = tl.zeros([ROWS, WIDTH], tl.float32)
    for tile in range(0, tiles):
        top = begin + tile * ROWS
        valid = real_rows(mask, base, top + local, V, EACH, MASKED)[:, None] & wide[None, :]
        at = x + (base + top) * X + local[:, None] * X + columns[None, :]
        dy = tl.load(grad + (base + top) * C + local[:, None] * C + columns[None, :], mask=valid, other=0.0)
        hat = (tl.load(at, mask=valid, other=0.0) - centre) * scale
        gate_hat = hat
        if GATED:
            gate_hat = (tl.load(at + C, mask=valid, other=0.0) - gate_centre) * gate_scale
        by_column, by_gate = _gradient_of_normed(
            hat * gamma + beta, gate_hat * gate_gamma + gate_beta, dy, GATED
        )
        first += by_column
        second += by_column * hat
        if GATED:
            gate_first += by_gate
            gate_second += by_gate * gate_hat
    out = tl.program_id(0).to(tl.int64) * X + columns
    tl.store(grad_sum + out, tl.sum(first, 0), mask=wide)
    tl.store(grad_hat_sum + out, tl.sum(second, 0), mask=wide)
    if GATED:
        tl.store(grad_sum + out + C, tl.sum(gate_first, 0), mask=wide)
        tl.store(grad_hat_sum + out + C, tl.sum(gate_second, 0), mask=wide)


@triton.jit
def _rows_gradient(  # type: ignore[no-untyped-def]
    by, hat, scale, gamma, grad_sum, grad_hat_sum, at, wide, n, TRAINED: tl.constexpr
):
    """Gradient of rows from that of the normalised ones."""
    if TRAINED:
        # The statistics depend on the rows, too: common shifts and scalings have no gradient.
        common = tl.load(grad_sum + at, mask=wide, other=0.0) / n
        stretch = tl.load(grad_hat_sum + at, mask=wide, other=0.0) / n
        by = by - common[None, :] - hat * stretch[None, :]
    return by * (gamma * scale)


@triton.jit(do_not_specialize=["V", "units", "blocks", "EACH"])
def _gradient_kernel(  # type: ignore[no-untyped-def]
    x, grad, mask, mean, var, weight, bias, grad_hat_sum, grad_sum, count, dx, V, units, blocks, EACH, epsilon,
    TRAINED: tl.constexpr, UNIT: tl.constexpr, MASKED: tl.constexpr, GATED: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    X = 2 * C if GATED else C
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    first_row = tl.program_id(0) % blocks * ROWS
    local = tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    of_column = replica * X + columns
    valid = real_rows(mask, base, first_row + local, V, EACH, MASKED)[:, None] & wide[None, :]
    inside = (first_row + local < V)[:, None] & wide[None, :]
    offsets = (base + first_row) * X + local[:, None] * X + columns[None, :]
    dy = tl.load(grad + (base + first_row) * C + local[:, None] * C + columns[None, :], mask=valid, other=0.0)
    n = 1.0
    if TRAINED:
        n = tl.maximum(tl.load(count + replica), 1.0)
    centre, scale, gamma, beta = _columns(mean, var, weight, bias, of_column, wide, epsilon)
    hat = (tl.load(x + offsets, mask=valid, other=0.0) - centre) * scale
    gate = hat
    gate_hat, gate_scale, gate_gamma = hat, scale, gamma
    if GATED:
        gate_centre, gate_scale, gate_gamma, gate_beta = _columns(
            mean, var, weight, bias, of_column + C, wide, epsilon
        )
        gate_hat = (tl.load(x + offsets + C, mask=valid, other=0.0) - gate_centre) * gate_scale
        gate = gate_hat * gate_gamma + gate_beta
    by_column, by_gate = _gradient_of_normed(hat * gamma + beta, gate, dy, GATED)
    change = _rows_gradient(by_column, hat, scale, gamma, grad_sum, grad_hat_sum, of_column, wide, n, TRAINED)
    tl.store(dx + offsets, tl.where(valid, change, 0.0), mask=inside)
    if GATED:
        change = _rows_gradient(
            by_gate, gate_hat, gate_scale, gate_gamma, grad_sum, grad_hat_sum, of_column + C, wide, n, TRAINED
        )
        tl.store(dx + offsets + C, tl.where(valid, change, 0.0), mask=inside)
