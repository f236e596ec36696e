"""HGCN against the dense reference implementation, and its invariants."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN
from graphcaps.types import LossOptions
from tests.graphs import Graphs, assert_equal, random_graphs, tiny_graphs, with_padding
from tests.nn.dense_reference import dense_hgcn

CHANNELS = 5
VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "fixed divisor": {"residual_nodes": 40},
    "two hidden levels": {"num_capsules": (6, 3)},
    "one iteration": {"routing_iterations": 1},
    "A1": {"disentangle": False},
    "A1 same width": {"disentangle": False, "capsule_dim": CHANNELS},
    "A2": {"residual": False},
    "no class residual": {"class_residual": False},
    "no class residual, two levels": {"class_residual": False, "num_capsules": (6, 3)},
    "A3": {"reconstruction": False},
    "separate factors": {"factor_squash": "separate"},
    "paper": {"formulation": "paper"},
    "paper, two levels": {"formulation": "paper", "num_capsules": (5, 2)},
    "paper A1": {"formulation": "paper", "disentangle": False},
    "paper A2": {"formulation": "paper", "residual": False},
}


def _model(seed: int = 3, **arguments: Any) -> HGCN:
    torch.manual_seed(seed)
    arguments = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2} | arguments
    model = HGCN(CHANNELS, 2, **arguments).double()
    with torch.no_grad():  # biases and norms differ from their initial values
        for name, parameter in model.named_parameters():
            if parameter.dim() < 3 and ("bias" in name or "norm" in name):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_ragged_equals_dense(variant: dict[str, Any], training: bool) -> None:
    model = _model(**variant).train(training)
    graphs = random_graphs([7, 40, 1, 12], CHANNELS)
    expected = dense_hgcn(model, graphs, **variant)  # first: it does not update running statistics
    expected_total = expected.margin + (
        0 if expected.reconstruction is None else 0.1 * expected.reconstruction
    )
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(expected_total, list(parameters.values()), allow_unused=True)

    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert_equal(output.class_scores, expected.class_scores, "scores")
    assert len(output.levels) == len(expected.assignments)
    for number, level in enumerate(output.levels):
        assert_equal(level.capsules, expected.capsules[number], "capsules")
        dense = expected.assignments[number]
        if number == 0:
            dense = dense[torch.arange(40) < graphs.sizes.unsqueeze(-1)]
        assert_equal(level.assignment, dense, "assignment")
        if level.adjacency is not None:
            assert_equal(level.adjacency, expected.adjacencies[number], "adjacency")
    terms = model.loss(output, graphs.y)
    assert_equal(terms.terms["margin"], expected.margin, "margin")
    if expected.reconstruction is not None:
        assert_equal(terms.terms["reconstruction"], expected.reconstruction, "reconstruction")
    terms.total.backward()
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        assert (parameter.grad is None) == (gradient is None), name
        if gradient is not None:
            assert_equal(parameter.grad, gradient, f"gradient of {name}")


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_node_order_does_not_matter(formulation: str) -> None:
    model = _model(formulation=formulation)
    graphs = random_graphs([9, 30, 2], CHANNELS)
    order = torch.cat([torch.randperm(n) + s for n, s in ((9, 0), (30, 9), (2, 39))])
    position = order.argsort()
    one = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    two = model(graphs.x[order], position[graphs.edge_index], graphs.batch, y=graphs.y)
    assert_equal(two.class_scores, one.class_scores)
    assert_equal(two.levels[0].assignment, one.levels[0].assignment[order])
    assert_equal(two.levels[0].adjacency, one.levels[0].adjacency)
    assert_equal(two.reconstruction_loss, one.reconstruction_loss)


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_a_batch_equals_its_graphs_one_at_a_time(formulation: str) -> None:
    model = _model(formulation=formulation).eval()
    graphs = random_graphs([9, 64, 1, 5], CHANNELS)
    together = model(graphs.x, graphs.edge_index, graphs.batch)
    for g in range(4):
        one = graphs.one(g)
        alone = model(one.x, one.edge_index)
        assert_equal(together.class_scores[g : g + 1], alone.class_scores)
        assert_equal(together.levels[0].assignment[graphs.batch == g], alone.levels[0].assignment)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_nan_in_padding_does_not_reach_results(variant: dict[str, Any]) -> None:
    bare = tiny_graphs().as_batch()
    results = []
    for batch in (bare, with_padding(bare)):
        model = _model(**variant)
        output = model.forward_batch(batch, batch.y)
        model.loss(output, batch.y).total.backward()
        results.append((output, model))
    (one, model_one), (two, model_two) = results
    assert_equal(two.class_scores[:3], one.class_scores)
    assert bool(two.class_scores.isfinite().all())
    assert_equal(two.levels[0].assignment[:7], one.levels[0].assignment)
    for (name, a), (_, b) in zip(model_one.named_parameters(), model_two.named_parameters(), strict=True):
        if a.grad is not None:
            assert_equal(b.grad, a.grad, name)
    for (name, a), (_, b) in zip(model_one.named_buffers(), model_two.named_buffers(), strict=True):
        assert_equal(b, a, name)


@pytest.mark.parametrize("formulation", ["released", "paper"])
@pytest.mark.parametrize("training", [True, False])
def test_graphs_with_isolated_nodes_give_finite_gradients(formulation: str, training: bool) -> None:
    """One node; several nodes without an edge; isolated nodes next to an edge: finite outputs and gradients."""
    model = _model(formulation=formulation).train(training)
    for sizes, edge_index in (([1], []), ([4], []), ([5], [[1, 2], [2, 1]]), ([1, 4], [[2, 3], [3, 2]])):
        edges = torch.tensor(edge_index, dtype=torch.long).reshape(-1, 2).T
        batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        y = torch.arange(len(sizes)) % 2
        output = model(torch.randn(sum(sizes), CHANNELS, dtype=torch.float64), edges, batch, y=y)
        model.loss(output, y).total.backward()
        assert bool(output.class_scores.isfinite().all())
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_one_much_larger_graph_equals_dense() -> None:
    model = _model()
    graphs = random_graphs([2, 1500], CHANNELS)
    expected = dense_hgcn(model, graphs)
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert_equal(output.class_scores, expected.class_scores)
    assert_equal(output.reconstruction_loss, expected.reconstruction)


def test_naive_routing_gives_the_same_scores() -> None:
    graphs = random_graphs([9, 30], CHANNELS)
    fast = _model()(graphs.x, graphs.edge_index, graphs.batch)
    slow = _model(routing="naive")(graphs.x, graphs.edge_index, graphs.batch)
    assert_equal(fast.class_scores, slow.class_scores)


def test_edges_are_undirected_and_simple() -> None:
    """Edges in one direction, in both, repeated, and self-loops describe the same graph."""
    model = _model().eval()
    x = torch.randn(4, CHANNELS, dtype=torch.float64)
    clean = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    redundant = torch.tensor([[0, 0, 2, 3, 1, 0], [1, 1, 1, 3, 2, 0]])
    assert_equal(model(x, redundant).class_scores, model(x, clean).class_scores)


def test_edge_weights_change_scores_and_have_gradients() -> None:
    model = _model().eval()
    graphs = tiny_graphs()
    ones = torch.ones(graphs.edge_index.size(1), dtype=torch.float64)
    plain = model(graphs.x, graphs.edge_index, graphs.batch)
    assert_equal(
        model(graphs.x, graphs.edge_index, graphs.batch, edge_weight=ones).class_scores, plain.class_scores
    )
    heavy = ones.clone().mul_(3).requires_grad_()
    weighted = model(graphs.x, graphs.edge_index, graphs.batch, edge_weight=heavy)
    assert float((weighted.class_scores - plain.class_scores).detach().abs().max()) > 1e-6
    weighted.class_scores.sum().backward()
    assert bool(heavy.grad.isfinite().all())
    assert float(heavy.grad.abs().max()) > 0


def test_float32_is_close_to_float64() -> None:
    graphs = random_graphs([20, 30], CHANNELS)
    double = _model().eval()(graphs.x, graphs.edge_index, graphs.batch).class_scores
    single = _model().eval().float()(graphs.x.float(), graphs.edge_index, graphs.batch).class_scores
    assert single.dtype == torch.float32
    assert_equal(single.double(), double, tolerance=1e-5)


def test_reconstruction_is_computed_on_request() -> None:
    model = _model().eval()
    graphs = tiny_graphs()
    batch = graphs.as_batch()
    assert model.forward_batch(batch).reconstruction_loss is None
    assert model.forward_batch(batch, batch.y, reconstruct=False).reconstruction_loss is None
    requested = model.forward_batch(batch, reconstruct=True)
    predicted = model.forward_batch(batch, requested.class_scores.argmax(-1))
    assert_equal(requested.reconstruction_loss, predicted.reconstruction_loss)


def test_no_decoder_without_reconstruction() -> None:
    model = _model(reconstruction=False)
    assert not any("decoder" in name for name, _ in model.named_parameters())
    graphs = tiny_graphs()
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert set(model.loss(output, graphs.y).terms) == {"margin"}
    full = _model()
    output = full(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    full.loss(output, graphs.y, LossOptions(reconstruction_weight=0)).total.backward()
    assert all(p.grad is None for p in full.decoder.parameters())


def test_overfits_eight_graphs() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 12, 7, 8, 10, 11, 5], CHANNELS, classes=2)
    model = HGCN(CHANNELS, 2, capsule_dim=16, num_capsules=(4,)).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
        optimiser.zero_grad()
        loss = model.loss(output, graphs.y).total
        loss.backward()
        optimiser.step()
    margin = model.loss(output, graphs.y).terms["margin"]
    assert float(margin.detach()) < 0.01
    model.eval()
    predicted = model(graphs.x, graphs.edge_index, graphs.batch).class_scores.argmax(-1)
    assert torch.equal(predicted, graphs.y)


@pytest.mark.usefixtures("empty_is_nan")
def test_reset_parameters_initialises_every_parameter() -> None:
    torch.manual_seed(5)
    model = HGCN(CHANNELS, 3, capsule_dim=8, num_capsules=(4, 2), trunk="gin")
    first = {name: value.clone() for name, value in model.state_dict().items()}
    assert all(bool(value.isfinite().all()) for value in first.values())
    torch.manual_seed(6)
    model.reset_parameters()
    assert not torch.equal(model.state_dict()["primary.weight"], first["primary.weight"])
    bound = (6 / (CHANNELS + 8 // 4)) ** 0.5  # Glorot, from fan-in and the width of one factor
    assert float(model.primary.weight.detach().abs().max()) <= bound


def test_repr_names_the_sizes() -> None:
    text = repr(_model(num_capsules=(4, 2)))
    assert "PrimaryCapsules(\n    5, 8, num_factors=2" in text
    assert "8, 8, num_capsules=4, routing_iterations=3, residual=True" in text
    graphs = tiny_graphs()
    output = _model()(graphs.x, graphs.edge_index, graphs.batch)
    assert repr(output).startswith("HGCNOutput(class_scores=[3, 2], class_capsules=[3, 2, 8], primary=[7, 8]")


def _scores_with(**changes: Any) -> Tensor:
    graphs: Graphs = tiny_graphs()
    arguments = {"x": graphs.x, "edge_index": graphs.edge_index, "batch": graphs.batch} | changes
    return _model()(**arguments).class_scores


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(7, 4, dtype=torch.float64)}, r"PrimaryCapsules: 'x' must have 5 columns, got 4\."),
        (
            {"x": torch.zeros(6, 5, dtype=torch.float64)},
            r"HGCN: 'batch' must have one entry per node, 6, got \[7\]\.",
        ),
        (
            {"batch": torch.tensor([0, 1, 0, 0, 1, 1, 2])},
            r"'batch' must be sorted, got an unsorted tensor\.",
        ),
        ({"num_graphs": 2}, r"'batch' must name graphs below 'num_graphs', 2, got 2\."),
        (
            {"edge_index": torch.tensor([[0], [9]])},
            r"'edge_index' must hold node ids from 0 to 6, got 0 to 9\.",
        ),
        ({"edge_index": torch.tensor([[0], [6]])}, r"'edge_index' must connect nodes of the same graph"),
        ({"edge_index": torch.tensor([0, 1])}, r"'edge_index' must have the shape \[2, E\], got \[2\]\."),
        ({"edge_weight": torch.ones(3)}, r"'edge_weight' must have one number per edge, 10, got \[3\]\."),
        (
            {"x": torch.ones(7, 5)},
            r"'x' must be torch.float64, as the weights are, got torch.float32\.",
        ),
        ({"x": torch.ones(7, 5, dtype=torch.long)}, r"Convert it with x\.to\(torch\.float64\)\."),
        (
            {"edge_index": torch.zeros(2, 1)},
            r"HGCN: 'edge_index' must be an integer tensor, got torch.float32\.",
        ),
        (
            {"y": torch.tensor([0, 2, 1])},
            r"'y' must hold classes from 0 to 1, got 0 to 2\. Number the classes from 0, as y.unique\(",
        ),
        ({"y": torch.tensor([-1, 1, 1])}, r"'y' must hold classes from 0 to 1, got -1 to 1\."),
        ({"y": torch.tensor([0, 1])}, r"HGCN: 'y' must have one class per graph, \[3\], got \[2\]\."),
    ],
)
def test_messages_of_wrong_tensors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        _scores_with(**changes)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_features_that_are_not_finite_are_refused(value: float) -> None:
    x = torch.ones(7, 5, dtype=torch.float64)
    x[4, 2] = value
    with pytest.raises(ArgumentError, match=r"HGCN: 'x' must be finite, got NaN or infinity in row 4\."):
        _scores_with(x=x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_factors": 3}, r"'num_factors' must divide 'capsule_dim', 8, without remainder, got 3\."),
        ({"formulation": "other"}, r"'formulation' must be 'released' or 'paper', got 'other'\."),
        ({"num_capsules": ()}, r"'num_capsules' must name at least one hidden level"),
        ({"num_capsules": (0,)}, r"'num_capsules' must be at least 1, got 0\."),
        ({"routing_iterations": 0}, r"'routing_iterations' must be at least 1, got 0\."),
        ({"residual_nodes": 0}, r"'residual_nodes' must be at least 1, or None, got 0\."),
        ({"factor_squash": "x"}, r"'factor_squash' must be 'joined' or 'separate', got 'x'\."),
        ({"routing": "x"}, r"'routing' must be one of auto, factored, naive, kernel, got 'x'\."),
        ({"trunk": "x"}, r"'kind' must be one of gin, gine, sage, gat or a module, got 'x'\."),
    ],
)
def test_messages_of_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        _model(**arguments)


@pytest.mark.parametrize("sizes", [[1], [4, 1], [2, 1500]], ids=str)
@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_extreme_sizes_equal_dense_with_gradients(sizes: list[int], formulation: str) -> None:
    """Single nodes, graphs without edges, and a graph with more pairs than one chunk of the loss."""
    model = _model(formulation=formulation).eval()
    graphs = random_graphs(sizes, CHANNELS, density=0 if max(sizes) < 10 else 1.5)
    expected = dense_hgcn(model, graphs, formulation=formulation)
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert_equal(output.class_scores, expected.class_scores)
    total = expected.margin + 0.1 * expected.reconstruction
    gradients = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    model.loss(output, graphs.y).total.backward()
    for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
        if gradient is not None:
            assert_equal(parameter.grad, gradient, name)


def test_initial_values() -> None:
    """Glorot bounds for each output capsule's weight, zero biases; the decoder is initialised as nn.Linear."""
    torch.manual_seed(0)
    model = HGCN(CHANNELS, 2, capsule_dim=32, num_capsules=(10,))
    for layer in model.layers:
        bound = (6 / (32 + 32)) ** 0.5
        assert 0.95 * bound < float(layer.weight.detach().abs().max()) <= bound
        assert torch.equal(layer.bias, torch.zeros_like(layer.bias))
    assert torch.equal(model.primary.bias, torch.zeros(32))
    bound = (2 * 32) ** -0.5
    assert 0.95 * bound < float(model.decoder.weight.detach().abs().max()) <= bound


def test_dropout_acts_before_the_squash() -> None:
    model = _model(dropout=0.5, formulation="paper")
    torch.nn.init.constant_(model.primary.bias, 1.0)
    primary = model(*_tensors(tiny_graphs())).primary
    kept = primary != 0
    # The kept entries of a row, doubled, are squashed as one vector.
    assert bool((primary.norm(dim=-1) < 1).all())
    x = tiny_graphs().x
    z = ((x @ model.primary.weight).relu() + model.primary.bias) * 2 * kept
    length = z.norm(dim=-1, keepdim=True)
    assert_equal(primary, z * length / (1 + length**2))


def _tensors(graphs: Graphs) -> tuple[Tensor, Tensor, Tensor]:
    return graphs.x, graphs.edge_index, graphs.batch
