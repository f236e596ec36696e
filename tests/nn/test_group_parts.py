"""The option ``parts="groups"``: its assignment by a slow form, and the invariants of the model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.data.precompute import precompute
from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN
from graphcaps.ops import route
from graphcaps.ops.structure.modularity_groups import ModularityGroups
from graphcaps.types import GraphBatch
from tests.graphs import Graphs, assert_equal, random_graphs
from tests.nn.part_checks import check_node_order, check_replicas, losses_and_gradients

CHANNELS = 5


def _model(lead: tuple[int, ...] = (), seed: int = 3, **arguments: Any) -> HGCN:
    torch.manual_seed(seed)
    small: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2, "parts": "groups"}
    return HGCN(CHANNELS, 2, lead=lead, **(small | arguments)).double()


def _batch(graphs: Graphs, chosen: Tensor | None = None) -> GraphBatch:
    store = precompute(graphs.as_store(), ModularityGroups(), dtype=torch.float64)
    return store.batch(graphs.x, torch.arange(len(graphs.y)) if chosen is None else chosen)


def _groups_of_rows(batch: GraphBatch) -> Tensor:
    members = batch.levels[0].members
    groups = torch.zeros(batch.segments.num_rows, dtype=torch.long)
    real = members.segments.index < members.segments.num_graphs
    groups[members.source[real]] = members.segments.index[real]
    return groups


def test_assignment_is_the_mean_of_the_routing_over_each_group() -> None:
    graphs = random_graphs([7, 12, 4])
    model, batch = _model(), _batch(graphs)
    assignment = model.forward_batch(batch).levels[0].assignment
    layer = model.layers[0]
    hop = layer.hop(model.primary(batch.x, batch.edges, batch.segments), batch.edges, batch.segments)
    routing = route(hop.h, layer.weight, layer.bias, batch.segments, layer.routing_iterations, detach=False)
    rows = _groups_of_rows(batch)
    expected = torch.stack([routing.assignment[rows == group].mean(0) for group in rows])
    assert_equal(assignment, expected, "assignment")
    weights = torch.rand(23, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = [torch.autograd.grad((c * weights).sum(), layer.weight)[0] for c in (assignment, expected)]
    assert bool(gradients[1].any())
    assert_equal(*gradients, "gradient")


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_nodes_of_a_group_have_one_assignment_and_all_parameters_a_gradient(formulation: str) -> None:
    model, batch = _model(formulation=formulation), _batch(random_graphs([7, 12, 4]))
    output, _, gradients = losses_and_gradients(model, batch)
    assignment, groups = output.levels[0].assignment.detach(), _groups_of_rows(batch)
    for group in groups.unique():
        rows = assignment[groups == group]
        assert_equal(rows, rows[:1].expand_as(rows), "rows of a group")
    for name in ("layers.0.weight", "layers.0.bias", "primary.weight"):
        assert bool(gradients[name].any()), name
    traced = model.eval().forward_batch(batch, trace=True)
    plain = model.forward_batch(batch)
    assert_equal(traced.levels[0].assignment, plain.levels[0].assignment, "traced assignment")
    assert_equal(traced.class_scores, plain.class_scores, "traced scores")
    iterations = traced.levels[0].iterations
    assert iterations is not None
    assert len(iterations) == model.layers[0].routing_iterations
    assert_equal(iterations[-1], plain.levels[0].assignment, "last iteration")
    contributions = traced.levels[0].contributions
    assert contributions is not None
    lengths = torch.linalg.vector_norm(traced.levels[0].capsules, dim=-1)
    sums = torch.zeros_like(lengths).index_add(0, batch.segments.index, contributions.inputs)
    assert_equal(sums + contributions.residual, lengths.detach(), "contributions")


def test_a_call_of_torch_geometric_computes_the_groups() -> None:
    graphs = random_graphs([7, 12, 4])
    model = _model().eval()
    called = model(graphs.x, graphs.edge_index, graphs.batch)
    assert_equal(called.class_scores, model.forward_batch(_batch(graphs)).class_scores, "scores")
    with pytest.raises(ArgumentError, match="'batch' must have a precomputed level of groups, got 0"):
        model.forward_batch(graphs.as_batch())


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_replica_equals_the_model_alone(training: bool) -> None:
    singles = [_model(seed=f).train(training) for f in range(3)]
    check_replicas(_model((3,)).train(training), singles, _batch)


def test_node_order_does_not_matter() -> None:
    check_node_order(_model(), _batch)


def test_class_capsules_have_no_residual() -> None:
    assert [layer.residual for layer in _model(num_capsules=(4, 3)).layers] == [True, True, False]
    assert [layer.residual for layer in _model(num_capsules=(4, 3), parts=None).layers] == [True] * 3


def test_a_context_may_stand_beside_groups() -> None:
    model, graphs = _model(context="residual"), random_graphs([7, 4])
    assert model.capturable
    assert model(graphs.x, graphs.edge_index, graphs.batch).class_scores.isfinite().all()
