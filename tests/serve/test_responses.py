"""What is answered agrees with the library, and one graph does not spoil the others."""

from __future__ import annotations

import json

import numpy as np
import pytest

import graphcaps
from graphcaps.errors import GraphcapsError
from graphcaps.explanation.report.report_data import read_block
from graphcaps.serve.limits import Limits, Refused
from graphcaps.serve.request_graphs import Item, read_request
from graphcaps.serve.responses import answer
from tests.serve.models import molecule_model, node_link
from tests.small_models import labelled, labelled_model, planted, small_model, train_small


def items_of(*graphs: object) -> list[Item]:
    body = json.dumps({"graphs": graphs}).encode()
    return read_request("application/json", body, labelled_model().recipe, Limits())


def test_predictions_are_those_of_the_library() -> None:
    fitted, store = labelled_model(), labelled()
    told = answer(fitted, "predict", items_of(node_link(store, 0), 7, node_link(store, 4)))
    first, bad, last = told["predictions"]
    wanted = fitted.predict_proba(store[[0, 4]])
    for row, shares in zip((first, last), wanted, strict=True):
        assert list(row["probabilities"]) == list(fitted.class_names)
        assert np.allclose(list(row["probabilities"].values()), shares, atol=1e-5)
        assert row["class"] == fitted.class_names[shares.argmax()]
        assert row["error"] is None
    assert [row["graph"] for row in told["predictions"]] == [1, 2, 3]
    assert bad["class"] is None
    assert "nodes" in bad["error"]


def test_explanations_are_those_of_the_library() -> None:
    fitted, store = labelled_model(), labelled()
    target = fitted.class_names[2]
    told = answer(fitted, "explain", items_of(7, node_link(store, 5)), target=target)
    bad, found = told["explanations"]
    assert set(bad) == {"graph", "name", "error"}
    own = graphcaps.explain(fitted, store[5], target=target).as_dict()
    assert found["graph"] == 2
    assert found["target"] == target
    assert np.allclose(found["node_scores"], own["node_scores"], atol=1e-5)
    assert found["levels"][0]["capsule"] == own["levels"][0]["capsule"]
    with pytest.raises(GraphcapsError, match="'target' must be one of the classes"):
        answer(fitted, "explain", items_of(node_link(store, 5)), target="nothing")


def test_no_graph_at_all_is_refused() -> None:
    with pytest.raises(Refused, match="found none") as caught:
        answer(labelled_model(), "predict", items_of(7, 8))
    assert caught.value.status == 422


def test_unseen_labels_are_an_error_or_zeros() -> None:
    good, strange = node_link(labelled(), 0), node_link(labelled(), 1)
    strange["nodes"][0]["label"] = 99
    rows = answer(labelled_model(), "predict", items_of(good, strange))["predictions"]
    assert rows[0]["error"] is None
    assert "99" in rows[1]["error"]
    rows = answer(labelled_model(), "predict", items_of(good, strange), unseen="ignore")["predictions"]
    assert rows[1]["error"] is None


def test_weights_beside_none() -> None:
    plain, heavy = node_link(planted(), 0), node_link(planted(), 0)
    for link in heavy["links"]:
        link["weight"] = 1.0
    body = json.dumps([plain, heavy]).encode()
    items = read_request("application/json", body, small_model().recipe, Limits())
    first, second = answer(small_model(), "predict", items)["predictions"]
    assert first["probability"] == pytest.approx(second["probability"], abs=1e-6)


def test_the_page_s_block_holds_the_graphs_that_were_read() -> None:
    fitted = molecule_model()
    body = json.dumps({"smiles": ["nothing", "c1ccccc1O", "CCN"]}).encode()
    items = read_request("application/json", body, fitted.recipe, Limits())
    told = answer(fitted, "page", items)
    meta, columns = read_block(told["block"])
    assert columns["number"].tolist() == [1, 2]
    assert meta["names"] == ["c1ccccc1O", "CCN"]
    assert meta["labels"]["names"] == ["C", "N", "O"]
    assert np.bincount(columns["label"]).tolist() == [8, 1, 1]


def test_a_model_without_capsules_predicts_and_does_not_explain() -> None:
    fitted = train_small(labelled(), "gin")
    items = items_of(node_link(labelled(), 0))
    assert answer(fitted, "page", items)["block"] is None
    assert answer(fitted, "predict", items)["predictions"][0]["scores"]
    with pytest.raises(GraphcapsError, match="HGCN"):
        answer(fitted, "explain", items)
