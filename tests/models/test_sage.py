"""GraphSAGE against the same network of torch and torch-geometric's layers."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import SAGEConv

from graphcaps.errors import ArgumentError
from graphcaps.models.sage import GraphSAGE
from tests.models.conv_reference import ConvReference, assert_equals_reference


def _theirs(name: str) -> str:
    return name.replace("neighbours.", "lin_l.").replace("root.", "lin_r.")


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_equals_torch_geometric(training: bool) -> None:
    torch.manual_seed(0)
    model = GraphSAGE(5, 3, hidden=8, num_layers=2).train(training)
    reference = ConvReference(
        lambda hidden: SAGEConv(hidden, hidden),
        lambda layer, x, edge_index, weight: layer(x, edge_index),
        *(5, 3, 8, 2),
    )
    assert_equals_reference(model, reference, _theirs)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^GraphSAGE: 'hidden' must be at least 1, got 0\.$"):
        GraphSAGE(5, 2, hidden=0)
