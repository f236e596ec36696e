"""Responses agree with the library, and a graph that fails does not affect the others."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import graphcaps
from graphcaps.errors import GraphcapsError
from graphcaps.explanation import counterfactuals
from graphcaps.explanation.explanation_data import NO_NODES_NOTE
from graphcaps.explanation.report.report_data import read_block
from graphcaps.inference.applicability import NO_NODES
from graphcaps.serve.limits import Limits, RequestError
from graphcaps.serve.request_graphs import RequestGraph, read_request
from graphcaps.serve.responses import predict_requests, respond
from tests.serve.models import molecule_model, node_link
from tests.small_models import labelled, labelled_model, planted, small_committee, small_model, train_small


def request_graphs(*graphs: object, **options: Any) -> list[RequestGraph]:
    body = json.dumps({"graphs": graphs}).encode()
    return read_request("application/json", body, labelled_model(), Limits(), **options)


def test_predictions_are_those_of_the_library() -> None:
    fitted, store = labelled_model(), labelled()
    response = respond(fitted, "predict", request_graphs(node_link(store, 0), 7, node_link(store, 4)))
    first, bad, last = response["predictions"]
    expected = fitted.predict_proba(store[[0, 4]])
    for row, probabilities in zip((first, last), expected, strict=True):
        assert list(row["probabilities"]) == list(fitted.class_names)
        assert np.allclose(list(row["probabilities"].values()), probabilities, atol=1e-5)
        assert row["class"] == fitted.class_names[probabilities.argmax()]
        assert row["error"] is None
    assert [row["graph"] for row in response["predictions"]] == [1, 2, 3]
    assert set(bad) == set(first)
    assert {name for name, value in bad.items() if value} == {"graph", "name", "error"}
    assert "nodes" in bad["error"]


def test_explanations_are_those_of_the_library() -> None:
    fitted, store = labelled_model(), labelled()
    target = fitted.class_names[2]
    response = respond(fitted, "explain", request_graphs(7, node_link(store, 5)), target=target)
    failed, row = response["explanations"]
    assert list(failed) == list(row)
    assert (failed["graph"], failed["node_scores"]) == (1, None)
    assert "nodes" in failed["error"]
    assert {name for name, value in failed.items() if value is not None} == {"graph", "name", "error"}
    expected = graphcaps.explain(fitted, store[5], target=target).as_dict()
    assert row["graph"] == 2
    assert row["target"] == target
    assert np.allclose(row["node_scores"], expected["node_scores"], atol=1e-5)
    assert row["levels"][0]["capsule"] == expected["levels"][0]["capsule"]
    with pytest.raises(GraphcapsError, match="'target' must be one of the classes"):
        respond(fitted, "explain", request_graphs(node_link(store, 5)), target="nothing")


def test_a_graph_without_nodes_is_named_in_every_response() -> None:
    fitted, store = labelled_model(), labelled()
    empty = {"nodes": [], "links": []}
    graphs = request_graphs(empty, node_link(store, 0), empty)
    rows = respond(fitted, "predict", graphs)["predictions"]
    assert [row["out_of_distribution"] for row in (rows[0], rows[2])] == [NO_NODES] * 2
    assert list(rows[0]["probabilities"].values()) == fitted.class_prior.tolist()
    assert rows[1]["probabilities"] == pytest.approx(
        dict(zip(fitted.class_names, fitted.predict_proba(store[0])[0], strict=True)), abs=1e-5
    )
    explanations = respond(fitted, "explain", graphs)["explanations"]
    assert [row["note"] for row in explanations] == [NO_NODES_NOTE, None, NO_NODES_NOTE]
    _, columns = read_block(respond(fitted, "page", graphs)["block"])
    assert columns["number"].tolist() == [1]
    alone = respond(fitted, "page", request_graphs(empty))
    assert alone["block"] is None
    assert alone["predictions"][0]["class"] == fitted.class_names[fitted.class_prior.argmax()]


def test_entries_with_and_without_an_error_have_the_same_fields() -> None:
    for fitted in (labelled_model(), train_small(labelled(), "gin")):
        good, bad = respond(fitted, "predict", request_graphs(node_link(labelled(), 0), 7))["predictions"]
        assert list(bad) == list(good)
        filled = {"graph", "name", "abstained", "error"}
        assert {name for name, value in bad.items() if value is not None} == filled


def test_requests_are_predicted_together_as_alone() -> None:
    fitted, store = labelled_model(), labelled()
    requests = [
        request_graphs(node_link(store, 0), 7),
        request_graphs(8),
        request_graphs(node_link(store, 4), node_link(store, 5)),
    ]
    together = predict_requests(fitted, requests)
    assert [[row["graph"] for row in rows] for rows in together] == [[1, 2], [1], [1, 2]]
    for graphs, rows in zip(requests, together, strict=True):
        (alone,) = predict_requests(fitted, [graphs])
        for row, expected in zip(rows, alone, strict=True):
            assert row.pop("probabilities") == pytest.approx(expected.pop("probabilities"), abs=1e-6)
            assert row.pop("probability") == pytest.approx(expected.pop("probability"), abs=1e-6)
            assert row.pop("lengths") == pytest.approx(expected.pop("lengths"), abs=1e-6)
            assert row == expected


def test_a_request_without_a_readable_graph_is_rejected() -> None:
    with pytest.raises(
        RequestError, match=r"none of the 2 graphs can be read: graph 1 \('1'\): .*7"
    ) as caught:
        respond(labelled_model(), "predict", request_graphs(7, 8))
    assert caught.value.status == 422
    with pytest.raises(RequestError, match=r"request: the graph cannot be read: .*'nodes'.*7\.$"):
        respond(labelled_model(), "predict", request_graphs(7))


def test_unseen_labels_are_an_error_or_zeros() -> None:
    good, strange = node_link(labelled(), 0), node_link(labelled(), 1)
    strange["nodes"][0]["label"] = 99
    rows = respond(labelled_model(), "predict", request_graphs(good, strange))["predictions"]
    assert rows[0]["error"] is None
    assert "99" in rows[1]["error"]
    rows = respond(labelled_model(), "predict", request_graphs(good, strange, unseen="ignore"))["predictions"]
    assert rows[1]["error"] is None


def test_a_graph_without_nodes_among_others_gets_the_class_prior() -> None:
    fitted = labelled_model()
    rows = respond(fitted, "predict", request_graphs(node_link(labelled(), 0), {"nodes": []}))["predictions"]
    assert [row["error"] for row in rows] == [None, None]
    assert list(rows[1]["probabilities"].values()) == fitted.class_prior.tolist()
    assert np.array_equal(list(rows[0]["probabilities"].values()), fitted.predict_proba(labelled()[0])[0])


def test_graphs_with_and_without_weights() -> None:
    plain, heavy = node_link(planted(), 0), node_link(planted(), 0)
    for link in heavy["links"]:
        link["weight"] = 1.0
    body = json.dumps([plain, heavy]).encode()
    graphs = read_request("application/json", body, small_model(), Limits())
    first, second = respond(small_model(), "predict", graphs)["predictions"]
    assert first["probability"] == pytest.approx(second["probability"], abs=1e-6)


def test_the_page_block_has_the_graphs_that_were_read() -> None:
    fitted = molecule_model()
    body = json.dumps({"smiles": ["nothing", "c1ccccc1O", "CCN"]}).encode()
    graphs = read_request("application/json", body, fitted, Limits())
    response = respond(fitted, "page", graphs)
    meta, columns = read_block(response["block"])
    assert columns["number"].tolist() == [1, 2]
    assert meta["ids"] == ["c1ccccc1O", "CCN"]
    assert meta["labels"]["names"] == ["C", "N", "O"]
    assert np.bincount(columns["label"]).tolist() == [8, 1, 1]
    expected = [counterfactuals(fitted, smiles) for smiles in meta["ids"]]
    assert [entry["sentence"] for entry in meta["counterfactuals"]] == [one.sentence for one in expected]


def test_a_model_without_capsules_predicts_and_does_not_explain() -> None:
    fitted = train_small(labelled(), "gin")
    graphs = request_graphs(node_link(labelled(), 0))
    assert respond(fitted, "page", graphs)["block"] is None
    assert respond(fitted, "predict", graphs)["predictions"][0]["scores"]
    with pytest.raises(GraphcapsError, match="HGCN"):
        respond(fitted, "explain", graphs)


def test_a_committee_gives_disagreement_and_members() -> None:
    fitted, store = small_committee(), planted()
    body = json.dumps({"graphs": [node_link(store, 3), 7]}).encode()
    graphs = read_request("application/json", body, fitted, Limits())
    row, bad = respond(fitted, "predict", graphs)["predictions"]
    assert row["disagreement"] == pytest.approx(float(fitted.disagreement(store[3])[0]), abs=1e-6)
    assert (list(bad), bad["disagreement"]) == (list(row), None)
    explained, failed = respond(fitted, "explain", graphs)["explanations"]
    assert len(explained["members"]["predicted"]) == 3
    assert (list(failed), failed["members"]) == (list(explained), None)
    meta, columns = read_block(respond(fitted, "page", graphs)["block"])
    assert meta["members"] == 3
    assert columns["agreeing"].shape == (1,)
    assert "disagreement" not in respond(small_model(), "predict", graphs)["predictions"][0]
