"""FieldConv against torch's Conv1d on fields that are filled with zeros."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ShapeError
from graphcaps.nn.field_conv import FieldConv
from tests.coarse_levels import levelled_store
from tests.graphs import assert_equal

GRAPHS = torch.tensor([[0, 1, 3], [4, 2, -1]])
"""Two replicas, with a graph without nodes and a padding graph."""
W, K = 6, 4


def _fields(x: Tensor, members: list[list[list[int]]]) -> Tensor:
    """Rows of ``x [V, in]`` of the members of each graph, ``[B, W · K, in]``, 0 where there is none."""
    joined = x.new_zeros(len(members), W, K, x.size(-1))
    for g, graph in enumerate(members):
        for f, field in enumerate(graph[:W]):
            for p, row in enumerate(field[:K]):
                joined[g, f, p] = x[row]
    return joined.flatten(1, 2)


def test_equals_torch() -> None:
    torch.manual_seed(0)
    store, _ = levelled_store()
    features = torch.randn(store.num_nodes, 5, dtype=torch.float64)
    batch = store.batch(features, GRAPHS)
    level = batch.levels[0]
    conv = FieldConv(5, 3, W, K, lead=(2,)).double()
    x = batch.x.detach().requires_grad_()
    value = conv(x, level)
    value.sin().sum().backward()
    for f in range(2):
        coarse, pairs = level.segments.ptr[f].tolist(), level.members.segments.ptr[f].tolist()
        source = level.members.source[f].tolist()
        members = [
            [source[pairs[row] : pairs[row + 1]] for row in range(a, b)]
            for a, b in itertools.pairwise(coarse)
        ]
        torch_conv = nn.Conv1d(5, 3, K, K).double()
        with torch.no_grad():
            torch_conv.weight.copy_(conv.weight[f].unflatten(-1, (K, 3)).permute(2, 0, 1))
            assert torch_conv.bias is not None
            torch_conv.bias.copy_(conv.bias[f])
        rows = batch.x[f].detach().requires_grad_()
        expected = torch_conv(_fields(rows, members).mT).mT
        assert_equal(value[f], expected)
        expected.sin().sum().backward()
        assert x.grad is not None
        assert rows.grad is not None
        assert conv.weight.grad is not None
        assert torch_conv.weight.grad is not None
        assert_equal(x.grad[f], rows.grad, "gradient of x")
        assert_equal(
            conv.weight.grad[f].unflatten(-1, (K, 3)).permute(2, 0, 1),
            torch_conv.weight.grad,
            "gradient of W",
        )


def test_columns_are_checked() -> None:
    store, _ = levelled_store()
    batch = store.batch(torch.zeros(store.num_nodes, 4, dtype=torch.float64), GRAPHS[0])
    with pytest.raises(ShapeError, match=r"^FieldConv: 'x' must have 5 columns, got 4\.$"):
        FieldConv(5, 3, W, K)(batch.x, batch.levels[0])
