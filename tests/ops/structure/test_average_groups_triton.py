"""Means over groups by the kernel are those of the torch form, with their gradient."""

from __future__ import annotations

import pytest
import torch

from graphcaps.data.precompute import precompute
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.structure.modularity_groups import ModularityGroups
from graphcaps.ops.structure.pool_members import average_groups
from tests.graphs import assert_equal, random_graphs


@pytest.mark.parametrize("d", [1, 10, 150])
@pytest.mark.parametrize(
    "chosen", [[0, 1, 2, 3], [[1, 2, -1], [0, 3, 1], [-1, -1, -1]]], ids=["one", "replicas"]
)
def test_kernel_is_torch(kernel_device: str, empty_is_nan: None, chosen: list[int], d: int) -> None:
    """Padding rows hold NaN; one replica has no others."""
    graphs = random_graphs([7, 40, 1, 12], density=2.0)
    store = precompute(graphs.as_store(), ModularityGroups())
    batch = store.batch(graphs.x, torch.tensor(chosen))
    padding = (batch.segments.index >= batch.segments.num_graphs).unsqueeze(-1)
    generator = torch.Generator().manual_seed(1)
    x, grad = torch.randn(2, *batch.segments.index.shape, d, generator=generator)
    exact = x.double().requires_grad_()
    expected = average_groups(exact, batch.levels[0])
    expected.backward(grad.double())
    there = store.to(kernel_device).batch(graphs.x.to(kernel_device), torch.tensor(chosen).to(kernel_device))
    leaf = x.masked_fill(padding, float("nan")).to(kernel_device).requires_grad_()
    with use_kernels("always"):
        actual = average_groups(leaf, there.levels[0])
        assert "_AverageGroups" in type(actual.grad_fn).__name__
        actual.backward(grad.to(kernel_device))
    assert_equal(actual.detach().cpu().double(), expected.detach(), "means", 1e-6)
    assert leaf.grad is not None
    assert exact.grad is not None
    assert_equal(leaf.grad.cpu().double(), exact.grad, "gradient", 1e-6)
    assert bool((actual.detach().cpu().masked_select(padding) == 0).all())
