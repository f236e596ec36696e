"""Normalisation, activation and residual by kernels against the torch form in float64."""

from __future__ import annotations

import pytest
import torch

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.batch_norm.activated_norm import activated_norm
from tests.graphs import assert_equal
from tests.ops.batch_norm.test_batch_norm_triton import _rows
from tests.ops.norms import random_norm

# The rounding of normalised rows, 5e-5 in the tests of the normalisation alone, passes through the activation.
TOLERANCE = 1e-4

CASES = {
    "one model": ((), 100, 6, False),
    "one model, padded": ((), 33, 256, True),
    "one model, odd": ((), 65, 130, True),
    "replicas": ((3,), 63, 20, False),
    "replicas, padded": ((3,), 100, 10, True),
    "long": ((3,), 700, 8, True),
}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("gated", [False, True], ids=["relu", "gated"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_values_gradients_and_running_averages(
    case: tuple[tuple[int, ...], int, int, bool], gated: bool, training: bool, kernel_device: str
) -> None:
    lead, V, channels, padded = case
    norm = random_norm(channels, lead).to(kernel_device).train(training)
    reference = random_norm(channels, lead).double().train(training)
    x, mask = _rows(lead, V, channels, padded)
    width = channels // 2 if gated else channels
    h, upstream = torch.randn(2, *lead, V, width)
    poison = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), float("nan"))
    exact = [x.double().requires_grad_(), h.double().requires_grad_()]
    leaves = [value.to(kernel_device).requires_grad_() for value in (poison, h)]
    expected = reference.activate(exact[0], mask, exact[1], gated=gated)
    expected.backward(upstream.double())
    there = None if mask is None else mask.to(kernel_device)
    with use_kernels("always"):
        actual = norm.activate(leaves[0], there, leaves[1], gated=gated)
        assert "_ActivatedNorm" in type(actual.grad_fn).__name__
    actual.backward(upstream.to(kernel_device))
    assert_equal(actual.detach().cpu().double(), expected.detach(), "result", TOLERANCE)
    pairs = {
        "x": (leaves[0].grad, exact[0].grad),
        "residual": (leaves[1].grad, exact[1].grad),
        "weight": (norm.weight.grad, reference.weight.grad),
        "bias": (norm.bias.grad, reference.bias.grad),
    }
    for name, (one, other) in pairs.items():
        assert one is not None
        assert other is not None
        scale = float(other.abs().max().clamp_min(1e-12))
        assert_equal(one.cpu().double() / scale, other / scale, f"gradient of {name}", TOLERANCE)
    for name in ("running_mean", "running_var"):
        assert_equal(getattr(norm, name).cpu().double(), getattr(reference, name), name, TOLERANCE)


@pytest.mark.parametrize("gated", [False, True], ids=["relu", "gated"])
def test_without_a_residual(gated: bool, kernel_device: str) -> None:
    norm, reference = random_norm(8, ()).to(kernel_device), random_norm(8, ()).double()
    x, mask = _rows((), 40, 8, True)
    assert mask is not None
    leaf, exact = x.clone().to(kernel_device).requires_grad_(), x.double().requires_grad_()
    with use_kernels("always"):
        actual = norm.activate(leaf, mask.to(kernel_device), gated=gated)
    expected = reference.activate(exact, mask, gated=gated)
    actual.sum().backward()
    expected.sum().backward()
    assert_equal(actual.detach().cpu().double(), expected.detach(), "result", TOLERANCE)
    assert leaf.grad is not None
    assert exact.grad is not None
    assert_equal(leaf.grad.cpu().double(), exact.grad, "gradient", TOLERANCE)
    assert bool((actual.detach().cpu()[~mask] == 0).all())


def test_nan_of_a_real_row_stays_nan(kernel_device: str) -> None:
    norm = random_norm(4, ()).to(kernel_device).eval()
    x = torch.randn(3, 4, device=kernel_device)
    x[1, 2] = float("nan")
    with use_kernels("always"):
        assert norm.activate(x).isnan().sum() == 1


def test_messages() -> None:
    norm = random_norm(5, ())
    options = {"training": True, "momentum": 0.1, "epsilon": 1e-5}
    running = (norm.running_mean, norm.running_var)
    with pytest.raises(ShapeError, match=r"'x' must have an even number of columns, got \[3, 5\]\."):
        activated_norm(torch.ones(3, 5), None, norm.weight, norm.bias, running, gated=True, **options)
    with pytest.raises(ShapeError, match=r"'residual' must have the shape \[3, 5\], got \[3, 4\]\."):
        activated_norm(torch.ones(3, 5), None, norm.weight, norm.bias, running, torch.ones(3, 4), **options)
