"""Explanations of graphs without nodes: one sentence instead of a tree or a drawing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError
from graphcaps.explanation import evaluate_explanations, explain_store
from graphcaps.explanation.agreement import capsule_usage
from graphcaps.explanation.explanation_data import NO_NODES_NOTE
from graphcaps.explanation.report import write_report
from graphcaps.explanation.report.report_data import Columns, read_block
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.training.final_training import train_final
from tests.graphs import with_empty_graphs

CONFIG = RunConfig(
    model="hgcn",
    model_arguments={"capsule_dim": 8, "num_capsules": (4, 3), "num_factors": 2},
    training=TrainConfig(epochs=2, batch_size=8, learning_rate=0.01),
)
STORE, KEPT = with_empty_graphs(planted_parts(num_graphs=12), [1, 0, 0, 2, *[0] * 8, 1], y=1)


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return train_final(STORE, CONFIG, device="cpu").model


def read_page(path: Path) -> tuple[dict[str, Any], Columns]:
    block = re.search(r'id="data"[^>]*>([^<]+)<', path.read_text("utf-8"))
    assert block is not None
    return read_block(block[1].strip())


def test_the_other_explanations_are_unchanged(model: FittedModel) -> None:
    expected, explanations = explain_store(model, planted_parts(num_graphs=12)), explain_store(model, STORE)
    assert len(explanations) == 16
    assert torch.equal(explanations.node_ptr, STORE.node_ptr)
    for one, graph in zip(expected, KEPT, strict=True):
        other = explanations[graph]
        assert torch.allclose(other.node_scores, one.node_scores, atol=1e-6)
        assert torch.allclose(other.probabilities, one.probabilities, atol=1e-6)
        assert other.note == ""
        assert other.as_dict()["note"] is None
        for a, b in zip(other.levels, one.levels, strict=True):
            assert torch.allclose(a.assignment, b.assignment, atol=1e-6)


@pytest.mark.parametrize("together", [True, False])
def test_an_explanation_is_a_sentence(model: FittedModel, together: bool, tmp_path: Path) -> None:
    explanation = explain_store(model, STORE)[4] if together else graphcaps.explain(model, STORE[4])
    assert explanation.num_nodes == 0
    assert explanation.note == NO_NODES_NOTE
    assert explanation.probabilities.tolist() == model.class_prior.tolist()
    assert not explanation.class_scores.any()
    assert not any(level.lengths.any() for level in explanation.levels)
    assert explanation.node_scores.shape == (0,)
    assert explanation.levels[0].assignment.shape == (0, 4)
    assert explanation.levels[1].iterations.shape == (3, 4, 3)
    tree = explanation.tree
    assert tree["predicted"] == model.class_names[1]
    assert [entry["parts"] for entry in tree["classes"]] == [[], [], []]
    assert json.loads(explanation.to_json())["note"] == NO_NODES_NOTE
    page = explanation.to_html(tmp_path / "page.html")
    assert NO_NODES_NOTE in page
    assert "<script" not in page
    with pytest.raises(ArgumentError, match="'explanation' must be of a graph with nodes, got one without"):
        explanation.draw(tmp_path / "picture.svg")
    assert not (tmp_path / "picture.svg").exists()


def test_nothing_but_graphs_without_nodes(model: FittedModel, tmp_path: Path) -> None:
    empty = STORE[STORE.empty_graphs]
    explanations = explain_store(model, empty)
    assert [one.note for one in explanations] == [NO_NODES_NOTE] * 4
    meta, columns = read_page(write_report(tmp_path, model, empty, explanations))
    assert len(columns["number"]) == 0
    assert "4 of 4 graphs have no nodes and are not in the list (1, 2, 3, 4)" in meta["foot"]
    with pytest.raises(ArgumentError, match="'graphs' must hold at least one graph with nodes, got none"):
        evaluate_explanations(model, empty, methods=("capsules",))


def test_metrics_leave_them_out(model: FittedModel) -> None:
    methods = ("capsules", "random")
    plain = evaluate_explanations(model, planted_parts(num_graphs=12), methods=methods)
    counted = evaluate_explanations(model, STORE, methods=methods)
    for name in ("nmi", "ari", "entropy", "fidelity_plus"):
        expected = plain["methods"]["capsules"][name]
        assert counted["methods"]["capsules"][name] == (
            expected if expected is None else pytest.approx(expected, abs=1e-5)
        )
    explanations = explain_store(model, STORE)
    usage = capsule_usage(explanations.assignments[0], explanations.capsule, explanations.node_ptr)
    assert sum(usage["share"]) == pytest.approx(1, abs=1e-5)


def test_the_report_names_them(model: FittedModel, tmp_path: Path) -> None:
    explanations = explain_store(model, STORE)
    meta, columns = read_page(write_report(tmp_path, model, STORE, explanations))
    assert columns["number"].tolist() == KEPT
    assert "4 of 16 graphs have no nodes and are not in the list (1, 5, 6, 16)" in meta["foot"]
    assert meta["sets"][0]["graphs"] == 16
