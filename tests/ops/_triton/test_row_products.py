"""Rows times a matrix inside a kernel, against products in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.ops.ragged_rows import assert_close

pytest.importorskip("triton")

ROWS, GAP = 16, 40
"""Rows of a program, and NaN between them in memory: more numbers than a step has."""


def _between_nan(values: Tensor, device: str) -> Tensor:
    """The same values, with NaN in memory behind each row of the last axis and before the first."""
    memory = torch.full((len(values) + 1, GAP + values.size(-1)), float("nan"))
    memory[1:, : values.size(-1)] = values
    return memory.to(device)[1:]


@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize(
    ("K", "N", "KB", "NP"),
    [(37, 21, 16, 32), (5, 16, 16, 16), (64, 3, 32, 16)],
    ids=["last step not full", "one step not full", "whole steps"],
)
def test_equals_a_product_in_float64(
    K: int, N: int, KB: int, NP: int, transposed: bool, kernel_device: str
) -> None:
    """Rows anywhere in memory; rows that are not real and columns beyond N are 0, whatever memory has there."""
    x, M, found = _product(
        K, N, KB, NP, transposed, "tf32" if kernel_device == "cpu" else "tf32x3", kernel_device
    )
    expected = torch.zeros(ROWS, NP, dtype=torch.float64)
    expected[:, :N] = x.double().nan_to_num() @ M.double()
    assert not expected[::5].any()
    assert_close(found, expected, "product")


def test_rounds_as_the_precision_says(kernel_device: str) -> None:
    """With bfloat16, eight bits of a number count: an error of up to 2⁻⁶ of the largest result, and not none."""
    x, M, found = _product(37, 21, 16, 32, True, "bfloat16", kernel_device)
    expected = x.double().nan_to_num() @ M.double()
    error = float((found[:, :21].cpu() - expected).abs().max() / expected.abs().max())
    assert 1e-4 < error < 2**-6


def _product(
    K: int, N: int, KB: int, NP: int, transposed: bool, precision: str, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, every fifth of them NaN and not real, the matrix, and what the kernel stores, which was NaN before."""
    from tests.ops._triton.row_product_kernel import row_product

    generator = torch.Generator().manual_seed(K)
    x, M = torch.randn(ROWS, K, generator=generator), torch.randn(K, N, generator=generator)
    x[::5] = float("nan")
    order = torch.randperm(ROWS, generator=generator)
    memory = _between_nan(x[order], device)
    starts = order.argsort() * memory.stride(0)
    matrix = _between_nan((M.T if transposed else M).reshape(1, -1), device)
    out = torch.full((ROWS, NP), float("nan"), device=device)
    real = torch.arange(ROWS) % 5 > 0
    row_product[(1,)](
        memory, starts.to(device), real.int().to(device), matrix, out, N, K,
        R=ROWS, KB=KB, NP=NP, TRANSPOSED=transposed, PRECISION=precision,
    )  # fmt: skip
    return x, M, out
