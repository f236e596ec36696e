"""Routing in each precision of its products, held to the error that precision may have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.precision import Precision, use_precision
from graphcaps.ops.routing import route_dense_factored, route_factored
from tests.ops.ragged_rows import moved, poisoned, rows

# Share of the largest magnitude, results and gradients after two iterations.
TOLERANCE = {"float32": 2e-5, "tf32": 5e-3, "bf16": 4e-2}
NAMES = ("h", "weight", "bias", "residual")


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _leaves(inputs: list[Tensor], like: Tensor) -> list[Tensor]:
    return [value.detach().clone().to(like).requires_grad_() for value in inputs]


def _off(actual: list[Tensor], expected: list[Tensor]) -> dict[str, float]:
    """Largest error of each result and gradient, as a share of its largest magnitude."""
    names = ("capsules", "assignment", *(f"grad {name}" for name in NAMES))
    pairs = zip(names, actual, expected, strict=True)
    return {name: float((a.detach().cpu().double() - b).abs().max() / b.abs().max()) for name, a, b in pairs}


@pytest.mark.parametrize("precision", list(TOLERANCE))
def test_error_is_within_the_bound_of_the_precision(kernel_device: str, precision: Precision) -> None:
    """Two tiles of graphs to a program, rows wider than a tile of columns; the backward pass is tested elsewhere."""
    from graphcaps.ops.routing.route_triton import route_triton

    segments, there = (rows([[3] * 33 + [40]]), moved(rows([[3] * 33 + [40]]), kernel_device))
    generator = torch.Generator().manual_seed(7)
    shapes = ((1, 2, 112, 80), (1, 2, 80), (1, 34, 1, 80))
    inputs = [poisoned(segments, 112), *(torch.randn(s, generator=generator) / 8 for s in shapes)]
    exact = _leaves(inputs, torch.zeros((), dtype=torch.float64))
    expected = route_factored(*exact[:3], segments, 2, exact[3])
    grad_output = torch.randn(expected.capsules.shape, generator=generator)
    (expected.capsules * grad_output).sum().backward()
    leaves = _leaves(inputs, torch.zeros((), device=kernel_device))
    with use_precision(precision):
        actual = route_triton(*leaves[:3], there, 2, leaves[3])
    (actual.capsules * grad_output.to(kernel_device)).sum().backward()
    off = _off(
        [actual.capsules, actual.assignment, *(leaf.grad for leaf in leaves)],
        [expected.capsules.detach(), expected.assignment, *(leaf.grad.nan_to_num() for leaf in exact)],
    )
    assert max(off.values()) <= TOLERANCE[precision], off
    if precision == "bf16":  # the rounding is really done, forward and backward
        assert min(off["capsules"], off["grad weight"], off["grad h"]) > TOLERANCE["float32"], off


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_dense_level(kernel_device: str, precision: Precision) -> None:
    from graphcaps.ops.routing.route_triton import route_dense_triton

    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 3, 10, 16), (2, 2, 16, 24), (2, 2, 24), (2, 3, 1, 24))
    inputs = [torch.randn(shape, generator=generator) / 2 for shape in shapes]
    exact = _leaves(inputs, torch.zeros((), dtype=torch.float64))
    expected = route_dense_factored(*exact[:3], 2, exact[3])
    expected.capsules.sum().backward()
    leaves = _leaves(inputs, torch.zeros((), device=kernel_device))
    with use_precision(precision):
        actual = route_dense_triton(*leaves[:3], 2, leaves[3])
    actual.capsules.sum().backward()
    off = _off(
        [actual.capsules, actual.assignment, *(leaf.grad for leaf in leaves)],
        [expected.capsules.detach(), expected.assignment, *(leaf.grad for leaf in exact)],
    )
    assert max(off.values()) <= TOLERANCE[precision], off


def test_segment_product_uses_the_precision(kernel_device: str) -> None:
    from graphcaps.ops.ragged.ragged_triton import segment_product

    segments = rows([[5, 0, 40]])
    a, x = poisoned(segments, 5), poisoned(segments, 20, seed=1)
    there = moved(segments, kernel_device)
    expected = torch.stack([a[0, i:j].double().mT @ x[0, i:j].double() for i, j in ((0, 5), (5, 5), (5, 45))])
    errors = {}
    for precision in TOLERANCE:
        with use_precision(precision):  # type: ignore[arg-type]
            actual = segment_product(a.to(kernel_device), x.to(kernel_device), there)
        errors[precision] = float((actual[0].cpu() - expected).abs().max() / expected.abs().max())
        assert errors[precision] <= TOLERANCE[precision]
    assert errors["bf16"] > TOLERANCE["float32"]
