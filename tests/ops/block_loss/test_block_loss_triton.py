"""The block loss by kernels is that of the torch form in float64, with its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.block_loss.block_loss import block_loss
from graphcaps.types import GraphBatch
from tests.graphs import Graphs, assert_equal, random_graphs, with_weights

TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _batch(graphs: Graphs, chosen: Tensor, weighted: bool, device: str) -> GraphBatch:
    store = with_weights(graphs.as_store()) if weighted else graphs.as_store()
    return store.to(device).batch(graphs.x.to(device), chosen.to(device))


def _assignment(batch: GraphBatch, J: int, sharpness: float) -> Tensor:
    """Rows that sum to 1; 0 at padding."""
    generator = torch.Generator().manual_seed(4)
    c = (sharpness * torch.randn(*batch.segments.index.shape, J, generator=generator)).softmax(-1)
    return c.masked_fill((batch.segments.index >= batch.segments.num_graphs).cpu().unsqueeze(-1), 0)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("J", "sharpness", "temperature"), [(2, 1.0, 0.5), (4, 1.0, 0.5), (10, 40.0, 1.0), (40, 2.0, 0.0)]
)
@pytest.mark.parametrize(
    "chosen",
    [[0, 1, 2, 3], [[1, 2, -1, 0], [3, 0, 1, 2], [-1, -1, -1, -1], [2, -1, -1, -1]]],
    ids=["one", "replicas"],
)
def test_kernel_is_torch(
    kernel_device: str, chosen: list[int], J: int, sharpness: float, temperature: float, weighted: bool
) -> None:
    """Assignments of exactly 0 and 1 among others; a replica of padding, and one whose graph has no edges."""
    graphs = random_graphs([7, 40, 1, 12], density=2.0)
    batch = _batch(graphs, torch.tensor(chosen), weighted, "cpu")
    there = _batch(graphs, torch.tensor(chosen), weighted, kernel_device)
    c = _assignment(batch, J, sharpness)
    exact = c.double().requires_grad_()
    expected = block_loss(exact, batch.edges, batch.segments, temperature=temperature)
    outer = torch.linspace(0.5, 2, max(expected.numel(), 1)).reshape(expected.shape)
    expected.backward(outer.double())
    leaf = c.to(kernel_device).requires_grad_()
    with use_kernels("always"):
        actual = block_loss(leaf, there.edges, there.segments, temperature=temperature)
        assert "_BlockLoss" in type(actual.grad_fn).__name__
        actual.backward(outer.to(kernel_device))
    assert_equal(actual.detach().cpu().double(), expected.detach(), "loss", TOLERANCE)
    assert leaf.grad is not None
    assert exact.grad is not None
    # The gradient of the torch form at padding is not that of a variable: no one reads it.
    padding = (batch.segments.index >= batch.segments.num_graphs).unsqueeze(-1)
    reference = exact.grad.masked_fill(padding, 0)
    scale = float(reference.abs().max())
    assert scale > 0
    assert_equal(leaf.grad.cpu().double() / scale, reference / scale, "gradient", TOLERANCE)
    assert bool((leaf.grad.cpu().masked_select(padding) == 0).all())


def test_a_batch_without_edges_has_no_loss(kernel_device: str) -> None:
    graphs = random_graphs([1, 1])
    batch = _batch(graphs, torch.tensor([0, 1]), False, kernel_device)
    leaf = torch.full((2, 3), 1 / 3, device=kernel_device, requires_grad=True)
    with use_kernels("always"):
        loss = block_loss(leaf, batch.edges, batch.segments)
    loss.backward()
    assert float(loss.detach()) == 0
    assert leaf.grad is not None
    assert not bool(leaf.grad.any())


def test_nan_reaches_the_loss(kernel_device: str) -> None:
    graphs = random_graphs([7, 5])
    batch = _batch(graphs, torch.tensor([[0], [1]]), False, kernel_device)
    c = _assignment(batch, 3, 1.0).to(kernel_device)
    c[1, 2, 0] = float("nan")
    with use_kernels("always"):
        loss = block_loss(c, batch.edges, batch.segments)
    assert loss.isnan().tolist() == [False, True]
