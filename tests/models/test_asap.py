"""ASAP against the same network of torch-geometric's GCNConv and ASAPooling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import ASAPooling, GCNConv, global_max_pool, global_mean_pool
from torch_geometric.utils import coalesce

from graphcaps.errors import ArgumentError
from graphcaps.models.asap import ASAP
from graphcaps.ops import neighbourhoods
from tests.graphs import assert_equal, random_graphs
from tests.nn.test_asap_pooling import their_name

# torch-geometric multiplies sparse matrices, and torch warns once per process that these are in beta state.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR tensor support|invariant checks)")


class _Reference(nn.Module):
    """The network of Ranjan, Sanyal and Talukdar without graphcaps; coarse edges have no gradient."""

    def __init__(self, in_channels: int, num_classes: int, hidden: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(width, hidden) for width in (in_channels, hidden, hidden))
        self.pools = nn.ModuleList(ASAPooling(hidden, 0.5, GNN=GCNConv) for _ in range(3))
        self.inner, self.outer = nn.Linear(2 * hidden, hidden), nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        weight = torch.ones(edge_index.size(1), dtype=x.dtype)
        readouts = []
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = conv(x, edge_index, weight).relu()
            x, edge_index, weight, batch, _ = pool(x, edge_index, weight, batch)
            weight = weight.detach()
            readouts.append(torch.cat([global_mean_pool(x, batch), global_max_pool(x, batch)], -1))
        logits: Tensor = self.outer(self.inner(torch.stack(readouts).sum(0)).relu())
        return logits


def _their_name(name: str) -> str:
    if name.startswith("pools"):
        pools, number, rest = name.split(".", 2)
        return f"{pools}.{number}.{their_name(rest)}"
    return name.replace("weight", "lin.weight") if name.startswith("convs") else name


@pytest.mark.parametrize("block", [None, 100], ids=["one block", "blocks"])
def test_equals_torch_geometric(block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, also where large tensors are computed in blocks."""
    if block is not None:
        monkeypatch.setattr(neighbourhoods, "_BLOCK_NUMBERS", block)
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 9, 14], classes=3)
    edge_index = coalesce(graphs.edge_index)
    model, reference = ASAP(5, 3, hidden=8).double(), _Reference(5, 3, 8).double()
    theirs = dict(reference.named_parameters())
    with torch.no_grad():
        for pool in reference.pools:
            pool.select.weight.fill_(1)  # a weight of one number, of which only the sign acts
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(value)
            theirs[_their_name(name)].copy_(value.mT if value.dim() == 2 else value)
    output = model(graphs.x, edge_index, graphs.batch)
    expected = reference(graphs.x, edge_index, graphs.batch)
    assert_equal(output.class_scores, expected, "logits")
    model.loss(output, graphs.y).total.backward()
    nn.functional.cross_entropy(expected, graphs.y).backward()
    for name, parameter in model.named_parameters():
        gradient: Any = theirs[_their_name(name)].grad
        assert parameter.grad is not None
        gradient = torch.zeros_like(theirs[_their_name(name)]) if gradient is None else gradient
        assert_equal(parameter.grad, gradient.mT if gradient.dim() == 2 else gradient, f"gradient of {name}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 1.5}, r"^ASAP: 'ratio' must be above 0 and at most 1, got 1\.5\.$"),
        ({"num_layers": 0}, r"^ASAP: 'num_layers' must be at least 1, got 0\.$"),
        (
            {"attention_dropout": 1.0},
            r"^ASAP: 'attention_dropout' must be at least 0 and below 1, got 1\.0\.$",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ASAP(5, 2, **options)
