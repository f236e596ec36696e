"""Normalisation, hop and mean of the capsules of a level in one operation: those of three operations in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.nn import CapsuleLayer, RaggedBatchNorm
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.propagation.propagation import dense_propagate
from tests.graphs import assert_equal
from tests.ops.norms import random_norm


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _outcome(
    results: list[Tensor], norm: RaggedBatchNorm, leaf: Tensor, grads: list[Tensor]
) -> dict[str, Tensor]:
    torch.autograd.backward(results, grads)
    found = {"h": results[0], "mean": results[1], "gradient of u": leaf.grad}
    found |= {f"gradient of {name}": value.grad for name, value in norm.named_parameters()}
    found |= dict(norm.named_buffers())
    return {name: value.detach().cpu().double() for name, value in found.items() if value is not None}


@pytest.mark.parametrize("masked", [False, True], ids=["all graphs", "graphs without nodes"])
@pytest.mark.parametrize(
    ("n", "d", "lead", "B"), [(1, 8, (2,), 4), (5, 128, (), 7), (20, 33, (2,), 9), (10, 160, (2,), 4)]
)
def test_values_and_gradients(
    kernel_device: str, n: int, d: int, lead: tuple[int, ...], B: int, masked: bool
) -> None:
    """Of graphs without nodes nothing is read: their capsules, and the gradients of their results, are NaN."""
    torch.manual_seed(n + d)
    u, dh = torch.randn(2, *lead, B, n, d)
    dmean, A = torch.randn(*lead, B, 1, d), torch.rand(*lead, B, n, n)  # not symmetric
    u += 3  # statistics of a mean that is not 0
    mask = torch.rand(*lead, B) < 0.7
    mask[..., 0] = True
    graph_mask = mask if masked else None
    empty = (~mask if masked else torch.zeros_like(mask))[..., None, None]

    exact, leaf = random_norm(d, lead).double(), u.masked_fill(empty, 0).double().requires_grad_()
    hat = exact(leaf.flatten(-3, -2), graph_mask).unflatten(-2, (B, n))
    expected = _outcome(
        [dense_propagate(hat, A.double()), hat.mean(-2, keepdim=True)],
        exact,
        leaf,
        [value.masked_fill(empty, 0).double() for value in (dh, dmean)],
    )

    norm = random_norm(d, lead).to(kernel_device)
    poisoned = u.masked_fill(empty, float("nan")).to(kernel_device).requires_grad_()
    with use_kernels("always"):
        hop = norm.dense_hop(
            poisoned, A.to(kernel_device), None if graph_mask is None else graph_mask.to(kernel_device)
        )
    assert hop.sums is not None
    assert not hop.sums.requires_grad
    assert_equal(hop.sums.cpu(), hop.h.detach().sum(-2).cpu(), "sums", 1e-5)
    grads = [value.masked_fill(empty, float("nan")).to(kernel_device) for value in (dh, dmean)]
    actual = _outcome([hop.h, hop.mean], norm, poisoned, grads)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(1.0, float(value.abs().max()))
        assert_equal(actual[name] / scale, value / scale, name, 5e-6)


def test_only_the_hop_needs_a_gradient(kernel_device: str) -> None:
    """Without residual, the mean is not read."""
    u, A = torch.randn(2, 3, 4, 16), torch.rand(2, 3, 4, 4)
    grads = []
    for mode in ("always", "off"):
        norm, leaf = random_norm(16, (2,)).to(kernel_device), u.to(kernel_device).requires_grad_()
        with use_kernels(mode):  # type: ignore[arg-type]
            norm.dense_hop(leaf, A.to(kernel_device)).h.square().sum().backward()
        assert leaf.grad is not None
        grads.append(leaf.grad.cpu())
    assert_equal(*grads, "gradient", 1e-4)


def test_in_evaluation_mode_the_layer_uses_the_running_statistics(kernel_device: str) -> None:
    torch.manual_seed(0)
    layer = CapsuleLayer(16, 16, 3, coarsen=False).eval().to(kernel_device)
    u, A = torch.randn(4, 5, 16).to(kernel_device), torch.rand(4, 5, 5).to(kernel_device)
    with torch.no_grad(), use_kernels("always"):
        actual = layer.forward_dense(u, A).capsules
    with torch.no_grad(), use_kernels("off"):
        expected = layer.forward_dense(u, A).capsules
    assert_equal(actual.cpu(), expected.cpu(), "capsules", 1e-4)
