"""The option ``parts="blocks"``: its loss by hand and its invariants."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN, CapsuleLayer, Context, PartsOutput, Trunk, block_loss
from graphcaps.nn.part_loss import measure_block_loss
from graphcaps.types import GraphBatch, HGCNOutput
from tests.graphs import Graphs, assert_equal, random_graphs, tiny_graphs, with_padding
from tests.nn.part_checks import check_node_order, check_replicas, losses_and_gradients

CHANNELS = 5


def _model(lead: tuple[int, ...] = (), seed: int = 3, **arguments: Any) -> HGCN:
    torch.manual_seed(seed)
    small: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2, "parts": "blocks"}
    return HGCN(CHANNELS, 2, lead=lead, **(small | arguments)).double()


def _two_triangles() -> Graphs:
    """Two triangles joined by one edge."""
    one_way = torch.tensor([[0, 1, 0, 3, 4, 3, 2], [1, 2, 2, 4, 5, 5, 3]])
    x = torch.zeros(6, CHANNELS, dtype=torch.float64)
    edge_index = torch.cat([one_way, one_way.flip(0)], 1)
    return Graphs(x, edge_index, torch.zeros(6, dtype=torch.long), torch.zeros(1, dtype=torch.long))


def _hard(capsules: list[int], J: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(capsules), J).double()


def _block_loss(graphs: Graphs, c: Tensor, temperature: float = 0.0) -> float:
    return float(block_loss(c, graphs.edges, graphs.segments, temperature=temperature))


def _by_hand(blocks: list[tuple[float, float]], M: float, N: float) -> float:
    """The loss of blocks (edges, pairs), counted in both directions; each has one prior pair of density M / N."""
    density = M / N
    gains = [(m + density) * math.log((m + density) / ((n + 1) * density)) for m, n in blocks]
    return -sum(gains) / M


def test_hard_assignment_by_hand() -> None:
    graphs = _two_triangles()
    # A triangle has 6 neighbours and 6 ordered pairs; between the two are 2 of 18.
    two_blocks = _block_loss(graphs, _hard([0, 0, 0, 1, 1, 1], 2))
    assert two_blocks == pytest.approx(_by_hand([(6, 6), (6, 6), (2, 18)], 14, 30), abs=1e-12)
    # An empty third capsule does not change the loss; a single block gives no gain.
    assert _block_loss(graphs, _hard([0, 0, 0, 1, 1, 1], 3)) == pytest.approx(two_blocks, abs=1e-12)
    one_block = _block_loss(graphs, _hard([0] * 6, 2))
    assert one_block == pytest.approx(_by_hand([(14, 30), (0, 0), (0, 0)], 14, 30), abs=1e-12)
    mixed = _block_loss(graphs, _hard([0, 1, 0, 1, 0, 1], 2))
    assert two_blocks < mixed
    assert two_blocks < one_block


def test_soft_assignment_by_hand() -> None:
    graphs, T = _two_triangles(), 0.25
    c = torch.full((6, 2), 0.5, dtype=torch.float64)
    # A pair is inside a certain capsule with probability 1/4, and in different capsules with 1/2.
    expected = _by_hand([(3.5, 7.5), (3.5, 7.5), (7, 15)], 14, 30) - 2 * T * 6 * math.log(2) / 14
    assert _block_loss(graphs, c, T) == pytest.approx(expected, abs=1e-12)


def test_capsules_have_one_density_for_all_graphs() -> None:
    one = _two_triangles()
    two = Graphs(
        torch.cat([one.x, one.x]),
        torch.cat([one.edge_index, one.edge_index + 6], 1),
        torch.tensor([0] * 6 + [1] * 6),
        torch.zeros(2, dtype=torch.long),
    )
    c = _hard([0, 0, 0, 1, 1, 1] * 2, 2)
    expected = _by_hand([(12, 12), (12, 12), (4, 36)], 28, 60)  # no pairs between graphs
    assert _block_loss(two, c) == pytest.approx(expected, abs=1e-12)
    # Separate capsules for triangles and paths differ from capsules that mix both.
    path = torch.tensor([[6, 7, 8, 9, 10, 11], [7, 6, 9, 8, 11, 10]])
    mixed = Graphs(two.x, torch.cat([one.edge_index, path], 1), two.batch, two.y)
    separate = _block_loss(mixed, _hard([0] * 3 + [1] * 3 + [2] * 2 + [3] * 4, 4))
    assert separate != pytest.approx(_block_loss(mixed, _hard([0] * 3 + [1] * 3 + [0] * 2 + [1] * 4, 4)))


def test_loss_equals_the_sum_over_all_pairs() -> None:
    graphs, T = random_graphs([7, 12, 1, 4]), 0.4
    generator = torch.Generator().manual_seed(5)
    c = torch.randn(24, 3, generator=generator, dtype=torch.float64).softmax(-1).requires_grad_()
    A = torch.zeros(24, 24, dtype=torch.float64)
    A[graphs.edge_index[0], graphs.edge_index[1]] = 1
    same = (graphs.batch.unsqueeze(0) == graphs.batch.unsqueeze(1)).double()
    same.fill_diagonal_(0)
    M, N = A.sum(), same.sum()
    blocks = [(torch.outer(c[:, j], c[:, j]) * A, torch.outer(c[:, j], c[:, j]) * same) for j in range(3)]
    counts = [(a.sum(), b.sum()) for a, b in blocks]
    counts.append((M - sum(m for m, _ in counts), N - sum(n for _, n in counts)))
    gain = sum((m + M / N) * torch.log((m + M / N) / ((n + 1) * M / N)) for m, n in counts)
    expected = -(gain - 2 * T * (c * c.log()).sum()) / M
    actual = block_loss(c, graphs.edges, graphs.segments, temperature=T)
    assert_equal(actual, expected, "loss")
    (gradient,) = torch.autograd.grad(actual, c)
    assert_equal(gradient, torch.autograd.grad(expected, c)[0], "gradient")


def test_loss_of_graphs_without_edges_is_zero() -> None:
    graphs = random_graphs([1, 3])
    graphs.edge_index = torch.zeros(2, 0, dtype=torch.long)
    c = torch.full((4, 2), 0.5, dtype=torch.float64, requires_grad=True)
    loss = block_loss(c, graphs.edges, graphs.segments)
    loss.backward()
    assert float(loss.detach()) == 0
    assert c.grad is not None
    assert c.grad.isfinite().all()
    with pytest.raises(ShapeError, match="'assignment' must have one row per node"):
        block_loss(c[:3], graphs.edges, graphs.segments)


def test_without_the_option_the_model_is_plain_hgcn() -> None:
    plain, graphs = _model(parts=None), random_graphs([7, 12, 4])
    state, default = dict(plain.state_dict()), HGCN(CHANNELS, 2, capsule_dim=8, num_capsules=(4,))
    assert list(state) == list(default.state_dict())
    assert not any("context" in name for name in state)
    assert plain.capturable
    output = plain(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert type(output) is HGCNOutput
    terms = plain.loss(output, graphs.y)
    assert list(terms.terms) == ["margin", "reconstruction"]
    # Bit by bit: one operation, whose product is not rounded by itself.
    expected = torch.add(terms.terms["margin"], terms.terms["reconstruction"], alpha=0.1)
    assert torch.equal(terms.total, expected)
    assert not output.levels[0].assignment.requires_grad  # no gradient through c, as in the released program


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_the_loss_has_gradients_through_the_assignment(formulation: str) -> None:
    model, graphs = _model(formulation=formulation, parts_weight=0.5), random_graphs([7, 12, 4])
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert isinstance(output, PartsOutput)
    assert output.parts_loss is not None
    terms = model.loss(output, graphs.y)
    assert list(terms.terms) == ["margin", "reconstruction", "parts"]
    expected = terms.terms["margin"] + 0.1 * terms.terms["reconstruction"] + 0.5 * terms.terms["parts"]
    assert_equal(terms.total, expected, "total")
    assert_equal(output.parts_loss, block_loss(output.levels[0].assignment, graphs.edges, graphs.segments))
    output.parts_loss.backward()
    for name, parameter in model.named_parameters():
        if name.startswith(("primary.weight", "layers.0.weight", "layers.0.context.weights")):
            assert parameter.grad is not None, name
            assert bool(parameter.grad.any()), name
    assert model.capturable
    assert model.eval()(graphs.x, graphs.edge_index, graphs.batch).parts_loss is None


def test_the_loss_of_several_batches_is_that_of_all_graphs() -> None:
    model, graphs = _model().train(), random_graphs([7, 12, 1, 20, 9])
    model(graphs.x, graphs.edge_index, graphs.batch)  # running statistics other than the initial ones
    parts = [_batch(graphs, chosen) for chosen in torch.arange(5).split(2)]
    measured = measure_block_loss(model, parts)
    assert model.training
    whole = model.eval()(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert measured == pytest.approx(float(whole.parts_loss.detach()), rel=1e-12)
    assert measure_block_loss(model, [graphs.as_batch()]) == pytest.approx(measured, rel=1e-12)


def test_weight_zero_leaves_the_loss_out() -> None:
    model, graphs = _model(parts_weight=0.0), random_graphs([7, 12])
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert list(model.loss(output, graphs.y).terms) == ["margin", "reconstruction"]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_nan_in_padding_does_not_reach_results(formulation: str, training: bool) -> None:
    for graphs in (random_graphs([7, 40, 1, 12]), tiny_graphs()):
        model = _model(formulation=formulation).train(training)
        bare = losses_and_gradients(model, graphs.as_batch())
        padded = losses_and_gradients(
            _model(formulation=formulation).train(training), with_padding(graphs.as_batch())
        )
        B, V = len(graphs.y), len(graphs.x)
        assert_equal(padded[0].class_scores[:B], bare[0].class_scores, "scores")
        assert_equal(padded[0].levels[0].assignment[:V], bare[0].levels[0].assignment, "assignment")
        assert not padded[0].levels[0].assignment[V:].detach().any()
        assert_equal(padded[1], bare[1], "loss")
        for name, gradient in bare[2].items():
            assert_equal(padded[2][name], gradient, name)


def _batch(graphs: Graphs, chosen: Tensor) -> GraphBatch:
    return graphs.as_store().batch(graphs.x, chosen)


def test_node_order_does_not_matter() -> None:
    check_node_order(_model(), _batch)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_replica_equals_the_model_alone(training: bool) -> None:
    singles = [_model(seed=f).train(training) for f in range(3)]
    check_replicas(_model((3,)).train(training), singles, _batch)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'parts' must be None or 'blocks', got 'cut'"):
        _model(parts="cut")
    with pytest.raises(ArgumentError, match="'parts_weight' must be 0 or more, and finite, got -1"):
        _model(parts_weight=-1.0)
    with pytest.raises(ArgumentError, match="'trunk' must be None beside parts='blocks'"):
        _model(trunk="gin")
    with pytest.raises(ArgumentError, match="'num_layers' must be at least 1, got 0"):
        Context(4, 0)
    with pytest.raises(ArgumentError, match="'hops' must be at least 0, got -1"):
        Context(4, 1, hops=-1)
    with pytest.raises(ArgumentError, match="'context' must be None if there is a trunk"):
        CapsuleLayer(4, 4, 2, trunk=Trunk("gin", 4), context=Context(4, 1))
