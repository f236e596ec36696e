"""ReLU, dropout and squash of rows in one kernel, and dropout alone; backward passes recompute the dropout mask.

Which numbers are dropped follows from the hash of :mod:`graphcaps.ops.activation.hashed_dropout`, bit by bit.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import fast_reciprocal, tile_width
from graphcaps.ops.activation.hashed_dropout import HashedDropout
from graphcaps.ops.batch_norm.batch_norm_triton import mask_bytes

__all__ = [
    "activate",
    "activation_gradients",
    "apply_dropout",
    "dropout_factors",
    "dropout_parameters",
    "hash_position",
    "is_per_replica",
    "next_step_keys",
    "squash_rows",
    "threshold_and_scale",
]

_DROPOUT_NUMBERS = 1024
"""Numbers of a program of the dropout kernel."""
_FORWARD_NUMBERS, _BACKWARD_NUMBERS = 4096, 1024
"""Numbers of a tile of rows; the backward pass holds more of each number."""
_BACKWARD_REGISTERS = 80
"""Limit of registers of a thread, so that six programs run at a time on a multiprocessor."""
_BACKWARD_PROGRAMS = 792
"""Programs that a large GPU runs at a time; each adds up the gradient of the bias over its tiles in registers."""


def activate(
    z: Tensor,
    bias: Tensor,
    *,
    dropout: HashedDropout | None,
    bias_position: Literal["inside", "outside"],
    epsilon: float,
    mask: Tensor | None,
) -> Tensor:
    """As :func:`graphcaps.ops.activation.activation.activate`, for rows of at most 1024 numbers."""
    u: Tensor = _Activate.apply(z, bias, dropout, bias_position == "inside", epsilon, mask_bytes(mask))
    return u


def apply_dropout(x: Tensor, dropout: HashedDropout, mask: Tensor | None) -> Tensor:
    """As :func:`graphcaps.ops.activation.hashed_dropout.apply_dropout`, without a mask."""
    y: Tensor = _Dropout.apply(x, dropout)
    return y


class _Dropout(torch.autograd.Function):
    """A linear map that is its own transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: HashedDropout) -> Tensor:
        ctx.dropout = dropout
        x = x.contiguous()
        out = torch.empty_like(x)
        count = x.size(-2) * x.size(-1)
        _dropout_kernel[(triton.cdiv(count, _DROPOUT_NUMBERS), x.numel() // count)](
            x,
            dropout.keys.contiguous(),
            out,
            count,
            *threshold_and_scale(dropout),
            SIZE=_DROPOUT_NUMBERS,
            EACH=is_per_replica(dropout),
            num_warps=4,
        )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Dropout.apply(grad, ctx.dropout), None


def next_step_keys(seed: Tensor, step: Tensor, mask: Tensor | None) -> Tensor:
    """As :func:`graphcaps.ops.activation.hashed_dropout.next_step_keys`, in one launch."""
    keys = torch.empty(*seed.shape, 2, dtype=torch.int32, device=seed.device)
    V = 1 if mask is None else mask.size(-1)
    masked = mask_bytes(mask)
    _keys_kernel[(seed.numel(),)](
        seed, step, seed if masked is None else masked, keys, V,
        MASKED=mask is not None, WIDTH=1024, num_warps=4,
    )  # fmt: skip
    return keys


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        bias: Tensor,
        dropout: HashedDropout | None,
        inside: bool,
        epsilon: float,
        mask: Tensor | None,
    ) -> Tensor:
        z, bias = z.contiguous(), bias.contiguous()
        ctx.save_for_backward(z, bias, mask)
        ctx.options = dropout, inside, epsilon
        out = torch.empty_like(z)
        V, d = z.shape[-2:]
        tensors, options = _call(z, bias, mask, dropout, inside, _FORWARD_NUMBERS)
        _forward_kernel[(z.numel() // (V * d) * triton.cdiv(V, options["ROWS"]),)](
            *tensors, out, V, d, *threshold_and_scale(dropout), epsilon, **options
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        z, bias, mask = ctx.saved_tensors
        dz, dbias = activation_gradients(z, bias, mask, grad, *ctx.options)
        return dz, dbias, None, None, None, None


def activation_gradients(
    z: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    grad: Tensor,
    dropout: HashedDropout | None,
    inside: bool,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of z ``[*lead, V, d]`` and of the bias ``[*lead, d]``; the mask as bytes."""
    dz = torch.empty_like(z)
    V, d = z.shape[-2:]
    tensors, options = _call(z, bias, mask, dropout, inside, _BACKWARD_NUMBERS)
    if d % 16 == 0 and options["WIDTH"] <= 128:  # others are not vectorised, or reduced across warps
        options["maxnreg"] = _BACKWARD_REGISTERS
    replicas, count = z.numel() // (V * d), triton.cdiv(V, options["ROWS"])
    tiles = triton.cdiv(count, max(1, _BACKWARD_PROGRAMS // replicas))
    blocks = triton.cdiv(count, tiles)
    part = z.new_empty(*z.shape[:-2], blocks, d)
    _backward_kernel[(replicas * blocks,)](
        *tensors, grad.contiguous(), dz, part, V, d, blocks, tiles, *threshold_and_scale(dropout), epsilon,
        **options,
    )  # fmt: skip
    return dz, part.sum(-2)


def _call(
    z: Tensor, bias: Tensor, mask: Tensor | None, dropout: HashedDropout | None, inside: bool, numbers: int
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Tensors and options of both kernels, for tiles of ``numbers``."""
    width = tile_width(z.size(-1))
    rows = max(2, min(64, numbers // width))
    keys = z.view(torch.int32) if dropout is None else dropout.keys.contiguous()  # not read without dropout
    options: dict[str, Any] = {
        "MASKED": mask is not None,
        "INSIDE": inside,
        "ROWS": rows,
        "WIDTH": width,
        "EACH": is_per_replica(dropout),
        "num_warps": 4,
    }
    return (z, bias, z if mask is None else mask, keys), options


def threshold_and_scale(dropout: HashedDropout | None) -> tuple[int | Tensor, float | Tensor]:
    """Hashes below the first are dropped; the other numbers are multiplied by the second. One each per replica, as
    tensors ``[*lead]``, if the probability is."""
    if dropout is None:
        return 0, 1.0
    scale = dropout.scale
    return dropout.threshold, scale.float() if isinstance(scale, Tensor) else scale


def is_per_replica(dropout: HashedDropout | None) -> bool:
    return dropout is not None and isinstance(dropout.p, Tensor)


@triton.jit
def _mix64(x):  # type: ignore[no-untyped-def]
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit(do_not_specialize=["V"])
def _keys_kernel(  # type: ignore[no-untyped-def]
    seed, step, mask, keys, V, MASKED: tl.constexpr, WIDTH: tl.constexpr
):
    """Keys of a replica's step; advances the step if the replica has a real row."""
    replica = tl.program_id(0).to(tl.int64)
    now = tl.load(step + replica)
    key = _mix64(tl.load(seed + replica) ^ _mix64(now + 1))
    tl.store(keys + 2 * replica, key.to(tl.int32))
    tl.store(keys + 2 * replica + 1, (key >> 32).to(tl.int32))
    if MASKED:
        # Real rows come first as a rule, and then no other entry of the mask is read.
        begins = tl.load(mask + replica * V, mask=V > 0, other=0) != 0
        some = tl.zeros([WIDTH], tl.int32) + begins.to(tl.int32)
        for first in range(0, tl.where(begins, 0, V), WIDTH):
            rows = first + tl.arange(0, WIDTH)
            valid = tl.load(mask + replica * V + rows, mask=rows < V, other=0)
            some = tl.maximum(some, (valid != 0).to(tl.int32))
        now += tl.max(some, 0)
    else:
        now += 1
    tl.store(step + replica, now)


@triton.jit
def hash_position(position, first, second):  # type: ignore[no-untyped-def]
    """The 31-bit hash of a position under two keys (:func:`graphcaps.ops.activation.hashed_dropout.hash_rows`)."""
    h = position * -1640531527 + first
    h = (h ^ ((h >> 16) & 0xFFFF)) * -2048144789
    h = h ^ second
    h = (h ^ ((h >> 13) & 0x7FFFF)) * -1028477387
    return (h ^ ((h >> 16) & 0xFFFF)) & 0x7FFFFFFF


@triton.jit
def dropout_parameters(keys, replica, threshold, scale, EACH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Both keys of a replica, its threshold and its scale; without keys at threshold 0.

    With EACH, threshold and scale are pointers to one number per replica.
    """
    if EACH:
        threshold = tl.load(threshold + replica)
        scale = tl.load(scale + replica)
    some = threshold > 0
    first = tl.load(keys + 2 * replica, mask=some, other=0)
    second = tl.load(keys + 2 * replica + 1, mask=some, other=0)
    return first, second, threshold, scale


@triton.jit
def dropout_factors(position, draws, valid):  # type: ignore[no-untyped-def]
    """0 where the number at a position is dropped or not valid, 1 / (1 − p) elsewhere; none is dropped at threshold 0.

    Without dropout the hash is computed in vain, which costs no time beside the loads and saves a compilation.
    """
    first, second, threshold, scale = draws
    return tl.where((hash_position(position, first, second) >= threshold) & valid, scale, 0.0)


@triton.jit(do_not_specialize=["count", "threshold"])
def _dropout_kernel(  # type: ignore[no-untyped-def]
    x, keys, out, count, threshold, scale, SIZE: tl.constexpr, EACH: tl.constexpr
):
    replica = tl.program_id(1).to(tl.int64)
    position = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = position < count
    value = tl.load(x + replica * count + position, mask=inside, other=0.0)
    factor = dropout_factors(position, dropout_parameters(keys, replica, threshold, scale, EACH), inside)
    tl.store(out + replica * count + position, value * factor, mask=inside)


@triton.jit
def _rows_of(  # type: ignore[no-untyped-def]
    z, e, mask, draws, replica, first, V, D,
    MASKED: tl.constexpr, INSIDE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Input of squash, dropout factors, where ReLU is positive, first offset, local offsets, real and all positions.

    At positions that are not real, the factors are 0, and so is the input of squash if the bias is finite.
    """
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    wide = (columns < D)[None, :]
    real = rows < V
    if MASKED:
        real = real & (tl.load(mask + replica * V + rows, mask=real, other=0) != 0)
    valid = real[:, None] & wide
    origin = (replica * V + first) * D
    local = tl.arange(0, ROWS)[:, None] * D + columns[None, :]  # 32 bits take half the registers
    value = tl.load(z + origin + local, mask=valid, other=0.0)
    if INSIDE:
        value = value + e
        above = value > 0
        h = tl.where(above, value, 0.0)
    else:
        above = value > 0
        h = tl.where(above, value, 0.0) + e
    factor = dropout_factors(first * D + local, draws, valid)
    inside = (rows < V)[:, None] & wide
    return h * factor, factor, above, origin, local, valid, inside


@triton.jit
def _bias_of(bias, replica, D, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    columns = tl.arange(0, WIDTH)
    return tl.load(bias + replica * D + columns, mask=columns < D, other=0.0)[None, :]


@triton.jit
def squash_rows(h, epsilon):  # type: ignore[no-untyped-def]
    """squash of each row."""
    squared = tl.sum(h * h, 1)
    length = tl.sqrt(tl.where(squared > 0, squared + epsilon, 1.0))  # squash(0) = 0, with ε = 0 too
    factor = squared / ((1 + squared) * length)
    return h * factor[:, None]


@triton.jit(do_not_specialize=["V", "threshold"])
def _forward_kernel(  # type: ignore[no-untyped-def]
    z, bias, mask, keys, out, V, D, threshold, scale, epsilon,
    MASKED: tl.constexpr, INSIDE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(V, ROWS)
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * ROWS
    draws = dropout_parameters(keys, replica, threshold, scale, EACH)
    e = _bias_of(bias, replica, D, WIDTH)
    h, _factor, _above, origin, local, _valid, inside = _rows_of(
        z, e, mask, draws, replica, first, V, D, MASKED, INSIDE, ROWS, WIDTH
    )
    tl.store(out + origin + local, squash_rows(h, epsilon), mask=inside)


@triton.jit(do_not_specialize=["V", "blocks", "tiles", "threshold"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    z, bias, mask, keys, grad, dz, part, V, D, blocks, tiles, threshold, scale, epsilon,
    MASKED: tl.constexpr, INSIDE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    begin = tl.program_id(0) % blocks * tiles * ROWS
    draws = dropout_parameters(keys, replica, threshold, scale, EACH)
    e = _bias_of(bias, replica, D, WIDTH)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(begin, tl.minimum(begin + tiles * ROWS, V), ROWS):
        h, factor, above, origin, local, valid, inside = _rows_of(
            z, e, mask, draws, replica, first, V, D, MASKED, INSIDE, ROWS, WIDTH
        )
        du = tl.load(grad + origin + local, mask=valid, other=0.0)
        squared = tl.sum(h * h, 1)
        inverse = fast_reciprocal(tl.sqrt(tl.where(squared > 0, squared + epsilon, 1.0)))
        share = fast_reciprocal(1 + squared)
        per = share * inverse
        # d scale / d squared; at zero the vector it multiplies is zero as well.
        derivative = per * (share - 0.5 * (squared * inverse) * inverse)
        dh = du * (squared * per)[:, None] + h * (2 * derivative * tl.sum(h * du, 1))[:, None]
        dh = dh * factor
        grad_z = tl.where(above, dh, 0.0)
        tl.store(dz + origin + local, grad_z, mask=inside)
        total += grad_z if INSIDE else dh
    columns = tl.arange(0, WIDTH)
    tl.store(part + tl.program_id(0).to(tl.int64) * D + columns, tl.sum(total, 0), mask=columns < D)
