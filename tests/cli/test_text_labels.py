"""Text labels have one encoding: models and graphs from memory, files, the command line and the server fit together."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.cli.main import app
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.serve.limits import Limits
from graphcaps.serve.worker import WorkerRequest, handle_batch

SMALL: dict[str, Any] = {"capsule_dim": 8, "num_capsules": 3, "num_factors": 2, "epochs": 2, "device": "cpu"}


def networks(labels: tuple[str, ...] = ("red", "blue", "green")) -> list[nx.Graph]:
    graphs = []
    for number in range(20):
        graph = nx.cycle_graph(5 + number % 3) if number % 2 else nx.path_graph(5 + number % 3)
        graph.graph["y"] = "ring" if number % 2 else "chain"
        for node, entry in graph.nodes(data=True):
            entry["label"] = labels[(node + number) % len(labels)]
        graphs.append(graph)
    return graphs


def write_graphml(path: Path, graphs: list[nx.Graph]) -> Path:
    """All graphs in one GraphML file."""
    texts = ["".join(nx.generate_graphml(graph)) for graph in graphs]
    bodies = [text[text.index("<graph ") : text.index("</graph>") + len("</graph>")] for text in texts]
    head = texts[0][: texts[0].index("<graph ")]
    path.write_text(f"{head}{''.join(bodies)}</graphml>")
    return path


@cache
def fitted() -> HGCNClassifier:
    return HGCNClassifier(random_state=0, **SMALL).fit(networks())


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def probabilities(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([list(row["probabilities"].values()) for row in rows])


def respond(model: FittedModel, content_type: str, body: bytes, **options: str) -> tuple[int, dict[str, Any]]:
    (response,) = handle_batch(model, Limits(), [WorkerRequest("predict", content_type, dict(options), body)])
    return response.status, json.loads(response.content)


def test_a_classifier_fitted_on_networkx_predicts_a_file(tmp_path: Path) -> None:
    model, expected = fitted(), fitted().predict_proba(networks())
    path = write_graphml(tmp_path / "nets.graphml", networks())
    assert np.array_equal(model.predict_proba(path), expected)
    assert np.array_equal(model.predict_proba(str(path)), expected)
    model.save(tmp_path / "m.safetensors")
    assert "label_codes" not in graphcaps.load(tmp_path / "m.safetensors").training["estimator"]
    assert np.array_equal(HGCNClassifier.load(tmp_path / "m.safetensors").predict_proba(path), expected)
    result = run("predict", tmp_path / "m.safetensors", path, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    assert np.array_equal(probabilities(json.loads(result.stdout)["predictions"]), expected)
    assert run("explain", tmp_path / "m.safetensors", path, "--graph", "2").exit_code == 0
    assert "blue" in run("info", tmp_path / "m.safetensors").stdout


def test_a_classifier_fitted_on_networkx_is_served(tmp_path: Path) -> None:
    model = fitted().model_
    expected = fitted().predict_proba(networks())
    body = write_graphml(tmp_path / "nets.graphml", networks()).read_bytes()
    status, content = respond(model, "application/graphml+xml", body)
    assert status == 200
    assert np.allclose(probabilities(content["predictions"]), expected, atol=1e-6)
    links = json.dumps([nx.node_link_data(graph, edges="links") for graph in networks()]).encode()
    assert np.array_equal(
        probabilities(respond(model, "application/json", links)[1]["predictions"]),
        probabilities(content["predictions"]),
    )


def test_a_model_trained_on_a_file_predicts_networkx(tmp_path: Path) -> None:
    path, out = write_graphml(tmp_path / "nets.graphml", networks()), tmp_path / "m.safetensors"
    result = run("train", path, "--out", out, "--epochs", 2, "--device", "cpu", "--json")
    assert result.exit_code == 0, result.output
    model = graphcaps.load(out)
    expected = model.predict_proba(graphcaps.load_dataset(path))
    assert np.array_equal(model.predict_proba(networks()), expected)
    assert np.array_equal(HGCNClassifier.load(out).predict_proba(networks()), expected)
    assert model.predict(networks()).tolist() == model.predict(path).tolist()


def test_a_classifier_fitted_on_a_file_predicts_networkx(tmp_path: Path) -> None:
    path = write_graphml(tmp_path / "nets.graphml", networks())
    model = HGCNClassifier(random_state=0, **SMALL).fit(path)
    assert np.array_equal(model.predict_proba(networks()), fitted().predict_proba(networks()))
    assert model.score(path) == fitted().score(networks())


def test_an_unseen_text_is_named_in_the_same_words_everywhere(tmp_path: Path) -> None:
    model, new = fitted(), networks(("red", "mauve"))
    words = "node label 'mauve', on 2 nodes, not seen in training"
    path = write_graphml(tmp_path / "new.graphml", new)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(
        graphcaps.errors.ArgumentError, match=f"^FittedModel: 'graphs' must .* graph 0 .*{words}"
    ):
        model.model_.predict(new)
    with pytest.raises(graphcaps.errors.ArgumentError, match=f"^explain: 'graphs' must .* graph 0 .*{words}"):
        graphcaps.explain(model.model_, path)
    assert words in run("predict", tmp_path / "m.safetensors", path).stderr
    assert words in run("explain", tmp_path / "m.safetensors", path, "--graph", "1").stderr
    status, content = respond(model.model_, "application/graphml+xml", path.read_bytes())
    assert (status, words in content["error"]) == (422, True)
    with pytest.warns(UserWarning, match=f"^HGCNClassifier: unseen labels .* Graph 0: {words}"):
        expected = model.predict_proba(new)
    ignored = run(
        "predict", tmp_path / "m.safetensors", path, "--unseen", "ignore", "--device", "cpu", "--json"
    )
    assert words in ignored.stderr
    assert np.array_equal(probabilities(json.loads(ignored.stdout)["predictions"]), expected)
    _, content = respond(model.model_, "application/graphml+xml", path.read_bytes(), unseen="ignore")
    assert np.allclose(probabilities(content["predictions"]), expected, atol=1e-6)


def test_a_path_in_a_request_is_not_opened(tmp_path: Path) -> None:
    path = write_graphml(tmp_path / "nets.graphml", networks())
    for body in ({"smiles": [str(path)]}, {"graphs": [str(path)]}, [str(path)]):
        status, content = respond(fitted().model_, "application/json", json.dumps(body).encode())
        assert status in (422, 501)
        assert "predictions" not in content


def test_the_report_shows_the_text_of_labels(tmp_path: Path) -> None:
    from graphcaps.explanation.report.report_data import read_block

    fitted().save(tmp_path / "m.safetensors")
    path = write_graphml(tmp_path / "nets.graphml", networks())
    result = run("explain", tmp_path / "m.safetensors", path, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    text = next((tmp_path / "report").glob("*.html")).read_text("utf-8")
    blocks = [
        respond_page(fitted().model_, path.read_bytes())[1]["block"],
        re.findall(r'id="data">([^<]*)<', text)[0],
    ]
    for block in blocks:
        assert sorted(read_block(block)[0]["labels"]["names"]) == ["blue", "green", "red"]


def respond_page(model: FittedModel, body: bytes) -> tuple[int, dict[str, Any]]:
    request = WorkerRequest("page", "application/graphml+xml", {}, body)
    (response,) = handle_batch(model, Limits(), [request])
    return response.status, json.loads(response.content)


def test_labels_of_other_names_are_read_on_the_command_line(tmp_path: Path) -> None:
    """Nodes with ``colour`` in place of ``label``: information, training and prediction read it."""
    graphs = networks()
    for graph in graphs:
        for _, entry in graph.nodes(data=True):
            entry["colour"] = entry.pop("label")
        nx.set_edge_attributes(graph, "road", "kind")
    path, out = write_graphml(tmp_path / "nets.graphml", graphs), tmp_path / "m.safetensors"
    info = run("data", "info", path, "--json")
    assert json.loads(info.stdout)["node_labels"] is None
    notes = " ".join(json.loads(info.stdout)["reading"])
    assert "--node-label 'colour' reads it as the label" in notes
    info = run("data", "info", path, "--node-label", "colour", "--edge-label", "kind", "--json")
    assert json.loads(info.stdout)["node_labels"]["distinct"] == [3]
    assert json.loads(info.stdout)["edge_labels"]["distinct"] == [1]
    wrong = run("data", "check", path, "--node-label", "color", "--no-forecast")
    assert wrong.exit_code == 2
    assert "expected the node attribute 'color'" in wrong.stderr
    assert "found only 'colour'" in wrong.stderr
    done = run("train", path, "--node-label", "colour", "--model", "wl-forest", "--out", out)
    assert done.exit_code == 0, done.output
    assert set(graphcaps.load(out).recipe.node_labels[0]) == {"red", "blue", "green"}
    predicted = run("predict", out, path, "--node-label", "colour", "--json")
    assert predicted.exit_code == 0, predicted.output
    remembered = run("predict", out, path, "--json")
    assert json.loads(remembered.stdout) == json.loads(predicted.stdout)
