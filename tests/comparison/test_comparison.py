"""Tests against the baseline and mean ranks of a comparison, from records made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphcaps.comparison.comparison import Comparison, ComparisonCell, ModelRanks
from graphcaps.errors import ArgumentError
from graphcaps.evaluation import EpochRecords, Ledger, RecordKey, ResultsStore, SeedRecord
from graphcaps.evaluation.statistics import corrected_t_test, holm
from tests.evaluation.records import record


def made(dataset: str, model: str, right: list[int], *, seed: int = 0) -> SeedRecord:
    """A record of one epoch with these numbers of correct test graphs, of 20 each, in 160 training graphs."""
    folds = len(right)
    ones = np.ones((folds, 1), dtype=np.int64)
    curves = EpochRecords(
        ones, ones, ones, ones, np.array(right)[:, None],
        *(np.full(folds, count) for count in (160, 20, 20)),
    )  # fmt: skip
    return replace(record(seed), key=RecordKey(dataset, model, "held-out", seed), curves=curves)


def comparison(accuracy: Mapping[tuple[str, str], list[int]], baseline: str | None = None) -> Comparison:
    cells = [
        ComparisonCell(dataset, model, Ledger((made(dataset, model, right),)))
        for (dataset, model), right in accuracy.items()
    ]
    return Comparison(cells, baseline=baseline)


HGCN, GIN, MAJORITY = [15, 16, 17, 15], [18, 18, 19, 17], [10, 11, 10, 9]


def test_tests_are_paired_corrected_and_adjusted() -> None:
    found = comparison({("A", "hgcn"): HGCN, ("A", "gin"): GIN, ("A", "majority"): MAJORITY})
    tests = found.tests("A")
    assert found.baseline == "hgcn"
    ratio = 20 / 160
    expected = {
        name: corrected_t_test(np.array(right) / 20, np.array(HGCN) / 20, ratio)
        for name, right in (("gin", GIN), ("majority", MAJORITY))
    }
    adjusted = holm([test.p for test in expected.values()])
    assert {name: each.test for name, each in tests.items()} == expected
    assert [each.adjusted_p for each in tests.values()] == adjusted
    assert tests["gin"].test.difference == pytest.approx(5 * (3 + 2 + 2 + 2) / 4)
    assert tests["gin"].is_significant == (adjusted[0] <= 0.05)


def test_one_split_has_no_test() -> None:
    assert comparison({("A", "hgcn"): [15], ("A", "gin"): [18]}).tests("A") == {}


def test_ranks_are_means_over_data_sets_of_the_models_that_have_all() -> None:
    cells = {(name, model): right for name in "AB" for model, right in (("hgcn", HGCN), ("gin", GIN))}
    found = comparison(cells | {("A", "majority"): MAJORITY})
    ranks = found.ranks
    assert ranks is not None
    assert (ranks.models, ranks.ranks, ranks.left_out) == (("gin", "hgcn"), (1.0, 2.0), ("majority",))
    assert ranks.datasets == ("A", "B")
    assert ranks.critical_difference == pytest.approx(1.960 * np.sqrt(2 * 3 / 12), abs=1e-3)
    assert comparison({("A", "hgcn"): HGCN, ("A", "gin"): GIN}).ranks is None


def test_groups_are_the_largest_runs_below_the_critical_difference() -> None:
    ranks = ModelRanks(tuple("abcdef"), (1.0, 1.5, 2.6, 4.0, 4.5, 5.4), ("A", "B"), 1.7, 0.01)
    assert ranks.groups() == [(0, 2), (2, 3), (3, 5)]
    assert ModelRanks(("a", "b"), (1.0, 3.0), ("A",), 1.0, 0.5).groups() == []


def test_folders_of_records_give_the_same_comparison(tmp_path: Path) -> None:
    results = ResultsStore(tmp_path)
    for seed in (0, 1):
        results.add(made("A", "hgcn", HGCN, seed=seed))
    results.add(made("A", "gin", GIN))
    found = Comparison.from_results(results, failures={("A", "wl"): "too large"})
    assert found.models == ("gin", "hgcn", "wl")
    ledger = found.ledger("A", "hgcn")
    assert ledger is not None
    assert len(ledger.records) == 2
    assert [cell.failure for cell in found.failures] == ["too large"]
    rows = {row["model"]: row for row in found.as_dict()["results"]}
    assert rows["wl"] == {"dataset": "A", "model": "wl", "failure": "too large"}
    assert rows["gin"]["figures"]["held-out"]["mean"] == pytest.approx(90)
    assert rows["gin"]["test"]["difference"] == pytest.approx(11.25)


def test_wrong_cells_are_refused() -> None:
    cell = ComparisonCell("A", "gin", None, "why")
    with pytest.raises(ArgumentError, match="two of gin on A"):
        Comparison([cell, cell])
    with pytest.raises(ArgumentError, match="at least one"):
        Comparison([])
    with pytest.raises(ArgumentError, match=r"be one of the models, gin, got 'hgcn'"):
        Comparison([cell], baseline="hgcn")
