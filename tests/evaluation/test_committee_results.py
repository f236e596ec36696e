"""Committees of seeds: worked examples, members beside the committee, and records that cannot be combined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import cross_validate
from graphcaps.evaluation.committee_results import committee_results
from graphcaps.evaluation.graph_predictions import GraphPredictions
from graphcaps.evaluation.record import SeedRecord
from graphcaps.inference.probabilities import Calibration
from graphcaps.metrics import class_metrics
from graphcaps.training.calibration import calibrate_probabilities
from tests.evaluation.records import record

FOREST = RunConfig(model="wl-forest", model_arguments={"trees": 5})


def with_predictions(seed: int, order: np.ndarray | None = None) -> SeedRecord:
    """A record of two folds of four validation and four test graphs, with random probabilities."""
    p = np.random.default_rng(seed).uniform(0.05, 0.95, 16)
    columns = (
        np.arange(16) % 8,
        np.repeat([0, 1], 8),
        np.tile(np.repeat([0, 1], 4), 2),
        np.tile([0, 1], 8),
        np.stack([1 - p, p], 1),
    )
    order = np.arange(16) if order is None else order
    return replace(record(seed), predictions=GraphPredictions(*(column[order] for column in columns)))


def test_a_committee_averages_its_members_after_one_temperature() -> None:
    order = np.random.default_rng(9).permutation(16)  # the rows of a record may have any order
    records = [with_predictions(0), with_predictions(1, order), with_predictions(2), with_predictions(3)]
    results = committee_results(records, 2)
    assert results.seeds == ((0, 1), (2, 3))
    first = [with_predictions(seed).predictions for seed in (0, 1)]
    accuracies, every = [], []
    for fold in range(2):
        p = np.stack([each.probabilities for each in first if each is not None])[:, 8 * fold : 8 * fold + 8]
        y = np.tile([0, 1], 2)
        temperature = calibrate_probabilities(p[:, :4], y, "temperature").temperature
        q = np.mean([Calibration("temperature", 4, temperature).apply(each) for each in p[:, 4:]], axis=0)
        accuracies.append(float((q.argmax(1) == y).mean()))
        every.append(q)
    assert results.accuracy.per_seed[0] == pytest.approx(accuracies)
    pooled = class_metrics(np.tile([0, 1], 4), np.concatenate(every))
    other = committee_results(records[:2], 2)
    assert other.pooled == pytest.approx({name: pooled[name] for name in ("log_loss", "ece")})
    members = [committee_results([each], 1) for each in records[:2]]
    expected = np.mean([each.accuracy.per_seed[0] for each in members], axis=0)
    assert results.member_accuracy.per_seed[0] == pytest.approx(expected.tolist())
    losses = [each.pooled["log_loss"] for each in members]
    assert other.member_pooled["log_loss"] == pytest.approx(np.mean(losses))
    content = results.as_dict()
    assert (content["members"], content["seeds"]) == (2, [[0, 1], [2, 3]])


def test_a_committee_of_one_is_its_member() -> None:
    results = committee_results([with_predictions(0)], 1)
    assert results.accuracy == results.member_accuracy
    assert results.pooled == results.member_pooled


def test_records_that_cannot_be_combined_are_refused() -> None:
    records = [with_predictions(seed) for seed in range(3)]
    with pytest.raises(
        ArgumentError, match="'records' must be a multiple of 2 held-out records, one per seed, got 3"
    ):
        committee_results(records, 2)
    with pytest.raises(ArgumentError, match=r"'records' must hold predictions, got 1 of 2 without\."):
        committee_results([records[0], record(1)], 2)
    for members in (0, True, 1.0):
        with pytest.raises(ArgumentError, match="'members' must be a whole number from 1 on"):
            committee_results(records, members)  # type: ignore[arg-type]


def test_cross_validation_trains_the_seeds_of_all_committees(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=30)
    ledger = cross_validate(store, FOREST, folds=3, seeds=2, members=2, results=tmp_path / "r")
    assert [each.key.seed for each in ledger.records] == [0, 1, 2, 3]
    results = ledger.committees(2)
    assert results.seeds == ((0, 1), (2, 3))
    held_out = ledger.held_out
    assert held_out is not None
    assert 100 * results.member_accuracy.mean == pytest.approx(held_out.mean)
    again = cross_validate(store, FOREST, folds=3, seeds=2, members=2, results=tmp_path / "r", resume=True)
    assert again.committees(2) == results
    cross_validate(store, FOREST, folds=3, results=tmp_path / "plain")
    with pytest.raises(DataError, match="a record with predictions"):
        cross_validate(store, FOREST, folds=3, members=2, results=tmp_path / "plain", resume=True)


def test_committees_that_cannot_be_evaluated_are_refused() -> None:
    store = planted_parts(num_graphs=30)
    with pytest.raises(ArgumentError, match="'members' must be left out unless the protocol is held-out"):
        cross_validate(store, members=2, protocol="paper")
    with pytest.raises(ArgumentError, match="'members' must be a whole number from 1 on, got 0"):
        cross_validate(store, members=0)
    with pytest.raises(ArgumentError, match="'members' must be 1 for 'majority', whose fit does not depend"):
        cross_validate(store, RunConfig(model="majority"), members=2)
