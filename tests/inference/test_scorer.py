"""Batches that are encoded ahead in threads come in order, a few at a time, and errors come with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from graphcaps.inference import scorer as module
from graphcaps.inference.scorer import NetworkScorer, _map_ahead
from tests.small_models import labelled, labelled_model


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
