"""The traced levels equal the forward pass of the model, in every variant; float64."""

from typing import Any

import pytest
import torch

from graphcaps.explanation.trace import edge_probability, node_attributions, reference_capsule, trace_levels
from graphcaps.nn import HGCN, CapsuleLayer
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED
from tests.graphs import Graphs, assert_equal, random_graphs, tiny_graphs

VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "paper": {"formulation": "paper"},
    "three levels": {"num_capsules": (5, 4, 3)},
    "three levels, paper": {"num_capsules": (5, 4, 3), "formulation": "paper"},
    "features as capsules": {"disentangle": False},
    "features as capsules, as long as capsules": {"disentangle": False, "capsule_dim": 5, "num_factors": 1},
    "no residual": {"residual": False},
    "fixed divisor": {"residual_nodes": 9},
    "one round": {"routing_iterations": 1},
    "separate factors": {"factor_squash": "separate"},
    "no decoder": {"reconstruction": False},
    "trunk": {"trunk": "gin"},
    "parts": {"parts": "blocks"},
}


def _model(graphs: Graphs, **arguments: Any) -> HGCN:
    torch.manual_seed(1)
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
def test_traced_levels_equal_the_forward_pass(graphs: Graphs, arguments: dict[str, Any]) -> None:
    model = _model(graphs, **arguments)
    batch = graphs.as_batch()
    expected = model.forward_batch(batch)
    levels = trace_levels(model, expected.primary, batch.edges, batch.segments)
    assert len(levels) == len(expected.levels)
    for level, right in zip(levels, expected.levels, strict=True):
        assert_equal(level.capsules, right.capsules, "capsules")
        assert_equal(level.rounds[-1], right.assignment, "assignment")
        assert len(level.rounds) == model.layers[0].routing_iterations
        assert (level.adjacency is None) == (right.adjacency is None)
        if level.adjacency is not None:
            assert_equal(level.adjacency, right.adjacency, "adjacency")
    assert_equal(levels[-1].lengths, expected.class_scores, "lengths")


def test_attributions_are_gradient_times_difference_from_the_reference() -> None:
    graphs = random_graphs([9, 5, 1])
    model, batch, target = _model(graphs), graphs.as_batch(), torch.tensor([2, 0, 1])
    # The released formulation has no gradient through routing weights: its own gradient is the reference result.
    output = model.forward_batch(batch)
    target_lengths = output.class_scores[torch.arange(3), target].sum()
    (gradient,) = torch.autograd.grad(target_lengths, output.primary)
    expected = (gradient * (output.primary - model.layers[0].norm.running_mean)).sum(-1)

    primary = output.primary.detach().requires_grad_()
    levels = trace_levels(model, primary, batch.edges, batch.segments)
    actual = node_attributions(model, primary, levels[-1].lengths, target)
    assert_equal(actual, expected, "attributions", 1e-12)
    assert float(actual.abs().max()) > 1e-3


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_a_reference_node_has_attribution_zero(formulation: str) -> None:
    graphs = random_graphs([6, 4])
    model = _model(graphs, formulation=formulation)
    primary = model.primary(graphs.x).detach()
    primary[[1, 7]] = reference_capsule(model)
    primary.requires_grad_()
    levels = trace_levels(model, primary, graphs.edges, graphs.segments)
    actual = node_attributions(model, primary, levels[-1].lengths, torch.tensor([0, 1]))
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
    actual = edge_probability(model, output.primary, output.class_capsules, batch, source, target)
    code = model.decoder.code(output.class_capsules, output.class_scores.argmax(-1))
    z = output.primary + code[graphs.batch]
    rule = RELEASED if formulation == "released" else PAPER
    expected = (z @ z.T).clamp(rule.low, rule.high)[source, target]
    assert actual is not None
    assert_equal(actual, expected, "P")
    bare = _model(graphs, reconstruction=False)
    assert edge_probability(bare, output.primary, output.class_capsules, batch, source, target) is None
