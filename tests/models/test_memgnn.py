"""MemGNN against the same network of torch-geometric's GATConv and MemPooling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import coalesce

from graphcaps.errors import ArgumentError
from graphcaps.models.memgnn import MemGNN
from graphcaps.ops._triton.dispatch import WIDEST_ATTENTION
from tests.graphs import assert_equal, random_graphs
from tests.models.test_gmn import copy_memories, run_memories


def test_equals_torch_geometric() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 5, 4], classes=3)
    model = MemGNN(
        5, 3, hidden=6, num_keys=(4,), heads=2, key_gradient="all", divergence_weight=0.3, dropout=0.0
    )
    model = model.double()
    layers = copy_memories(model)
    q = nn.functional.batch_norm(graphs.x, None, None, training=True)
    convs = []
    for own in model.convs:
        conv = GATConv(*own.weight.shape).double()  # type: ignore[misc, union-attr]
        with torch.no_grad():
            conv.lin.weight.copy_(own.weight.mT)  # type: ignore[union-attr]
            conv.att_dst.copy_(own.attention[:, 0].reshape(1, 1, -1))  # type: ignore[index]
            conv.att_src.copy_(own.attention[:, 1].reshape(1, 1, -1))  # type: ignore[index]
        q = nn.functional.leaky_relu(conv(q, coalesce(graphs.edge_index)), 0.2)
        convs.append(conv)
    scores, divergence = run_memories(model, layers, q, graphs.batch)
    expected = nn.functional.cross_entropy(scores, graphs.y) + 0.3 * divergence

    output = model(graphs.x, graphs.edge_index, graphs.batch)
    terms = model.loss(output, graphs.y)
    assert_equal(output.class_scores, scores, "logits")
    assert_equal(terms.total, expected, "loss")
    terms.total.backward()
    expected.backward()
    pairs: dict[str, Any] = {"keys": (model.memories[0].keys.grad, layers[0].k.grad)}
    for number, (own, conv) in enumerate(zip(model.convs, convs, strict=True)):
        pairs[f"W of layer {number}"] = (own.weight.grad, conv.lin.weight.grad.mT)
        pairs[f"a of layer {number}"] = (own.attention.grad[:, 0], conv.att_dst.grad.flatten())  # type: ignore[index, union-attr]
    for name, (actual, wanted) in pairs.items():
        assert_equal(actual, wanted, f"gradient of {name}")


@pytest.mark.parametrize("hidden", [WIDEST_ATTENTION, WIDEST_ATTENTION + 1])
def test_steps_are_captured_as_far_as_attention_has_a_kernel(hidden: int) -> None:
    assert MemGNN(5, 2, hidden=hidden).capturable is (hidden == WIDEST_ATTENTION)


def test_edge_labels_change_the_scores() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9])
    edge_index = coalesce(graphs.edge_index)
    model = MemGNN(5, 2, hidden=6, edge_kinds=(2,)).double().eval()
    label = model.convs[0].label
    assert isinstance(label, nn.Parameter)
    nn.init.normal_(label)
    labels = [torch.full(edge_index.shape[1:], value) for value in (0, 1)]
    one, other = (model(graphs.x, edge_index, graphs.batch, edge_attr=each).class_scores for each in labels)
    assert not torch.allclose(one, other)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^MemGNN: 'num_layers' must be at least 1, got 0"):
        MemGNN(5, 2, num_layers=0)
    with pytest.raises(ArgumentError, match="'dropout' must be at least 0 and below 1, got 1"):
        MemGNN(5, 2, dropout=1.0)
