"""Layers against those of torch-geometric: the values, and the gradients of x or of edge weights.

The gradients of the parameters are left in them, for the caller to compare.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import coalesce

from tests.graphs import Graphs, assert_equal

__all__ = ["compare_layers", "compare_weighted_layers"]


def compare_layers(ours: Any, theirs: Any, graphs: Graphs) -> None:
    """Without edge weights."""
    one, two = graphs.x.clone().requires_grad_(), graphs.x.clone().requires_grad_()
    value = ours(one, graphs.edge_index, graphs.batch)
    expected = theirs(two, coalesce(graphs.edge_index))
    _compare(value, expected, one, two, "gradient of x")


def compare_weighted_layers(ours: Any, theirs: Any, graphs: Graphs, weight: Tensor) -> None:
    """With one weight for both directions of an edge; the edges list all of one direction first."""
    one, two = weight.clone().requires_grad_(), weight.clone().requires_grad_()
    value = ours(graphs.x, graphs.edge_index, graphs.batch, edge_weight=torch.cat([one, one]))
    expected = theirs(graphs.x, graphs.edge_index, torch.cat([two, two]))
    _compare(value, expected, one, two, "gradient of the edge weights")


def _compare(value: Tensor, expected: Tensor, one: Tensor, two: Tensor, name: str) -> None:
    assert_equal(value, expected)
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert one.grad is not None
    assert_equal(one.grad, two.grad, name)
