"""Layers are called in the form of torch-geometric or with the edges and segments of a batch."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn import AdjacencyDecoder, CapsuleLayer, Context, InputCapsules, PrimaryCapsules, Trunk
from graphcaps.ops import edge_table
from graphcaps.types import CapsuleLevel
from tests.graphs import Graphs, assert_equal, random_graphs

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "CapsuleLayer": lambda: CapsuleLayer(5, 6, num_capsules=3),
    "CapsuleLayer with a context": lambda: CapsuleLayer(5, 6, num_capsules=3, context=Context(5, 2)),
    "Context": lambda: Context(5, 2),
    "InputCapsules": lambda: InputCapsules(5),
    "PrimaryCapsules": lambda: PrimaryCapsules(5, 8),
    "Trunk": lambda: Trunk("sage", 5),
}


@pytest.fixture
def graphs() -> Graphs:
    return random_graphs([6, 9, 1])


def _tensors(output: Tensor | CapsuleLevel) -> tuple[Tensor, ...]:
    if isinstance(output, Tensor):
        return (output,)
    assert output.adjacency is not None
    return output.capsules, output.assignment, output.adjacency


@pytest.mark.parametrize("name", LAYERS)
def test_both_forms_give_the_same_result(name: str, graphs: Graphs) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    expected = _tensors(layer(graphs.x, graphs.edges, graphs.segments))
    actual = _tensors(layer(graphs.x, graphs.edge_index, graphs.batch))
    for one, two in zip(actual, expected, strict=True):
        assert_equal(one, two)


@pytest.mark.parametrize("name", ["CapsuleLayer", "CapsuleLayer with a context", "Context"])
def test_weighted_edges_in_both_forms(name: str, graphs: Graphs) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    one_way = graphs.edge_index[:, : graphs.edge_index.size(1) // 2]
    weight = torch.rand(one_way.size(1), dtype=torch.float64) + 0.5
    edges = edge_table(one_way, len(graphs.x), weight)
    expected = _tensors(layer(graphs.x, edges, graphs.segments))
    actual = _tensors(layer(graphs.x, one_way, graphs.batch, edge_weight=weight))
    unweighted = _tensors(layer(graphs.x, one_way, graphs.batch))
    for one, two in zip(actual, expected, strict=True):
        assert_equal(one, two)
    assert float((actual[0] - unweighted[0]).detach().abs().max()) > 1e-6


def test_without_batch_there_is_one_graph(graphs: Graphs) -> None:
    one = graphs.one(1)
    layer = CapsuleLayer(5, 6, num_capsules=3).double()
    assert_equal(
        layer(one.x, one.edge_index).capsules, layer(one.x, one.edge_index, one.batch).capsules, "capsules"
    )


def test_last_graphs_may_have_no_nodes(graphs: Graphs) -> None:
    level = CapsuleLayer(5, 6, num_capsules=3).double()(
        graphs.x, graphs.edge_index, graphs.batch, num_graphs=5
    )
    assert level.capsules.shape == (5, 3, 6)
    assert bool(level.capsules.isfinite().all())


def test_decoder_in_both_forms(graphs: Graphs) -> None:
    torch.manual_seed(0)
    decoder = AdjacencyDecoder(2, 4, 5).double()
    capsules = torch.rand(3, 2, 4, dtype=torch.float64)
    expected = decoder(graphs.x, graphs.edges, graphs.segments, class_capsules=capsules, y=graphs.y)
    actual = decoder(graphs.x, graphs.edge_index, graphs.batch, class_capsules=capsules, y=graphs.y)
    assert_equal(actual, expected)


def _message(text: str) -> str:
    return f"^{re.escape(text)}$"


def test_forms_are_not_mixed(graphs: Graphs) -> None:
    layer = Context(5, 1).double()
    expected = "Context: 'batch' must be Segments if 'edge_index' is an EdgeTable, got None."
    with pytest.raises(ArgumentError, match=_message(expected)):
        layer(graphs.x, graphs.edges)
    with pytest.raises(ArgumentError, match=_message(expected.replace("None.", "a tensor."))):
        layer(graphs.x, graphs.edges, graphs.batch)
    expected = "Context: 'batch' must be a tensor if 'edge_index' is one, got Segments."
    with pytest.raises(ArgumentError, match=_message(expected)):
        layer(graphs.x, graphs.edge_index, graphs.segments)
    expected = "Context: 'num_graphs' must be None if 'edge_index' is an EdgeTable, got a value."
    with pytest.raises(ArgumentError, match=_message(expected)):
        layer(graphs.x, graphs.edges, graphs.segments, num_graphs=3)


def test_messages_name_the_layer(graphs: Graphs) -> None:
    replicas = CapsuleLayer(5, 6, num_capsules=3, lead=(2,)).double()
    expected = (
        "CapsuleLayer: 'lead' must be () for a torch-geometric call, got (2,). "
        "Call the layer with the edges and segments of a GraphBatch."
    )
    with pytest.raises(ArgumentError, match=_message(expected)):
        replicas(graphs.x, graphs.edge_index, graphs.batch)
    expected = "CapsuleLayer: 'x' must have one row per node of the batch, [16], got [15]."
    with pytest.raises(ArgumentError, match=_message(expected)):
        CapsuleLayer(5, 6, num_capsules=3).double()(graphs.x[1:], graphs.edges, graphs.segments)
    for wrong, message in (
        (graphs.batch[1:], "Trunk: 'batch' must have one entry per node, 16, got [15]."),
        (
            graphs.batch.flip(0),
            "Trunk: 'batch' must be sorted, got an unsorted tensor. Sort the nodes by graph.",
        ),
    ):
        with pytest.raises(ArgumentError, match=_message(message)):
            Trunk("sage", 5).double()(graphs.x, graphs.edge_index, wrong)
    with pytest.raises(
        ArgumentError, match=_message("Context: 'edge_index' must have the shape [2, E], got [3, 4].")
    ):
        Context(5, 1).double()(graphs.x, torch.zeros(3, 4, dtype=torch.long))
