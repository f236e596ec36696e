"""Explanations of a committee: means over members, how far they agree, and the capsules of the first member."""

import json

import numpy as np
import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.explanation import explain, explain_store
from graphcaps.explanation.agreement import member_agreement, rank_correlation
from graphcaps.explanation.explanation_metrics import evaluate_explanations
from graphcaps.explanation.pyg_explainer import GraphProbabilities
from graphcaps.explanation.report.report_data import explanation_columns
from tests.small_models import planted, small_committee, small_model

GRAPHS = torch.tensor([0, 7, 3])


def test_node_scores_are_means_over_members() -> None:
    model, store = small_committee(), planted()[GRAPHS]
    together = explain_store(model, store)
    p = torch.from_numpy(model.predict_proba(store))
    torch.testing.assert_close(together.probabilities, p, rtol=0, atol=1e-6)
    members = [explain_store(model.member(number), store, target=p.argmax(-1)) for number in range(3)]
    scores = torch.stack([member.node_scores for member in members])
    torch.testing.assert_close(together.member_node_scores, scores, rtol=0, atol=1e-6)
    torch.testing.assert_close(together.node_scores, scores.mean(0), rtol=0, atol=1e-6)
    edges = torch.stack([member.edge_scores for member in members]).mean(0)
    torch.testing.assert_close(together.edge_scores, edges, rtol=0, atol=1e-6)
    assert together.target.tolist() == p.argmax(-1).tolist()
    assert together.member_predicted is not None
    assert together.member_predicted.tolist() == [member.predicted.tolist() for member in members]
    torch.testing.assert_close(together.assignments[0], members[0].assignments[0])
    torch.testing.assert_close(together.class_scores, members[0].class_scores)
    one = together[1]
    assert one.num_agreeing == sum(int(member.predicted[1]) == one.predicted for member in members)
    assert one.agreement == pytest.approx(float(member_agreement(scores, together.node_ptr)[1]))
    content = json.loads(one.to_json())["members"]
    assert len(content["predicted"]) == len(content["node_scores"]) == 3
    assert content["agreement"] == pytest.approx(one.agreement, rel=1e-5)


def test_the_agreement_is_the_mean_correlation_of_pairs() -> None:
    scores = torch.tensor([[1.0, 2, 3, 5, 4, 1], [1.0, 3, 2, 1, 1, 1], [3.0, 2, 1, 0, 1, 2]])
    node_ptr = torch.tensor([0, 3, 6, 6])
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = [rank_correlation(scores[a, :3], scores[b, :3], node_ptr[:2]) for a, b in pairs]
    assert expected == pytest.approx([0.5, -1, -0.5])
    agreement = member_agreement(scores, node_ptr)
    assert float(agreement[0]) == pytest.approx(-1 / 3)
    assert agreement[1:].isnan().all()  # scores of the second member are constant; there are no nodes


def test_a_single_model_has_no_members() -> None:
    one = explain(small_model(), planted()[0])
    assert (one.agreement, one.num_agreeing, one.member_node_scores) == (None, None, None)
    assert "members" not in one.as_dict()


def test_the_page_has_the_agreement() -> None:
    model, store = small_committee(), planted()[GRAPHS]
    explanation = explain_store(model, store)
    columns, _ = explanation_columns(explanation, np.arange(3), weights=())
    assert {"agreeing", "agreement"} <= columns.keys()
    assert explanation[0].to_html().startswith("<!doctype html>")
    assert evaluate_explanations(model, store, methods=("capsules",))["members"] == 3


def test_explainers_of_torch_geometric_take_one_member() -> None:
    with pytest.raises(ArgumentError, match=r"be a single model, got 3 members\. Explain one of its members"):
        GraphProbabilities(small_committee())
    GraphProbabilities(small_committee().member(1))
    with pytest.raises(ArgumentError, match="'number' must be from 0 to 2, got 3"):
        small_committee().member(3)
