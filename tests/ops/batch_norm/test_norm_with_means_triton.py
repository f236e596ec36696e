"""Normalisation and the means of graphs in few passes against the separate operations in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.nn import RaggedBatchNorm
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.types import Segments
from tests.graphs import assert_equal, random_graphs
from tests.ops.norms import random_norm

SIZES = [1, 31, 33, 63, 65, 100, 2]
# Rows of different lengths, empty graphs between others, and a replica of nothing but padding.
DRAWN = [[0, 1, 2], [5, -1, 4], [-1, -1, -1], [3, 6, 0]]
TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _segments(drawn: Any, device: str, sizes: list[int] = SIZES) -> Segments:
    graphs = random_graphs(sizes)
    store = graphs.as_store().to(device)
    return store.batch(graphs.x.to(device), torch.tensor(drawn, device=device)).segments


def _run(
    x: Tensor, norm: RaggedBatchNorm, segments: Segments, upstream: list[Tensor | None], **how: Any
) -> dict[str, Tensor]:
    """Values, gradients and running averages by name; ``upstream``: gradients of rows, means and inputs."""
    x = x.clone().requires_grad_()
    result = norm.with_means(x, segments, **how)
    outputs = [(o, g.to(o)) for o, g in zip(result, upstream, strict=True) if o is not None and g is not None]
    grads = torch.autograd.grad([o for o, _ in outputs], (x, norm.weight, norm.bias), [g for _, g in outputs])
    names = ("gradient of x", "gradient of weight", "gradient of bias")
    values = {
        "rows": result.rows,
        "inputs": result.inputs,
        "running mean": norm.running_mean,
        "running variance": norm.running_var,
    }
    values |= {} if result.means is None else {"means": result.means}
    values |= dict(zip(names, grads, strict=True))
    return {name: value.detach().cpu().double() for name, value in values.items()}


def _check(
    drawn: Any, d: int, device: str, *, sizes: list[int] = SIZES, read: tuple[bool, bool, bool] = (True, True, True),
    max_size: bool = True, far: float = 1.0, slack: float = 1.0, **how: Any,
) -> None:  # fmt: skip
    segments = _segments(drawn, "cpu", sizes)
    padding = torch.zeros(segments.index.shape, dtype=torch.bool)
    if segments.row_mask is not None:
        padding = ~segments.row_mask
    torch.manual_seed(0)
    x = torch.randn(*segments.index.shape, d) * torch.linspace(0.5, 2, d) + far
    upstream = [torch.randn_like(x), torch.randn(*segments.sizes.shape, d), torch.randn_like(x)]

    def inputs(value: float) -> tuple[Tensor, list[Tensor | None]]:
        """Padding rows hold this value."""
        filled = [
            t.masked_fill(padding[..., None], value) if t.shape == x.shape else t for t in (x, *upstream)
        ]
        return filled[0], [g if each else None for g, each in zip(filled[1:], read, strict=True)]

    lead = tuple(x.shape[:-2])
    clean, clean_upstream = inputs(0.0)
    with use_kernels("off"):
        expected = _run(clean.double(), random_norm(d, lead).double(), segments, clean_upstream, **how)
    there = _segments(drawn, device, sizes)
    there = there if max_size else dataclasses.replace(there, max_size=None)
    poisoned, poisoned_upstream = inputs(float("nan"))
    with use_kernels("always"):
        actual = _run(poisoned.to(device), random_norm(d, lead).to(device), there, poisoned_upstream, **how)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if name == "inputs":  # passed as they are
            value, actual[name] = (t.masked_fill(padding[..., None], 0) for t in (value, actual[name]))
        assert_equal(actual[name], value, name, slack * TOLERANCE)


@pytest.mark.parametrize("divisor", [None, 70])
@pytest.mark.parametrize("d", [5, 32, 128, 130])
def test_values_and_gradients(d: int, divisor: int | None, kernel_device: str) -> None:
    _check(DRAWN, d, kernel_device, divisor=divisor)


def test_one_model(kernel_device: str) -> None:
    _check([1, 4, 5], 24, kernel_device)


def test_large_graphs_of_known_and_unknown_size(kernel_device: str) -> None:
    for known in (True, False):
        _check([[1, 0], [0, -1]], 8, kernel_device, sizes=[600, 3], max_size=known)


@pytest.mark.parametrize("read", [(True, False, False), (False, True, False), (True, False, True)])
def test_results_that_nothing_reads(read: tuple[bool, bool, bool], kernel_device: str) -> None:
    _check(DRAWN, 8, kernel_device, read=read)
    if not read[1]:
        _check(DRAWN, 8, kernel_device, read=read, residual=False)


def test_a_mean_far_from_zero_costs_little(kernel_device: str) -> None:
    _check(DRAWN, 8, kernel_device, far=100.0, slack=10)  # what float32 keeps of x


def test_only_the_inputs_are_read(kernel_device: str) -> None:
    segments = _segments([1, 4], kernel_device)
    x = torch.randn(*segments.index.shape, 8, device=kernel_device, requires_grad=True)
    grad = torch.randn_like(x)
    with use_kernels("always"):
        result = random_norm(8, ()).to(kernel_device).with_means(x, segments)
        (actual,) = torch.autograd.grad(result.inputs, x, grad)
    assert_equal(actual, grad, "gradient", 1e-6)


def test_conditions_of_the_kernel(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation and float64 take the separate operations."""
    from graphcaps.ops.batch_norm import norm_with_means_triton

    monkeypatch.setattr(norm_with_means_triton, "norm_with_means", None)
    segments = _segments([1, 4], kernel_device)
    x = torch.randn(*segments.index.shape, 8, device=kernel_device)
    with use_kernels("always"):
        random_norm(8, ()).to(kernel_device).eval().with_means(x, segments)
        random_norm(8, ()).double().to(kernel_device).with_means(x.double(), segments)
        with pytest.raises(TypeError):
            random_norm(8, ()).to(kernel_device).with_means(x, segments)
