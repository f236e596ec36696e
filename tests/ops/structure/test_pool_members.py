"""Pooling of members against loops over coarse nodes; values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.data.batching import collate_padded
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.ops.ragged.reductions import clear_padding
from graphcaps.ops.structure.pool_members import MemberReduction, pool_members
from graphcaps.types import CoarseLevel
from tests.coarse_levels import levelled_store
from tests.graphs import assert_equal

BATCH = torch.tensor([[1, 0, 4], [3, 2, -1], [-1, -1, -1]])


def pool_in_a_loop(x: Tensor, level: CoarseLevel, reduction: MemberReduction) -> Tensor:
    members = level.members
    rows = []
    for f in range(x.size(0)):
        for first, end in zip(
            members.segments.ptr[f, :-1].tolist(), members.segments.ptr[f, 1:].tolist(), strict=True
        ):
            own = x[f, members.source[f, first:end]]
            if reduction == "max":
                rows.append(own.amax(0) if end > first else x.new_zeros(x.size(-1)))
            elif reduction == "mean":
                rows.append(own.mean(0) if end > first else x.new_zeros(x.size(-1)))
            else:
                weights = members.weights
                one = own.new_ones(end - first, 1) if weights is None else weights[f, first:end]
                rows.append((one.T @ own).flatten())
    return torch.stack(rows).unflatten(0, (x.size(0), -1))


@pytest.mark.parametrize("reduction", ["sum", "mean", "max"])
@pytest.mark.parametrize("number", [0, 1])
def test_equals_a_loop(number: int, reduction: MemberReduction) -> None:
    store, graphs = levelled_store()
    batch = collate_padded(store, graphs.x, BATCH, 25)
    level = batch.levels[number]
    V = batch.levels[number - 1].segments.num_rows if number else 25
    torch.manual_seed(0)
    x = torch.randn(3, V, 4, dtype=torch.float64, requires_grad=True)
    pooled = pool_members(x, level, reduction)
    expected = pool_in_a_loop(x, level, reduction)
    assert_equal(pooled, expected)
    direction = torch.randn_like(expected)
    gradients = [torch.autograd.grad((each * direction).sum(), x)[0] for each in (pooled, expected)]
    assert_equal(gradients[0], gradients[1], "gradient")
    assert gradients[0].abs().max() > 0


def test_rows_that_share_a_maximum_share_its_gradient() -> None:
    store, graphs = levelled_store()
    level = store.batch(graphs.x, [0]).levels[1]
    x = torch.tensor([[2.0], [2.0], [1.0]], dtype=torch.float64, requires_grad=True)
    pool_members(x, level, "max").sum().backward()
    assert x.grad.squeeze(-1).tolist() == [0.5, 0.5, 0.0]


def test_refusals() -> None:
    store, graphs = levelled_store()
    level = store.batch(graphs.x, BATCH).levels[0]
    with pytest.raises(ArgumentError, match="'reduction' must be one of sum, mean, max, got 'min'"):
        pool_members(graphs.x, level, "min")
    with pytest.raises(ShapeError, match=r"'x' must have the leading axes \[3\], got \[\]"):
        pool_members(graphs.x, level)


def test_equals_the_kernels(kernel_device: str) -> None:
    store, graphs = levelled_store(torch.float32)
    store = store.to(kernel_device)
    batch = collate_padded(store, graphs.x.float().to(kernel_device), BATCH.to(kernel_device), 25)
    results = []
    for mode in ("off", "always" if kernel_device == "cpu" else "auto"):
        x = batch.x.clone().requires_grad_()
        with use_kernels(mode):
            pooled = pool_members(clear_padding(x, batch.segments), batch.levels[0])
            pooled = propagate(pooled, batch.levels[0].edges)
            (gradient,) = torch.autograd.grad(pooled.square().sum(), x)
        results.append((pooled, gradient))
    for name, plain, kernel in zip(("value", "gradient"), *results, strict=True):
        assert_equal(kernel, plain, name, 1e-5)
