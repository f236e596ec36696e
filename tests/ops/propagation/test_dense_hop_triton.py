"""The hop among capsules of a level is that of torch: sums over neighbours, means, gradient."""

from __future__ import annotations

import pytest
import torch

from graphcaps.ops.propagation.propagation import dense_propagate
from tests.graphs import assert_equal


@pytest.mark.parametrize(
    ("n", "d", "lead"),
    [(1, 8, (2,)), (5, 128, ()), (20, 32, (2,)), (32, 20, (2,)), (25, 160, ())],
)
def test_dense_hop_equals_torch(kernel_device: str, n: int, d: int, lead: tuple[int, ...]) -> None:
    from graphcaps.ops.propagation.dense_hop_triton import dense_hop

    torch.manual_seed(n + d)
    u, gradient = torch.randn(2, *lead, 4, n, d)
    shared = torch.randn(*lead, 4, 1, d)
    A = torch.rand(*lead, 4, n, n)  # not symmetric: the gradient must take the transpose
    A[..., 0, :, :] = 0
    A[..., 1, 0, :] = -2  # a sum below 0 counts as 0
    reference = u.double().requires_grad_()
    expected, mean = dense_propagate(reference, A.double()), reference.mean(-2, keepdim=True)
    torch.autograd.backward([expected, mean], [gradient.double(), shared.double()])
    leaf = u.to(kernel_device).requires_grad_()
    actual = dense_hop(leaf, A.to(kernel_device))
    torch.autograd.backward(actual, [gradient.to(kernel_device), shared.to(kernel_device)])
    assert_equal(actual[0].detach().cpu().double(), expected.detach(), "h", 2e-6)
    assert_equal(actual[1].detach().cpu().double(), mean.detach(), "mean", 2e-6)
    assert leaf.grad is not None
    assert reference.grad is not None
    assert_equal(leaf.grad.cpu().double(), reference.grad, "gradient", 2e-6)


@pytest.mark.parametrize(
    ("n", "d", "lead"),
    [(1, 8, (2,)), (5, 128, ()), (20, 32, (2,)), (25, 160, ())],
)
def test_the_adjacency_gets_its_gradient(
    kernel_device: str, empty_is_nan: None, n: int, d: int, lead: tuple[int, ...]
) -> None:
    from graphcaps.ops.propagation.dense_hop_triton import dense_hop

    torch.manual_seed(n + d)
    u, gradient = torch.randn(2, *lead, 4, n, d)
    shared = torch.randn(*lead, 4, 1, d)
    A = torch.rand(*lead, 4, n, n)
    A[..., 0, :, :] = 0  # a sum of exactly 0 has a gradient
    A[..., 1, 0, :] = -2  # a sum below 0 counts as 0, and its scale has none
    exact = [value.double().requires_grad_() for value in (u, A)]
    results = [dense_propagate(*exact), exact[0].mean(-2, keepdim=True)]
    torch.autograd.backward(results, [gradient.double(), shared.double()])
    leaves = [value.to(kernel_device).requires_grad_() for value in (u, A)]
    actual = dense_hop(*leaves)
    torch.autograd.backward(actual, [gradient.to(kernel_device), shared.to(kernel_device)])
    for name, leaf, reference in zip(("u", "A"), leaves, exact, strict=True):
        assert leaf.grad is not None
        assert reference.grad is not None
        scale = float(reference.grad.abs().max())
        assert_equal(leaf.grad.cpu().double() / scale, reference.grad / scale, f"gradient of {name}", 2e-6)


def test_padding_graphs_touch_no_other(kernel_device: str) -> None:
    from graphcaps.ops.propagation.dense_hop_triton import dense_hop

    u, A = torch.randn(3, 4, 16, device=kernel_device), torch.rand(3, 4, 4, device=kernel_device)
    before = dense_hop(u, A)
    u[1], A[1] = float("nan"), float("nan")
    after = dense_hop(u, A)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
