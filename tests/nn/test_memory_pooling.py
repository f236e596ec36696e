"""Memory pooling against torch-geometric's MemPooling with the same weights, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import MemPooling

from graphcaps.errors import ArgumentError
from graphcaps.nn.memory_pooling import MemoryPooling
from tests.graphs import assert_equal, random_graphs


def _pair() -> tuple[MemoryPooling, MemPooling]:
    torch.manual_seed(0)
    ours = MemoryPooling(5, 4, 3, heads=2, key_gradient="all").double()
    theirs = MemPooling(5, 4, heads=2, num_clusters=3).double()
    with torch.no_grad():
        theirs.k.copy_(ours.keys)
        theirs.conv.weight.copy_(ours.merge.reshape(1, 2, 1, 1))
        theirs.lin.weight.copy_(ours.linear.weight.mT)
    return ours, theirs


@pytest.mark.parametrize("coarse", [False, True], ids=["ragged", "coarse"])
def test_equals_torch_geometric(coarse: bool) -> None:
    ours, theirs = _pair()
    graphs = random_graphs([6, 1, 9, 4])
    x, y = ((graphs.x.reshape(4, 5, 5) if coarse else graphs.x).clone().requires_grad_() for _ in range(2))
    pooled = ours(x, None if coarse else graphs.segments)
    expected, assignment = theirs(y, None if coarse else graphs.batch)
    assert_equal(pooled.x, expected, "pooled rows")
    rows = assignment if coarse else assignment[assignment.sum(-1) > 0]
    assert_equal(pooled.assignment, rows, "assignment")
    divergence = MemPooling.kl_loss(assignment)
    assert_equal(pooled.divergence.mean(), divergence, "divergence")
    direction = torch.randn_like(expected)
    ((pooled.x * direction).sum() + pooled.divergence.mean()).backward()
    ((expected * direction).sum() + divergence).backward()
    pairs = {
        "x": (x.grad, y.grad),
        "keys": (ours.keys.grad, theirs.k.grad),
        "merge": (ours.merge.grad, theirs.conv.weight.grad.flatten()),
        "linear": (ours.linear.weight.grad, theirs.lin.weight.grad.mT),
    }
    for name, (actual, wanted) in pairs.items():
        assert actual is not None
        assert float(wanted.abs().max()) > 1e-3
        assert_equal(actual, wanted, f"gradient of {name}")


def test_only_the_divergence_moves_the_keys() -> None:
    graphs = random_graphs([6, 3])
    ours, _ = _pair()
    ours.key_gradient = "divergence"
    ours(graphs.x, graphs.segments).x.sum().backward()
    assert ours.keys.grad is not None
    assert ours.merge.grad is not None
    assert not bool(ours.keys.grad.any())
    assert bool(ours.merge.grad.any())
    ours(graphs.x, graphs.segments).divergence.sum().backward()
    assert bool(ours.keys.grad.any())


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="MemoryPooling: 'num_keys' must be at least 1, got 0"):
        MemoryPooling(5, 4, 0)
    with pytest.raises(ArgumentError, match="'key_gradient' must be one of divergence, all, got 'none'"):
        MemoryPooling(5, 4, 2, key_gradient="none")  # type: ignore[arg-type]
