"""Flows: contributions add up to the class scores, so that the widest class is the predicted one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from graphcaps.explanation import explain_store
from graphcaps.explanation.contribution_flow import contribution_flow
from graphcaps.explanation.drawings import flow_masses
from tests.explanation.synthetic import make_explanations, make_store
from tests.small_models import planted, train_small


@pytest.mark.parametrize("capsules", [(4,), (5, 3)])
def test_the_widest_class_is_the_predicted_one_for_every_graph(capsules: tuple[int, ...]) -> None:
    model = train_small(planted(), arguments={"capsule_dim": 8, "num_capsules": capsules, "num_factors": 2})
    explanations = explain_store(model, planted())
    for one in explanations:
        totals = contribution_flow(one)[-1].sum(0)
        np.testing.assert_allclose(totals, one.class_scores.numpy(), atol=2e-6)
        assert int(totals.argmax()) == one.predicted


def test_routing_coefficients_may_name_another_class() -> None:
    """Widths were the mass that routing coefficients distribute: it ended at another class than the predicted one."""
    explanations = make_explanations(make_store(40), capsules=(4,))
    for one in explanations:
        assert int(contribution_flow(one)[-1].sum(0).argmax()) == one.predicted
    assert any(int(flow_masses(one)[-1].argmax()) != one.predicted for one in explanations)


@pytest.mark.parametrize("capsules", [(4,), (6, 3), (5, 4, 2)])
def test_what_enters_a_capsule_leaves_it(capsules: tuple[int, ...]) -> None:
    one = make_explanations(make_store(3), capsules=capsules)[1]
    flows = contribution_flow(one)
    sizes = [*capsules, 3]
    assert [flow.shape for flow in flows] == [
        (1, sizes[0]),
        *((below + 1, J) for below, J in pairwise(sizes)),
    ]
    for into, out in pairwise(flows):
        np.testing.assert_allclose(np.abs(into).sum(0), np.abs(out[:-1]).sum(1))


def test_a_capsule_without_contributions_has_no_flow() -> None:
    one = make_explanations(make_store(2), capsules=(3, 2))[0]
    for value in (one.levels[1].contributions, one.levels[1].residual_contributions):
        value[..., 0] = 0
    flows = contribution_flow(one)
    assert all(np.isfinite(flow).all() for flow in flows)
    assert not torch.from_numpy(flows[1])[:, 0].any()
