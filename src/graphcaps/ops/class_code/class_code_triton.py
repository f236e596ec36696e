r"""The decoder's code of each graph, :math:`W_y^\top u_y + e`, from the capsule of its class alone.

Products of tiles of graphs, class after class, in which graphs of other classes are zero rows; one kernel computes
the code, one all its gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops._triton.precision import dot_precision

__all__ = ["class_code", "code_parameter_gradients"]

_GRAPHS = 16  # of a tile
_SUMMED = 64  # graphs of a step of the sum over graphs: its steps wait for each other, so they are few
_STEP = 128  # numbers of a capsule taken at once, at most
_OUT = 32  # columns of an output tile


def class_code(capsules: Tensor, y: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """The code of each graph, ``[*lead, B, E]``.

    Args:
        capsules (Tensor): Class capsules, ``[*lead, B, O, d]``.
        y (Tensor): Class of each graph, ``[*lead, B]``; below 0 counts as 0.
        weight (Tensor): ``[*lead, O·d, E]``.
        bias (Tensor): ``[*lead, E]``.
        relu (bool): Whether negative numbers of the code become 0.
    """
    code: Tensor = _ClassCode.apply(capsules, y, weight, bias, relu)
    return code


def _step(precision: str) -> int:
    """Numbers of a capsule taken at once; tf32x3 holds each operand twice."""
    return _STEP // 2 if precision == "tf32x3" else _STEP


class _ClassCode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, y: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        u, y, weight, bias = u.contiguous(), y.contiguous(), weight.contiguous(), bias.contiguous()
        *lead, B, classes, d = u.shape
        E, F = weight.size(-1), torch.Size(lead).numel()
        code = u.new_empty(*lead, B, E)
        ctx.relu, ctx.precision = relu, dot_precision()
        if code.numel():
            _code_kernel[(triton.cdiv(B, _GRAPHS), F, triton.cdiv(E, _OUT))](
                u, y, weight, bias, code, B, classes, d, E,
                RELU=relu, PRECISION=ctx.precision, R=_GRAPHS, K=_step(ctx.precision), C=_OUT,
                num_warps=2, num_stages=3,
            )  # fmt: skip
        ctx.save_for_backward(u, y, weight, code)
        return code

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        u, y, weight, code = ctx.saved_tensors
        *lead, B, classes, d = u.shape
        E, F = weight.size(-1), torch.Size(lead).numel()
        du, dweight, dbias = torch.empty_like(u), torch.empty_like(weight), u.new_empty(*lead, E)
        tiles, columns = triton.cdiv(B, _GRAPHS), triton.cdiv(E, _OUT)
        grid = (tiles + columns, F, classes * triton.cdiv(d, _OUT))
        if F * grid[0] * grid[2]:
            _code_backward_kernel[grid](
                u, y, weight, code, grad.contiguous(), du, dweight, dbias, B, classes, d, E, tiles,
                RELU=ctx.relu, PRECISION=ctx.precision, R=_GRAPHS, K=_step(ctx.precision), C=_OUT,
                S=_SUMMED // 2 if ctx.precision == "tf32x3" else _SUMMED, num_warps=4, num_stages=3,
            )  # fmt: skip
        return du, None, dweight, dbias, None


def code_parameter_gradients(
    capsules: Tensor, y: Tensor, weight: Tensor, dcode: Tensor, precision: str
) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias from that of the code before its ReLU, ``[*lead, B, E]``; all contiguous."""
    *lead, B, classes, d = capsules.shape
    E, F = weight.size(-1), torch.Size(lead).numel()
    dweight, dbias = torch.empty_like(weight), dcode.new_empty(*lead, E)
    unused = dcode  # not read: there are no programs for the gradient of the capsules
    _code_backward_kernel[(triton.cdiv(E, _OUT), F, classes * triton.cdiv(d, _OUT))](
        capsules, y, weight, unused, dcode, unused, dweight, dbias, B, classes, d, E, 0,
        RELU=False, PRECISION=precision, R=_GRAPHS, K=_step(precision), C=_OUT,
        S=_SUMMED // 2 if precision == "tf32x3" else _SUMMED, num_warps=4, num_stages=3,
    )  # fmt: skip
    return dweight, dbias


