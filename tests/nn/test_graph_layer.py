"""All layers: two forms of a call, replicas, padding and the order of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import (
    AdjacencyDecoder,
    CapsuleLayer,
    Context,
    InputCapsules,
    PrimaryCapsules,
    ReplicaGCNConv,
    ReplicaGINConv,
    ReplicaMLP,
    ReplicaSAGEConv,
    Trunk,
)
from graphcaps.ops import edge_table
from graphcaps.types import CapsuleLevel, Segments
from tests.graphs import Graphs, assert_equal, random_graphs, with_padding

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "CapsuleLayer": lambda lead=(): CapsuleLayer(5, 6, num_capsules=3, lead=lead),
    "CapsuleLayer with a context": lambda lead=(): CapsuleLayer(
        5, 6, num_capsules=3, context=Context(5, 2, lead=lead), lead=lead
    ),
    "Context": lambda lead=(): Context(5, 2, lead=lead),
    "InputCapsules": lambda lead=(): InputCapsules(5, lead=lead),
    "PrimaryCapsules": lambda lead=(): PrimaryCapsules(5, 8, lead=lead),
    "ReplicaGCNConv": lambda lead=(): ReplicaGCNConv(5, 3, lead=lead),
    "ReplicaGCNConv, wider": lambda lead=(): ReplicaGCNConv(5, 7, lead=lead),
    "ReplicaGINConv": lambda lead=(): ReplicaGINConv(ReplicaMLP([5, 7, 3], lead=lead), train_epsilon=True),
    "ReplicaSAGEConv": lambda lead=(): ReplicaSAGEConv(5, 3, lead=lead),
    "Trunk, gat": lambda lead=(): Trunk("gat", 5, num_layers=2, lead=lead),
    "Trunk, gin": lambda lead=(): Trunk("gin", 5, num_layers=2, lead=lead),
    "Trunk, sage": lambda lead=(): Trunk("sage", 5, num_layers=2, lead=lead),
}
WITHOUT_WEIGHTS = ("InputCapsules", "PrimaryCapsules", "Trunk")  # layers that do not read edge weights
# Graphs of three replicas; −1 is padding.
DRAWN = [[0, 1, 3], [5, 4, 2], [3, 0, -1]]


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


@pytest.mark.parametrize("name", [name for name in LAYERS if not name.startswith(WITHOUT_WEIGHTS)])
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


def _nodes(output: Tensor | CapsuleLevel) -> Tensor:
    """The part of a result that has one row per node."""
    return output if isinstance(output, Tensor) else output.assignment


def _objective(output: Tensor | CapsuleLevel, segments: Segments) -> Tensor:
    """A number that depends on all real rows, or on the capsules of all real graphs."""
    value, mask = output, segments.row_mask
    if isinstance(value, CapsuleLevel):
        value, mask = value.capsules.flatten(-2), segments.graph_mask
    return (value if mask is None else value[mask]).sin().sum()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", LAYERS)
def test_replicas_equal_separate_layers(name: str, training: bool) -> None:
    """Values, gradients and running statistics; replicas have different numbers of nodes."""
    graphs = random_graphs([7, 20, 1, 12, 9, 5])
    store = graphs.as_store()
    batch = store.batch(graphs.x, torch.tensor(DRAWN))
    stacked = LAYERS[name](lead=(3,)).double().train(training)
    singles = [LAYERS[name]().double().train(training) for _ in DRAWN]
    state = stacked.state_dict()
    for f, single in enumerate(singles):
        for key, value in single.state_dict().items():
            state[key][f].copy_(value)
    x = batch.x.clone().requires_grad_()
    together = stacked(x, batch.edges, batch.segments)
    _objective(together, batch.segments).backward()
    for f, single in enumerate(singles):
        alone = store.batch(graphs.x, torch.tensor([g for g in DRAWN[f] if g >= 0]))
        rows = alone.x.clone().requires_grad_()
        output = single(rows, alone.edges, alone.segments)
        _objective(output, alone.segments).backward()
        V, B = alone.segments.num_rows, alone.num_graphs
        assert_equal(_nodes(together)[f, :V], _nodes(output), f"rows of replica {f}")
        if isinstance(together, CapsuleLevel):
            assert_equal(together.capsules[f, :B], output.capsules, f"capsules of replica {f}")
        if x.grad is not None:
            assert_equal(x.grad[f, :V], rows.grad, f"gradient of x, replica {f}")
        for (key, one), two in zip(single.named_parameters(), stacked.parameters(), strict=True):
            if one.grad is not None:
                assert_equal(two.grad[f], one.grad, f"gradient of {key}, replica {f}")
        for (key, one), two in zip(single.named_buffers(), stacked.buffers(), strict=True):
            assert_equal(two[f].double(), one.double(), f"{key}, replica {f}")


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", LAYERS)
def test_padding_does_not_matter(name: str, training: bool, graphs: Graphs) -> None:
    """Values and gradients, for any finite number in padding rows."""
    bare = graphs.as_batch()
    results = []
    for batch in (bare, with_padding(bare, value=0.0), with_padding(bare, value=1e3)):
        torch.manual_seed(0)
        layer = LAYERS[name]().double().train(training)
        x = batch.x.clone().requires_grad_()
        output = layer(x, batch.edges, batch.segments)
        _objective(output, batch.segments).backward()
        gradients = {key: p.grad for key, p in layer.named_parameters() if p.grad is not None}
        results.append(
            {"rows": _nodes(output)[:16], "gradient of x": x.grad, **gradients, **dict(layer.named_buffers())}
        )
    for other in results[1:]:
        assert other.keys() == results[0].keys()
        for key, value in results[0].items():
            if value is not None:
                actual = other[key][:16] if key == "gradient of x" else other[key]
                assert_equal(actual.double(), value.double(), key)


@pytest.mark.parametrize("name", LAYERS)
def test_order_of_nodes_does_not_matter(name: str) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([9])
    layer = LAYERS[name]().double()
    order = torch.randperm(9)
    position = order.argsort()
    value = _nodes(layer(graphs.x[order], position[graphs.edge_index]))
    assert_equal(value, _nodes(layer(graphs.x, graphs.edge_index))[order])


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("Replica")])
def test_gradients_of_convolutions(name: str, graphs: Graphs) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double().eval()
    x = graphs.x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: layer(t, graphs.edges, graphs.segments), x)


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


@pytest.mark.parametrize("name", LAYERS)
def test_another_number_of_columns_is_refused(name: str, graphs: Graphs) -> None:
    layer = LAYERS[name]().double()
    with pytest.raises(
        ShapeError, match=_message(f"{type(layer).__name__}: 'x' must have 5 columns, got 4.")
    ):
        layer(graphs.x[:, 1:], graphs.edge_index, graphs.batch)


@pytest.mark.parametrize("name", LAYERS)
def test_a_graph_without_nodes_is_one_graph(name: str) -> None:
    output = LAYERS[name]()(torch.zeros(0, 5), torch.zeros(2, 0, dtype=torch.long))
    assert _nodes(output).size(0) == 0
    if isinstance(output, CapsuleLevel):
        assert output.capsules.shape == (1, 3, 6)
        assert not bool(output.capsules.any())
