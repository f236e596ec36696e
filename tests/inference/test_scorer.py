"""Small graphs are scored from prepared constants; batches encoded ahead in threads come in order, with errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphcaps.data.store import GraphStore
from graphcaps.inference import scorer as module
from graphcaps.inference.scorer import NetworkScorer, _map_ahead
from graphcaps.nn.prepared_hgcn import PreparedHGCN
from graphcaps.ops._triton.dispatch import use_kernels
from tests.small_models import labelled, labelled_model, planted, small_model


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of graphs of each batch that was scored from prepared constants."""
    compute, counted = PreparedHGCN.class_scores, []

    def count(prepared: PreparedHGCN, graphs: Any) -> torch.Tensor:
        counted.append(len(graphs.node_ptr) - 1)
        return compute(prepared, graphs)

    monkeypatch.setattr(PreparedHGCN, "class_scores", count)
    return counted


def weighted(store: GraphStore) -> GraphStore:
    return replace(store, edge_weight=torch.full((store.neighbours.numel(),), 0.5))


def test_small_graphs_are_scored_from_prepared_constants(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    scorer, store = small_model().scorer, planted()
    scores = scorer.scores(store)
    assert sizes == [len(store)]
    assert not scores.is_inference()
    monkeypatch.setattr(module, "MAX_PADDED_ROWS", store.max_size * len(store) - 1)
    torch.testing.assert_close(scores, scorer.scores(store), rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(module, "MAX_PADDED_ROWS", store.max_size * len(store))
    monkeypatch.setattr(module, "MAX_SMALL_NODES", store.max_size - 1)
    torch.testing.assert_close(scores, scorer.scores(store), rtol=1e-5, atol=1e-6)
    assert sizes == [len(store)]


def test_other_graphs_are_scored_by_the_forward_pass(sizes: list[int]) -> None:
    scorer, store = small_model().scorer, planted()[:5]
    scorer.scores(weighted(store))
    with use_kernels("reference"):
        scorer.scores(store)
    assert sizes == []


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_come_in_order_and_few_are_ahead(threads: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    first = threading.Event()

    def square(number: int) -> int:
        if number:
            first.set()
        elif threads > 1:
            assert first.wait(10)  # a later item is computed while this one is
        return number**2

    for number, result in enumerate(_map_ahead(square, items(), threads)):
        assert result == number**2
        assert len(taken) <= number + threads + 1


def test_an_error_is_raised_at_its_place() -> None:
    results = _map_ahead(lambda number: 1 // (2 - number), range(5), 2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_threads_do_not_change_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_NODES", 4)
    store, scorer = labelled(), labelled_model().scorer
    assert isinstance(scorer, NetworkScorer)
    expected = scorer.scores(store)
    real = module._map_ahead
    monkeypatch.setattr(module, "_map_ahead", lambda function, items, threads: real(function, items, 3))
    assert torch.equal(scorer.scores(store), expected)
