"""SAGPool against the same network of torch-geometric's GCNConv and SAGPooling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGPooling, global_max_pool, global_mean_pool
from torch_geometric.utils import coalesce

from graphcaps.errors import ArgumentError
from graphcaps.models.sagpool import SAGPool, SAGPoolVariant
from tests.graphs import assert_equal, random_graphs


class _Reference(nn.Module):
    """The network of Lee, Lee and Kang without graphcaps; modules have the names of ``SAGPool``."""

    def __init__(self, in_channels: int, num_classes: int, hidden: int, variant: SAGPoolVariant) -> None:
        super().__init__()
        self.variant = variant
        joined, scored = (3 * hidden, 1) if variant == "global" else (hidden, 3)
        self.convs = nn.ModuleList(GCNConv(width, hidden) for width in (in_channels, hidden, hidden))
        self.attentions = nn.ModuleList(SAGPooling(joined, 0.5, GNN=GCNConv) for _ in range(scored))
        self.first = nn.Linear(2 * joined, hidden)
        self.second = nn.Linear(hidden, hidden // 2)
        self.last = nn.Linear(hidden // 2, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        readouts = []
        if self.variant == "global":
            layers = []
            for conv in self.convs:
                x = conv(x, edge_index).relu()
                layers.append(x)
            x, _, _, batch, _, _ = self.attentions[0](torch.cat(layers, -1), edge_index, batch=batch)
            readouts.append(torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], -1))
        else:
            for conv, attention in zip(self.convs, self.attentions, strict=True):
                x = conv(x, edge_index).relu()
                x, edge_index, _, batch, _, _ = attention(x, edge_index, batch=batch)
                readouts.append(torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], -1))
        hidden = self.second(self.first(torch.stack(readouts).sum(0)).relu()).relu()
        logits: Tensor = self.last(hidden)
        return logits


def _their_name(name: str) -> str:
    if "convs" in name:
        return name.replace("weight", "lin.weight")
    if "attentions" in name:
        head, tail = name.rsplit(".", 1)
        return f"{head}.gnn.{'lin.weight' if tail == 'weight' else tail}"
    return name


@pytest.mark.parametrize("variant", ["hierarchical", "global"])
def test_equals_torch_geometric(variant: SAGPoolVariant) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 9, 14], classes=3)
    edge_index = coalesce(graphs.edge_index)
    model = SAGPool(5, 3, hidden=8, variant=variant, dropout=0.0).double()
    for attention in model.attentions:
        nn.init.normal_(attention.bias)
    reference = _Reference(5, 3, 8, variant).double()
    theirs = dict(reference.named_parameters())
    with torch.no_grad():
        for pooling in reference.attentions:
            pooling.select.weight.fill_(1)  # a weight of one number, of which only the sign acts
        for name, value in model.named_parameters():
            theirs[_their_name(name)].copy_(value.mT if value.dim() == 2 else value)
    output = model(graphs.x, edge_index, graphs.batch)
    expected = reference(graphs.x, edge_index, graphs.batch)
    assert_equal(output.class_scores, expected, "logits")
    model.loss(output, graphs.y).total.backward()
    nn.functional.cross_entropy(expected, graphs.y).backward()
    for name, parameter in model.named_parameters():
        gradient: Any = theirs[_their_name(name)].grad
        assert parameter.grad is not None
        assert_equal(parameter.grad, gradient.mT if gradient.dim() == 2 else gradient, f"gradient of {name}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "both"}, r"^SAGPool: 'variant' must be 'hierarchical' or 'global', got 'both'\.$"),
        ({"ratio": 0.0}, r"^SAGPool: 'ratio' must be above 0 and at most 1, got 0\.0\.$"),
        ({"hidden": 1}, r"^SAGPool: 'hidden' must be at least 2, got 1\.$"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        SAGPool(5, 2, **options)
