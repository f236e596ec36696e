"""A traced forward pass equals the plain one in every variant, and scores follow from it; float64."""

from typing import Any

import pytest
import torch

from graphcaps.explanation.attributions import (
    compares_with_average,
    edge_probability,
    node_attributions,
    reference_capsule,
)
from graphcaps.nn import HGCN, CapsuleLayer
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED
from graphcaps.types import EdgeTable, GraphBatch, Segments
from tests.graphs import Graphs, assert_equal, random_graphs, tiny_graphs, with_padding

VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "paper": {"formulation": "paper"},
    "three levels": {"num_capsules": (5, 4, 3)},
    "three levels, paper": {"num_capsules": (5, 4, 3), "formulation": "paper"},
    "features as capsules": {"disentangle": False},
    "features as capsules, as long as capsules": {"disentangle": False, "capsule_dim": 5, "num_factors": 1},
    "no residual": {"residual": False},
    "fixed divisor": {"residual_nodes": 9},
    "one iteration": {"routing_iterations": 1},
    "separate factors": {"factor_squash": "separate"},
    "no decoder": {"reconstruction": False},
    "trunk": {"trunk": "gin"},
    "parts": {"parts": "blocks"},
}


def _model(graphs: Graphs, seed: int = 1, **arguments: Any) -> HGCN:
    torch.manual_seed(seed)
    settings: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2}
    model = HGCN(graphs.x.size(1), 3, **(settings | arguments)).double()
    for module in model.modules():  # non-trivial norms and biases
        if isinstance(module, CapsuleLayer):
            torch.nn.init.normal_(module.bias, std=0.3)
        if hasattr(module, "running_mean"):
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize("arguments", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("graphs", [tiny_graphs(), random_graphs([70, 3, 1, 40])], ids=["tiny", "random"])
def test_a_traced_forward_pass_equals_the_plain_one(graphs: Graphs, arguments: dict[str, Any]) -> None:
    model = _model(graphs, **arguments)
    batch = graphs.as_batch()
    expected, actual = model.forward_batch(batch), model.forward_batch(batch, trace=True)
    assert torch.equal(actual.primary, expected.primary)
    assert_equal(actual.class_scores, expected.class_scores, "scores")
    assert len(actual.levels) == len(expected.levels)
    for level, right in zip(actual.levels, expected.levels, strict=True):
        assert right.iterations is None
        assert level.iterations is not None
        assert_equal(level.capsules, right.capsules, "capsules")
        assert_equal(level.assignment, right.assignment, "assignment")
        assert torch.equal(level.iterations[-1], level.assignment)
        assert len(level.iterations) == model.layers[0].routing_iterations
        assert (level.adjacency is None) == (right.adjacency is None)
        if level.adjacency is not None:
            assert_equal(level.adjacency, right.adjacency, "adjacency")


@pytest.mark.parametrize("arguments", [{}, {"formulation": "paper"}, {"parts": "blocks"}])
def test_gradients_of_a_trace_end_at_primary_capsules_and_assignments(arguments: dict[str, Any]) -> None:
    graphs = random_graphs([9, 5, 1])
    model = _model(graphs, num_capsules=(4, 3), **arguments)
    output = model.forward_batch(graphs.as_batch(), trace=True)
    assert output.primary.is_leaf
    assert output.primary.requires_grad
    for level in output.levels:
        assert level.capsules.requires_grad
        assert not level.assignment.requires_grad
        assert level.adjacency is None or not level.adjacency.requires_grad
    output.class_scores.sum().backward()
    assert model.primary.weight.grad is None
    assert model.layers[0].weight.grad is not None


def test_a_trace_of_replicas_and_padding_is_that_of_each_alone() -> None:
    graphs = random_graphs([9, 5, 1])
    models = [_model(graphs), _model(graphs, seed=2)]
    both = HGCN(5, 3, capsule_dim=8, num_capsules=(4,), num_factors=2, lead=(2,)).double().eval()
    states = [model.state_dict() for model in models]
    both.load_state_dict({name: torch.stack([state[name] for state in states]) for name in states[0]})
    batch = with_padding(graphs.as_batch(), value=0.0)
    twice = _twice(batch)
    actual = both.forward_batch(twice, trace=True)
    for replica, model in enumerate(models):
        expected = model.forward_batch(graphs.as_batch(), trace=True)
        assert_equal(actual.class_scores[replica, :3], expected.class_scores, "scores")
        first, other = actual.levels[0].iterations, expected.levels[0].iterations
        assert first is not None
        assert other is not None
        assert_equal(first[:, replica, :15], other, "iterations")
        assert not first[:, replica, 15:].any()  # padding rows


def _twice(batch: GraphBatch) -> GraphBatch:
    """The batch for two replicas."""

    def twice(values: torch.Tensor) -> torch.Tensor:
        return torch.stack([values, values])

    segments, edges = batch.segments, batch.edges
    table = EdgeTable(edges.ptr, edges.neighbours, None, twice(edges.node), twice(edges.first))
    return GraphBatch(twice(batch.x), Segments(twice(segments.ptr), twice(segments.index)), table)


def test_attributions_are_gradient_times_difference_from_the_reference() -> None:
    graphs = random_graphs([9, 5, 1])
    model, batch, target = _model(graphs), graphs.as_batch(), torch.tensor([2, 0, 1])
    # The released formulation has no gradient through routing weights: its own gradient is the reference result.
    output = model.forward_batch(batch)
    target_lengths = output.class_scores[torch.arange(3), target].sum()
    (gradient,) = torch.autograd.grad(target_lengths, output.primary)
    expected = (gradient * (output.primary - model.layers[0].norm.running_mean)).sum(-1)

    actual = node_attributions(model, model.forward_batch(batch, trace=True), target)
    assert_equal(actual, expected, "attributions", 1e-12)
    assert float(actual.abs().max()) > 1e-3


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_a_reference_node_has_attribution_zero(formulation: str) -> None:
    graphs = random_graphs([6, 4])
    model = _model(graphs, formulation=formulation)
    graphs.x[[1, 7]] = 0
    if formulation == "released":  # the reference is the running mean: let it be the capsule of these nodes
        model.layers[0].norm.running_mean.copy_(model.primary(graphs.x)[1].detach())
    output = model.forward_batch(graphs.as_batch(), trace=True)
    assert torch.equal(output.primary[7], reference_capsule(model))
    assert compares_with_average(model) == (formulation == "released")
    actual = node_attributions(model, output, torch.tensor([0, 1]))
    assert_equal(actual[[1, 7]], torch.zeros(2, dtype=torch.float64), "reference nodes", 1e-12)
    assert (actual[[0, 2, 3]].abs() > 1e-6).all()
    if formulation == "paper":  # without a norm the reference features are zeros
        assert_equal(reference_capsule(model), model.primary(torch.zeros(1, 5).double())[0], "zeros")


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_edge_probability_is_that_of_the_decoder(formulation: str) -> None:
    graphs = tiny_graphs()
    model, batch = _model(graphs, formulation=formulation), graphs.as_batch()
    output = model.forward_batch(batch)
    source, target = graphs.edge_index[:, ::2]
    actual = edge_probability(model, output, batch, source, target)
    code = model.decoder.code(output.class_capsules, output.class_scores.argmax(-1))
    z = output.primary + code[graphs.batch]
    rule = RELEASED if formulation == "released" else PAPER
    expected = (z @ z.T).clamp(rule.low, rule.high)[source, target]
    assert actual is not None
    assert_equal(actual, expected, "P")
    bare = _model(graphs, reconstruction=False)
    assert edge_probability(bare, output, batch, source, target) is None
