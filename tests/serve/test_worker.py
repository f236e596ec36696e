"""A batch of requests: each has the response that it has alone, and their molecules are read in one call."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from graphcaps.errors import UsageError
from graphcaps.serve import request_graphs, responses
from graphcaps.serve.limits import Limits
from graphcaps.serve.worker import WorkerRequest, handle_batch
from tests.serve.models import molecule_model

JSON = "application/json"


def predict(content_type: str, body: bytes) -> WorkerRequest:
    return WorkerRequest("predict", content_type, {}, body)


def smiles(*texts: object) -> WorkerRequest:
    return predict(JSON, json.dumps({"smiles": texts}).encode())


BATCH = [
    smiles("CCO", "c1ccccc1"),
    smiles("CCO"),
    smiles("no molecule", 7, "C"),
    smiles("C1CC"),
    predict(JSON, b'{"smiles": ['),
    predict(JSON, b'{"smiles": "CCO"}'),
    predict(JSON, b'{"smiles": ["CCN"], "graphs": []}'),
    predict("text/csv", b"smiles,id\nCCN,a\nCCO,b\n"),
    predict("text/plain", b"CCO"),
    smiles(*["CCC"] * 5),
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lists of SMILES that were parsed."""
    parse, lists = request_graphs.parse_molecules, []

    def count(smiles: Any, *arguments: Any, **options: Any) -> Any:
        lists.append(smiles)
        return parse(smiles, *arguments, **options)

    monkeypatch.setattr(request_graphs, "parse_molecules", count)
    return lists


def test_requests_of_a_batch_have_the_responses_that_they_have_alone(calls: list[Any]) -> None:
    model, limits = molecule_model(), Limits(max_graphs=4)
    alone = [handle_batch(model, limits, [request])[0] for request in BATCH]
    calls.clear()
    together = handle_batch(model, limits, BATCH)
    assert [one.status for one in together] == [200, 200, 200, 422, 422, 422, 422, 200, 415, 413]
    assert [one.status for one in alone] == [one.status for one in together]
    for one, other in zip(alone, together, strict=True):
        expected, found = json.loads(one.content), json.loads(other.content)
        if "error" in expected:
            assert found == expected
            continue
        for row, same in zip(expected["predictions"], found["predictions"], strict=True):
            assert list(same) == list(row)
            assert (same["name"], same["class"], same["error"]) == (row["name"], row["class"], row["error"])
            if row["probabilities"] is not None:
                assert same["probabilities"] == pytest.approx(row["probabilities"], abs=1e-5)
    assert calls[0] == ["CCO", "c1ccccc1", "no molecule", "C", "C1CC"]
    assert calls[1:] == [["CCN"]]  # of the table, whose other molecule is known


def test_a_batch_that_cannot_be_read_together_is_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = request_graphs._parse_smiles

    def refuse(texts: Any, recipe: Any) -> Any:
        if len(texts) > 1:
            raise UsageError("Too many molecules.")
        return parse(texts, recipe)

    monkeypatch.setattr(request_graphs, "_parse_smiles", refuse)
    responses = handle_batch(molecule_model(), Limits(), [smiles("CCO"), smiles("CCN")])
    assert [one.status for one in responses] == [200, 200]


def test_the_server_learns_what_is_read() -> None:
    steps: list[int] = []
    handle_batch(molecule_model(), Limits(), [smiles("CCO"), smiles("CCN")], on_read=steps.append)
    assert steps == [2]  # both are read together, and predicted together
    steps.clear()
    table = WorkerRequest("predict", "text/csv", {}, b"smiles\nCCC\n")
    batch = [smiles("CCO"), table, smiles("CCN"), table]
    handle_batch(molecule_model(), Limits(), batch, on_read=steps.append)
    assert steps == [4, 1, 3, 4]
    steps.clear()
    handle_batch(molecule_model(), Limits(), [smiles("CCO")], on_read=steps.append)
    assert steps == [0]


def test_small_batches_are_read_and_predicted_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, parse, predict_all = [], request_graphs.parse_molecules, responses.predict_requests

    def parse_counted(*arguments: Any, **options: Any) -> Any:
        threads.append(torch.get_num_threads())
        return parse(*arguments, **options)

    def predict_counted(*arguments: Any) -> Any:
        threads.append(torch.get_num_threads())
        return predict_all(*arguments)

    monkeypatch.setattr(request_graphs, "parse_molecules", parse_counted)
    monkeypatch.setattr(responses, "predict_requests", predict_counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        handle_batch(molecule_model(), Limits(), [smiles("CCO")])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 1]
