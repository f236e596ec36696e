"""GFN against the same network of torch's layers, and its independence of edges."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphcaps.models.gfn import GFN
from tests.graphs import random_graphs
from tests.models.conv_reference import ConvReference, assert_equals_reference


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_equals_the_network_with_the_identity(training: bool) -> None:
    torch.manual_seed(0)
    model = GFN(5, 3, hidden=8, num_layers=2).train(training)
    reference = ConvReference(
        lambda hidden: nn.Linear(hidden, hidden, bias=False),
        lambda layer, x, edge_index, weight: layer(x),
        *(5, 3, 8, 2),
    )
    assert_equals_reference(model, reference)


def test_no_edge_is_read() -> None:
    graphs = random_graphs([6, 9, 4])
    model = GFN(5, 3, hidden=8).double().eval()
    scores = model(graphs.x, graphs.edge_index, graphs.batch).class_scores
    assert torch.equal(scores, model(graphs.x, graphs.edge_index[:, :2], graphs.batch).class_scores)


def test_initial_parameters() -> None:
    """Weights of layers are drawn as those of graph convolutions: within Glorot's bound of one replica."""
    torch.manual_seed(0)
    model = GFN(10, 3, hidden=14, lead=(40,))
    assert 0.97 * (6 / 28) ** 0.5 < float(model.convs[0].weight.detach().abs().max()) <= (6 / 28) ** 0.5
