"""Batch normalisation by kernels against the module's torch form in float64."""

import pytest
import torch
from torch import Tensor

from graphcaps.nn import RaggedBatchNorm
from graphcaps.ops._triton.dispatch import KernelMode, use_kernels
from tests.graphs import assert_equal
from tests.ops.norms import random_norm

TOLERANCE = 5e-5


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _rows(lead: tuple[int, ...], V: int, channels: int, padded: bool) -> tuple[Tensor, Tensor | None]:
    """Rows far from zero; with padding one replica has no real row, and one has a single one."""
    x = torch.randn(*lead, V, channels) * torch.linspace(0.1, 3, channels) + 20
    if not padded:
        return x, None
    mask = torch.rand(*lead, V) < 0.8
    mask[..., -2:] = False
    if lead:
        mask[1], mask[2] = False, torch.arange(V) == 3
    return x, mask


CASES = {
    "one model": ((), 100, 5, False),
    "one model, padded": ((), 33, 128, True),
    "one model, odd": ((), 65, 130, True),
    "replicas": ((3,), 63, 20, False),
    "replicas, padded": ((3,), 100, 250, True),
    "replicas of one row": ((3,), 1, 8, False),
    "long": ((3,), 700, 8, True),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_values_gradients_and_running_averages(
    case: tuple[tuple[int, ...], int, int, bool], training: bool, kernel_device: str
) -> None:
    lead, V, channels, padded = case
    norm = random_norm(channels, lead).to(kernel_device).train(training)
    reference = random_norm(channels, lead).double().train(training)
    x, mask = _rows(lead, V, channels, padded)
    upstream = torch.randn_like(x)
    poisoned, poisoned_grad, clean, clean_upstream = x, upstream, x, upstream
    if mask is not None:
        away = ~mask.unsqueeze(-1)
        poisoned, poisoned_grad = (t.masked_fill(away, float("nan")) for t in (x, upstream))
        clean, clean_upstream = (t.masked_fill(away, 0) for t in (x, upstream))
    poisoned = poisoned.to(kernel_device).requires_grad_()
    clean = clean.double().requires_grad_()
    there = None if mask is None else mask.to(kernel_device)
    with use_kernels("always"):
        actual = norm(poisoned, there)
        grads = torch.autograd.grad(
            actual, (poisoned, norm.weight, norm.bias), poisoned_grad.to(kernel_device)
        )
    with use_kernels("off"):
        expected = reference(clean, mask)
        true = torch.autograd.grad(
            expected, (clean, reference.weight, reference.bias), clean_upstream.double()
        )
    assert_equal(actual.cpu().double(), expected, "value", TOLERANCE)
    for name, one, two in zip(("x", "weight", "bias"), grads, true, strict=True):
        assert_equal(one.cpu().double(), two, f"gradient of {name}", TOLERANCE)
    assert_equal(norm.running_mean.cpu().double(), reference.running_mean, "running mean", TOLERANCE)
    assert_equal(norm.running_var.cpu().double(), reference.running_var, "running variance", TOLERANCE)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("padded", [False, True])
def test_standardised_rows(padded: bool, training: bool, kernel_device: str) -> None:
    norm, reference = random_norm(130, (3,)).to(kernel_device), random_norm(130, (3,)).double()
    x, mask = _rows((3,), 65, 130, padded)
    poisoned = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), float("nan"))
    with use_kernels("always"):
        there = None if mask is None else mask.to(kernel_device)
        actual = norm.train(training).standardise(poisoned.to(kernel_device), there)
    with use_kernels("off"):
        expected = reference.train(training).standardise(x.double(), mask)
    assert_equal(actual.cpu().double(), expected, "value", TOLERANCE)
    assert_equal(norm.running_mean.cpu().double(), reference.running_mean, "running mean", TOLERANCE)
    assert_equal(norm.running_var.cpu().double(), reference.running_var, "running variance", TOLERANCE)
    assert not actual.requires_grad


@pytest.mark.parametrize("kernels", ["always", "off"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_an_entry_of_the_mask_stands_for_several_rows(
    training: bool, kernels: KernelMode, kernel_device: str
) -> None:
    B, n = 20, 7
    graphs = torch.rand(3, B) < 0.7
    graphs[1] = False
    rows = graphs.repeat_interleave(n, -1)
    x = torch.randn(3, B * n, 20) + 5
    upstream = torch.randn_like(x).to(kernel_device)
    found = []
    for mask in (graphs, rows):
        norm = random_norm(20, (3,)).to(kernel_device).train(training)
        leaf = x.to(kernel_device).requires_grad_()
        with use_kernels(kernels):
            y = norm(leaf, mask.to(kernel_device))
            grads = torch.autograd.grad(y, (leaf, norm.weight, norm.bias), upstream)
            hat = norm.standardise(x.to(kernel_device), mask.to(kernel_device))
        found.append([y, *grads, hat, norm.running_mean, norm.running_var])
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


def test_a_mean_far_from_zero_costs_nothing(kernel_device: str) -> None:
    """Sums of squares would be off by 1e-7 · 1e6 here."""
    x = torch.randn(300, 16) + 1000
    norm, reference = RaggedBatchNorm(16).to(kernel_device), RaggedBatchNorm(16).double()
    with use_kernels("always"):
        actual = norm(x.to(kernel_device))
    assert_equal(actual.cpu().double(), reference(x.double()), "value", 5e-4)  # what float32 keeps of x
    assert_equal(norm.running_var.cpu().double(), reference.running_var, "running variance", 1e-5)


def test_several_tiles_join_in_a_part(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.ops.batch_norm.batch_norm_triton._MOST_PARTS", 2)
    test_values_gradients_and_running_averages(CASES["replicas, padded"], True, kernel_device)
