"""Sums of rows by an index, which ``torch.compile`` runs as they are on a CPU.

The compiler of torch 2.13 turns a sum by an index into a buffer that is written in place. For a CPU it may then lose
the order of that sum and of what reads it, and the result is wrong without a message. So in code that is compiled for a
CPU each sum is one operator that the compiler calls and does not look into. The gradient of rows taken by an index is
such a sum too. Elsewhere the functions of torch are called directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops.compilation import is_traced

__all__ = ["select_rows", "sum_rows"]


def sum_rows(rows: Tensor, index: Tensor, size: int) -> Tensor:
    """Row k of the result is the sum of the rows i with ``index[i] = k``, 0 if there are none.

    Args:
        rows (Tensor): Rows to sum, ``[M, …]``.
        index (Tensor): Row of the result for each of them, ``[M]``.
        size (int): Number of rows N of the result.

    Returns:
        Tensor: ``[N, …]``.
    """
    if is_traced() and rows.device.type == "cpu":
        total: Tensor = torch.ops.graphcaps.sum_rows(rows, index, size)
        return total
    return _sum_rows(rows, index, size)


def select_rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of ``x [N, …]`` by ``index [M]``, ``[M, …]``; the gradient is :func:`sum_rows`."""
    if is_traced() and x.device.type == "cpu":
        taken: Tensor = torch.ops.graphcaps.select_rows(x, index)
        return taken
    return x.index_select(0, index)


def _sum_rows(rows: Tensor, index: Tensor, size: int) -> Tensor:
    return rows.new_zeros(size, *rows.shape[1:]).index_add_(0, index, rows)


def _select_rows(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index)


def _save_index(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.size = inputs[0].size(0)


def _sum_rows_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (index,) = ctx.saved_tensors
    return torch.ops.graphcaps.select_rows(grad, index), None, None


def _select_rows_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (index,) = ctx.saved_tensors
    return torch.ops.graphcaps.sum_rows(grad, index, ctx.size), None


def _define_operators() -> None:
    """The operators of torch: their kernels, the shapes of their results, and their gradients."""
    sums = torch.library.custom_op(
        "graphcaps::sum_rows",
        _sum_rows,
        mutates_args=(),
        schema="(Tensor rows, Tensor index, SymInt size) -> Tensor",
    )
    sums.register_fake(lambda rows, index, size: rows.new_empty(size, *rows.shape[1:]))
    sums.register_autograd(_sum_rows_backward, setup_context=_save_index)
    rows = torch.library.custom_op(
        "graphcaps::select_rows",
        _select_rows,
        mutates_args=(),
        schema="(Tensor x, Tensor index) -> Tensor",
    )
    rows.register_fake(lambda x, index: x.new_empty(index.size(0), *x.shape[1:]))
    rows.register_autograd(_select_rows_backward, setup_context=_save_index)


_define_operators()
