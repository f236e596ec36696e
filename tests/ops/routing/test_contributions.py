"""Contributions to the lengths of capsules: exact sums, equal to projected votes, ragged equal to dense."""

from __future__ import annotations

import pytest
import torch

from graphcaps.nn import HGCN
from graphcaps.ops.routing.contributions import routing_contributions
from graphcaps.ops.routing.naive import route_naive
from graphcaps.types import Segments
from tests.graphs import random_graphs

SIZES = torch.tensor([5, 1, 8])


def inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Segments]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return normal(14, 6), normal(4, 6, 3), normal(4, 3), normal(3, 1, 3), Segments.from_sizes(SIZES)


@pytest.mark.parametrize("after_squash", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
def test_sums_are_exact_and_terms_are_projected_votes(with_residual: bool, after_squash: bool) -> None:
    h, weight, bias, mean, segments = inputs()
    residual = mean if with_residual else None
    epsilon = 0.0 if after_squash else 1e-7
    routing = route_naive(h, weight, bias, segments, 3, None if after_squash else residual, epsilon=epsilon)
    final = routing.capsules + residual if after_squash and residual is not None else routing.capsules
    result = routing_contributions(
        h, weight, bias, segments, routing, residual=residual, after_squash=after_squash
    )
    length = final.norm(dim=-1)
    sums = torch.zeros_like(length).index_add(0, segments.index, result.inputs) + result.residual
    torch.testing.assert_close(sums, length, rtol=1e-12, atol=1e-12)
    # Term by term, with every vote stored.
    votes = torch.einsum("vd,jde->vje", h, weight) + bias
    weighted = routing.assignment.unsqueeze(-1) * votes
    s = torch.zeros(3, 4, 3, dtype=h.dtype).index_add(0, segments.index, weighted)
    if residual is not None and not after_squash:
        s = s + residual
    factor = routing.capsules.norm(dim=-1) / s.norm(dim=-1)
    direction = final / length.unsqueeze(-1)
    expected = (weighted * (factor.unsqueeze(-1) * direction)[segments.index]).sum(-1)
    torch.testing.assert_close(result.inputs, expected, rtol=1e-10, atol=1e-12)


def test_dense_equals_ragged() -> None:
    h, weight, bias, mean, _ = inputs()
    h = h[:12]
    segments = Segments.from_sizes(torch.tensor([4, 4, 4]))
    routing = route_naive(h, weight, bias, segments, 2, mean)
    ragged = routing_contributions(h, weight, bias, segments, routing, residual=mean)
    dense_routing = type(routing)(routing.capsules, routing.assignment.reshape(3, 4, 4))
    dense = routing_contributions(h.reshape(3, 4, 6), weight, bias, None, dense_routing, residual=mean)
    torch.testing.assert_close(dense.inputs.reshape(12, 4), ragged.inputs)
    torch.testing.assert_close(dense.residual, ragged.residual)


def test_capsules_of_zero_have_no_contributions() -> None:
    h, weight, bias, _, segments = inputs()
    routing = route_naive(h * 0, weight, bias * 0, segments, 2)
    result = routing_contributions(h * 0, weight, bias * 0, segments, routing)
    assert not result.inputs.any()
    assert not result.residual.any()


@pytest.mark.parametrize("formulation", ["released", "paper"])
@pytest.mark.parametrize("capsules", [(4,), (5, 3)])
@pytest.mark.parametrize("options", [{}, {"residual": False}, {"trunk": "gin"}, {"parts": "blocks"}])
def test_contributions_of_a_model_add_up_on_every_level(
    formulation: str, capsules: tuple[int, ...], options: dict[str, object]
) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([5, 2, 9, 1], classes=3)
    batch = graphs.as_batch()
    model = (
        HGCN(5, 3, capsule_dim=8, num_capsules=capsules, num_factors=2, formulation=formulation, **options)
        .double()
        .eval()
    )
    output = model.forward_batch(batch, trace=True)
    for number, level in enumerate(output.levels):
        contributions = level.contributions
        assert contributions is not None
        lengths = level.capsules.norm(dim=-1)
        sums = (
            torch.zeros_like(lengths).index_add(0, graphs.batch, contributions.inputs)
            if number == 0
            else contributions.inputs.sum(-2)
        )
        torch.testing.assert_close(sums + contributions.residual, lengths, rtol=1e-10, atol=1e-11)
        assert not contributions.inputs.requires_grad
    totals = output.levels[-1].contributions.inputs.sum(-2) + output.levels[-1].contributions.residual
    assert totals.argmax(-1).tolist() == output.class_scores.argmax(-1).tolist()
    assert model.forward_batch(batch).levels[0].contributions is None
