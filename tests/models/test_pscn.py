"""PSCN against the same network of torch's convolutions, one graph at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphcaps.config import RunConfig
from graphcaps.data.structures.receptive_fields import order_nodes, receptive_fields
from graphcaps.errors import ArgumentError
from graphcaps.models.pscn import PSCN
from graphcaps.ops.structure.precomputation import PlainGraph
from graphcaps.registry import DatasetSize
from graphcaps.training.auto_config import resolve_config
from tests.graphs import Graphs, assert_equal, random_graphs

W, K = 12, 4


class _Reference(nn.Module):
    """The network of Niepert et al. without graphcaps."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(in_channels)
        self.fields = nn.Conv1d(in_channels, 16, K, K)
        self.windows = nn.Conv1d(16, 8, 10)
        self.inner = nn.Linear(8 * (W - 9), 128)
        self.outer = nn.Linear(128, num_classes)

    def forward(self, graphs: Graphs) -> Tensor:
        normed, first, joined = self.input_norm(graphs.x), 0, []
        for g in range(len(graphs.y)):
            one = graphs.one(g)
            n = len(one.x)
            nodes = _fields(one)
            rows = torch.cat([normed[first : first + n], normed.new_zeros(1, normed.size(1))])[
                nodes
            ]  # -1: zeros
            joined.append(torch.nn.functional.pad(rows.flatten(0, 1), (0, 0, 0, W * K - nodes.numel())))
            first += n
        z = self.windows(self.fields(torch.stack(joined).mT).relu()).relu()
        logits: Tensor = self.outer(self.inner(z.flatten(1)).relu())
        return logits


def _fields(graph: Graphs) -> Tensor:
    ptr, neighbours = graph.edges.ptr.numpy(), graph.edges.neighbours.long().numpy()
    plain = PlainGraph(ptr[: len(graph.x) + 1], neighbours)
    return torch.from_numpy(receptive_fields(plain, order_nodes(plain), W, K))


def _in_our_layout(name: str, value: Tensor) -> Tensor:
    """A parameter or gradient of the reference in the layout of ``PSCN``."""
    if name == "inner.weight":  # positions before channels
        return value.unflatten(1, (8, -1)).mT.flatten(1).mT
    if name == "fields.weight":
        return value.permute(1, 2, 0).flatten(1)
    return value.flatten(1).mT if value.dim() > 1 else value


def test_equals_torch() -> None:
    """Graphs with more and with fewer nodes than fields; values and gradients."""
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 12, 14], classes=3)
    reference = _Reference(5, 3).double()
    model = PSCN(5, 3, num_fields=W, field_size=K, dropout=0.0).double()
    ours = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in reference.named_parameters():
            ours[name].copy_(_in_our_layout(name, value))
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    expected = reference(graphs)
    assert_equal(output.class_scores, expected, "logits")
    model.loss(output, graphs.y).total.backward()
    nn.functional.cross_entropy(expected, graphs.y).backward()
    for name, value in reference.named_parameters():
        gradient: Any = value.grad
        assert ours[name].grad is not None
        assert_equal(ours[name].grad, _in_our_layout(name, gradient), f"gradient of {name}")


def test_number_of_fields_is_the_mean_number_of_nodes() -> None:
    rule = PSCN.data_options["num_fields"].rule
    assert rule(DatasetSize(tuple(range(1, 101)), 2)) == 50
    assert rule(DatasetSize((3, 4, 5), 2)) == 10
    store = random_graphs([12, 13, 14, 15, 40]).as_store()
    assert resolve_config(RunConfig(model="pscn"), store).model_arguments["num_fields"] == 19


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_fields": 9}, "'num_fields' must be at least 10, got 9"),
        ({"channels": (16, 0)}, "'channels' must be at least 1, got 0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^PSCN: {message}"):
        PSCN(5, 2, **options)