@triton.jit(do_not_specialize=["B", "classes"])
def _code_kernel(  # type: ignore[no-untyped-def]
    u, y, weight, bias, code, B, classes, d, E,
    RELU: tl.constexpr, PRECISION: tl.constexpr, R: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """R graphs (program 0) of a replica (1), C columns (2)."""
    f = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * R + tl.arange(0, R)
    e = tl.program_id(2) * C + tl.arange(0, C)
    label = tl.maximum(tl.load(y + f * B + b, mask=b < B, other=0), 0)
    steps = tl.cdiv(d, K)
    total = tl.zeros([R, C], tl.float32)
    for step in range(0, classes * steps):
        o = step // steps
        k = step % steps * K + tl.arange(0, K)
        of_class = (b < B) & (label == o)
        a = tl.load(
            u + (((f * B + b) * classes + o) * d)[:, None] + k[None, :],
            mask=of_class[:, None] & (k < d)[None, :],
            other=0.0,
        )
        w = tl.load(
            weight + ((f * classes + o) * d + k)[:, None] * E + e[None, :],
            mask=(k < d)[:, None] & (e < E)[None, :],
            other=0.0,
        )
        total = product(a, w, total, PRECISION)
    total += tl.load(bias + f * E + e, mask=e < E, other=0.0)[None, :]
    if RELU:
        total = tl.where(total <= 0, 0.0, total)  # NaN stays
    tl.store(code + (f * B + b)[:, None] * E + e[None, :], total, mask=(b < B)[:, None] & (e < E)[None, :])


@triton.jit
def _grad_before_relu(grad, code, offsets, valid, RELU: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient before relu."""
    g = tl.load(grad + offsets, mask=valid, other=0.0)
    if RELU:
        g = tl.where(tl.load(code + offsets, mask=valid, other=0.0) <= 0, 0.0, g)
    return g


@triton.jit
def _capsules(  # type: ignore[no-untyped-def]
    y, weight, code, grad, du, f, b, o, k, B, classes, d, E,
    RELU: tl.constexpr, PRECISION: tl.constexpr, R: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Gradient of the capsules o of graphs b, their numbers k."""
    label = tl.maximum(tl.load(y + f * B + b, mask=b < B, other=0), 0)
    of_class = (b < B) & (label == o)
    grad_u = tl.zeros([R, C], tl.float32)
    for first in range(0, E, K):
        e = first + tl.arange(0, K)
        valid = of_class[:, None] & (e < E)[None, :]
        g = _grad_before_relu(grad, code, (f * B + b)[:, None] * E + e[None, :], valid, RELU)
        w = tl.load(
            weight + ((f * classes + o) * d + k)[None, :] * E + e[:, None],
            mask=(k < d)[None, :] & (e < E)[:, None],
            other=0.0,
        )
        grad_u = product(g, w, grad_u, PRECISION)
    # Rows of other classes are zero, and stay so even if the weight is not finite.
    grad_u = tl.where(of_class[:, None], grad_u, 0.0)
    offsets = (((f * B + b) * classes + o) * d)[:, None] + k[None, :]
    tl.store(du + offsets, grad_u, mask=(b < B)[:, None] & (k < d)[None, :])


@triton.jit
def _parameters(  # type: ignore[no-untyped-def]
    u, y, code, grad, dweight, dbias, f, e, o, k, with_bias, B, classes, d, E,
    RELU: tl.constexpr, PRECISION: tl.constexpr, S: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Gradient of the weight of class o, its rows k and columns e, and of the bias; graphs in order."""
    total = tl.zeros([C, C], tl.float32)
    summed = tl.zeros([S, C], tl.float32)
    for first in range(0, B, S):
        b = first + tl.arange(0, S)
        # Read whatever the class is: addresses that wait for classes cannot be loaded ahead.
        a = tl.load(
            u + (((f * B + b) * classes + o) * d)[None, :] + k[:, None],
            mask=(b < B)[None, :] & (k < d)[:, None],
            other=0.0,
        )
        valid = (b < B)[:, None] & (e < E)[None, :]
        g = _grad_before_relu(grad, code, (f * B + b)[:, None] * E + e[None, :], valid, RELU)
        summed += g
        label = tl.maximum(tl.load(y + f * B + b, mask=b < B, other=0), 0)
        of_class = label == o
        total = product(
            tl.where(of_class[None, :], a, 0.0), tl.where(of_class[:, None], g, 0.0), total, PRECISION
        )
    offsets = ((f * classes + o) * d + k)[:, None] * E + e[None, :]
    tl.store(dweight + offsets, total, mask=(k < d)[:, None] & (e < E)[None, :])
    if with_bias:
        tl.store(dbias + f * E + e, tl.sum(summed, 0), mask=e < E)


@triton.jit(do_not_specialize=["B", "classes", "tiles"])
def _code_backward_kernel(  # type: ignore[no-untyped-def]
    u, y, weight, code, grad, du, dweight, dbias, B, classes, d, E, tiles,
    RELU: tl.constexpr, PRECISION: tl.constexpr, R: tl.constexpr, K: tl.constexpr, C: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """A class and C numbers of its capsule (program 2) of a replica (1).

    The first programs (0) compute the gradient of the capsules of R graphs each, the others the gradients of C columns
    of the weight and of the bias.
    """
    f = tl.program_id(1).to(tl.int64)
    pieces = tl.cdiv(d, C)
    o = tl.program_id(2) // pieces
    k = tl.program_id(2) % pieces * C + tl.arange(0, C)
    if tl.program_id(0) < tiles:
        b = tl.program_id(0) * R + tl.arange(0, R)
        _capsules(y, weight, code, grad, du, f, b, o, k, B, classes, d, E, RELU, PRECISION, R, K, C)
    else:
        e = (tl.program_id(0) - tiles) * C + tl.arange(0, C)
        with_bias = tl.program_id(2) == 0
        _parameters(
            u, y, code, grad, dweight, dbias, f, e, o, k, with_bias, B, classes, d, E, RELU, PRECISION, S, C
        )  # fmt: skip
