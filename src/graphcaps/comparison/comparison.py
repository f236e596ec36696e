"""The result of a comparison: a ledger per data set and model, paired tests against a baseline, and mean ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.evaluation.ledger import Ledger, held_out_accuracies
from graphcaps.evaluation.record import SeedRecord
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.evaluation.statistics import (
    PairedTest,
    average_ranks,
    corrected_t_test,
    friedman_p,
    holm,
    nemenyi_critical_difference,
    split_ratio,
)

__all__ = ["Comparison", "ComparisonCell", "ModelRanks", "TestedDifference", "choose_baseline"]

ALPHA = 0.05
"""Level of all tests."""


@dataclass(frozen=True, eq=False)
class ComparisonCell:
    """One model on one data set.

    Args:
        dataset (str): Name of the data set.
        model (str): Name of the model.
        ledger (Ledger, optional): Its results; ``None`` if it failed.
        failure (str): Why it failed, in words; "" if it did not.
        warning (str): A sentence if the model has hardly learned, so that its result says little about it; else "".
    """

    dataset: str
    model: str
    ledger: Ledger | None
    failure: str = ""
    warning: str = ""


@dataclass(frozen=True)
class TestedDifference:
    """A paired test of a model against the baseline on one data set.

    Args:
        test (PairedTest): The corrected t-test over folds.
        adjusted_p (float): Holm's p-value over all models on this data set.
    """

    test: PairedTest
    adjusted_p: float

    @property
    def is_significant(self) -> bool:
        return self.adjusted_p <= ALPHA


@dataclass(frozen=True)
class ModelRanks:
    """Mean ranks of models over several data sets, and the difference from which two of them differ.

    Args:
        models (tuple): Names, by ascending mean rank.
        ranks (tuple): Mean rank of each; 1 is the best.
        datasets (tuple): Data sets on which all of them have a result.
        critical_difference (float): By Nemenyi's test, at the level 0.05.
        p (float): p-value of Friedman's test that all mean ranks are equal.
        left_out (tuple): Models without a result on one of the data sets.
    """

    models: tuple[str, ...]
    ranks: tuple[float, ...]
    datasets: tuple[str, ...]
    critical_difference: float
    p: float
    left_out: tuple[str, ...] = ()

    def groups(self) -> list[tuple[int, int]]:
        """Largest runs of two or more models that do not differ: positions of the first and last model of each."""
        runs: list[tuple[int, int]] = []
        for first, low in enumerate(self.ranks):
            last = max(at for at, high in enumerate(self.ranks) if high - low < self.critical_difference)
            if last > first and not any(last <= end for _, end in runs):
                runs.append((first, last))
        return runs


class Comparison:
    """Several models on one or more data sets, each on the same folds.

    Args:
        cells (iterable): One per data set and model; others count as not measured.
        baseline (str, optional): Model that the others are tested against. (default: "hgcn" if it is there, else the
            first)

    Raises:
        ArgumentError: If there is no cell, two are of the same data set and model, or no model has the baseline's name.
    """

    def __init__(self, cells: Iterable[ComparisonCell], *, baseline: str | None = None) -> None:
        self.cells: dict[tuple[str, str], ComparisonCell] = {}
        for cell in cells:
            if (cell.dataset, cell.model) in self.cells:
                got = f"two of {cell.model} on {cell.dataset}"
                raise ArgumentError("Comparison", "cells", "be one per data set and model", got)
            self.cells[cell.dataset, cell.model] = cell
        if not self.cells:
            raise ArgumentError("Comparison", "cells", "be at least one", "none")
        self.datasets = tuple(dict.fromkeys(dataset for dataset, _ in self.cells))
        self.models = tuple(dict.fromkeys(model for _, model in self.cells))
        self.baseline = choose_baseline(self.models, baseline, "Comparison")

    @classmethod
    def from_results(
        cls,
        results: ResultsStore,
        *,
        datasets: Sequence[str] | None = None,
        models: Sequence[str] | None = None,
        baseline: str | None = None,
        failures: Mapping[tuple[str, str], str] | None = None,
    ) -> Comparison:
        """The comparison of all records of a folder; both protocols and all seeds that a model has.

        Args:
            results (ResultsStore): The records.
            datasets, models (sequence, optional): Only these, in this order. (default: all, sorted)
            baseline (str, optional): As in the constructor.
            failures (mapping, optional): Why a model has no record on a data set, by data set and model.
        """
        grouped: dict[tuple[str, str], list[SeedRecord]] = {}
        for record in results.records():
            grouped.setdefault((record.key.dataset, record.key.variant), []).append(record)
        failed = failures or {}
        keys = {*grouped, *failed}
        listed = [*(datasets if datasets is not None else sorted({dataset for dataset, _ in keys}))]
        names = [*(models if models is not None else sorted({model for _, model in keys}))]
        cells = []
        for dataset in listed:
            for model in names:
                records = grouped.get((dataset, model))
                if records is not None:
                    cells.append(ComparisonCell(dataset, model, Ledger(tuple(records))))
                elif (dataset, model) in failed:
                    cells.append(ComparisonCell(dataset, model, None, failed[dataset, model]))
        found = cls(cells, baseline=baseline)
        found.models = tuple(name for name in names if name in found.models)
        return found

    def __repr__(self) -> str:
        return f"Comparison(datasets={len(self.datasets)}, models={len(self.models)}, baseline='{self.baseline}')"

    def ledger(self, dataset: str, model: str) -> Ledger | None:
        """The results of a model on a data set; ``None`` if it failed or was not measured."""
        cell = self.cells.get((dataset, model))
        return None if cell is None else cell.ledger

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """All ledgers, in the order of the cells."""
        return tuple(cell.ledger for cell in self.cells.values() if cell.ledger is not None)

    @property
    def failures(self) -> tuple[ComparisonCell, ...]:
        """The cells that failed."""
        return tuple(cell for cell in self.cells.values() if cell.failure)

    def held_out(self, dataset: str, model: str) -> float | None:
        """Mean held-out accuracy in percent; ``None`` without records of that protocol."""
        ledger = self.ledger(dataset, model)
        return None if ledger is None or ledger.held_out is None else ledger.held_out.mean

    # ------------------------------------------------------------------ tests
    def tests(self, dataset: str) -> dict[str, TestedDifference]:
        """The test of each other model against the baseline on one data set; empty with fewer than two folds.

        The corrected t-test compares held-out accuracies fold by fold, mean over seeds. p-values are adjusted by Holm's
        method over all models of this data set.
        """
        base = self.ledger(dataset, self.baseline)
        if base is None or base.held_out is None or base.num_folds < 2:
            return {}
        reference, ratio = held_out_accuracies(base), split_ratio(base)
        found = {}
        for model in self.models:
            other = self.ledger(dataset, model)
            if model == self.baseline or other is None or other.held_out is None:
                continue
            if other.num_folds == base.num_folds:
                found[model] = corrected_t_test(held_out_accuracies(other), reference, ratio)
        adjusted = holm([test.p for test in found.values()])
        return {
            name: TestedDifference(test, p) for (name, test), p in zip(found.items(), adjusted, strict=True)
        }

    @cached_property
    def ranks(self) -> ModelRanks | None:
        """Mean ranks by held-out accuracy over the data sets; ``None`` for fewer than two data sets or models."""
        accuracy = {
            (dataset, model): value
            for dataset, model in self.cells
            if (value := self.held_out(dataset, model)) is not None
        }
        datasets = [name for name in self.datasets if any(dataset == name for dataset, _ in accuracy)]
        complete = [name for name in self.models if all((each, name) in accuracy for each in datasets)]
        if len(datasets) < 2 or len(complete) < 2:
            return None
        scores = np.array([[accuracy[dataset, model] for model in complete] for dataset in datasets])
        mean = average_ranks(scores)
        order = np.argsort(mean, kind="stable").tolist()
        return ModelRanks(
            tuple(complete[at] for at in order),
            tuple(float(mean[at]) for at in order),
            tuple(datasets),
            nemenyi_critical_difference(len(complete), len(datasets), ALPHA),
            friedman_p(scores),
            tuple(name for name in self.models if name not in complete),
        )

    # ------------------------------------------------------------------ saving
    def as_dict(self) -> dict[str, Any]:
        """All results without curves; JSON-safe."""
        ranks = self.ranks
        rows = []
        for dataset in self.datasets:
            tests = self.tests(dataset)
            for model in self.models:
                cell = self.cells.get((dataset, model))
                if cell is None:
                    continue
                row: dict[str, Any] = {"dataset": dataset, "model": model}
                if cell.ledger is None:
                    rows.append(row | {"failure": cell.failure})
                    continue
                summary = cell.ledger.summary()
                kept = ("folds", "figures", "metrics", "twin_free", "twin_share", "seconds", "peak_memory")
                row |= {name: summary[name] for name in (*kept, "hardware", "versions", "notes", "config")}
                row["epochs"] = cell.ledger.config.training.epochs
                if cell.warning:
                    row["warning"] = cell.warning
                if model in tests:
                    row["test"] = _test_as_dict(tests[model])
                rows.append(row)
        return {
            "baseline": self.baseline,
            "datasets": list(self.datasets),
            "models": list(self.models),
            "results": rows,
            "ranks": None
            if ranks is None
            else {
                "mean_ranks": {
                    model: round(rank, 4) for model, rank in zip(ranks.models, ranks.ranks, strict=True)
                },
                "datasets": list(ranks.datasets),
                "critical_difference": round(ranks.critical_difference, 4),
                "friedman_p": ranks.p,
                "left_out": list(ranks.left_out),
            },
        }


def choose_baseline(models: Sequence[str], baseline: str | None, owner: str) -> str:
    """The model that the others are tested against.

    Raises:
        ArgumentError: If it is not among the models.
    """
    if baseline is None:
        return "hgcn" if "hgcn" in models else models[0]
    if baseline not in models:
        raise ArgumentError(owner, "baseline", f"be one of the models, {', '.join(models)}", repr(baseline))
    return baseline


def _test_as_dict(difference: TestedDifference) -> dict[str, Any]:
    test = difference.test
    return {
        "difference": round(test.difference, 4),
        "interval": [round(bound, 4) for bound in test.interval],
        "p": test.p,
        "adjusted_p": difference.adjusted_p,
        "statistic": test.statistic if math.isfinite(test.statistic) else None,
    }
