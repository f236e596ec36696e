"""Stored records by data set, variant and rule, and the tables of HGCN next to the published results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.pages.markdown import DASH, NOT_MEASURED, signed, table
from benchmarks.published_accuracies import PublishedAccuracy, best_published
from graphcaps.evaluation import ResultsStore
from graphcaps.evaluation.epoch_selection import AccuracyEstimate
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.statistics import corrected_standard_error, fold_ratio
from graphcaps.reproduction.cells import choose_cells
from graphcaps.reproduction.measured import MeasuredLedgers, cell_results
from graphcaps.reproduction.published import paper_datasets, published_hgcn
from graphcaps.reproduction.table_formats import lines, titles

STUCK = 5.0  # points of training accuracy above one over the number of classes
NEAR, NEAR_STAR = 1.0, 1.2  # points within which C and C* agree with the paper


class Results:
    """Records of a results folder, by data set, variant and rule.

    Args:
        folder (Path): Holds ``reproduction`` (TF32), and ``paper`` (float32, seed 0).
    """

    def __init__(self, folder: Path) -> None:
        self.library = MeasuredLedgers(ResultsStore(folder / "reproduction"))
        self.exact = MeasuredLedgers(ResultsStore(folder / "paper"))
        self.folds = cache(self._folds)

    def estimate(self, dataset: str, variant: str, rule: str) -> AccuracyEstimate | None:
        return self.library.estimate(dataset, variant, rule)

    def _folds(self, dataset: str, variant: str, rule: str) -> np.ndarray:
        """Accuracy in percent of every seed and fold under a rule, ``[S, F]``; ``[0, 0]`` if nothing is stored."""
        protocol = "paper" if rule in ("C", "C*") else "held-out"
        ledger = self.library.ledger(dataset, variant, protocol)
        rows = [] if ledger is None else ledger.per_seed()
        accuracies = [row["accuracies"] for row in rows if row["figure"] == rule]
        return np.array(accuracies, dtype=np.float64).reshape(len(accuracies), -1 if accuracies else 0)

    def seeds(self, dataset: str, variant: str, rule: str) -> np.ndarray:
        """Mean over folds for every seed, ``[S]``."""
        folds = self.folds(dataset, variant, rule)
        return folds.mean(1) if len(folds) else np.zeros(0)

    def stuck(self, dataset: str, variant: str, rule: str, seeds: int | None = None) -> tuple[int, int]:
        """Number of trainings that are stuck, and of all: the training accuracy at the selected epoch is chance."""
        protocol: Protocol = "paper" if rule in ("C", "C*") else "held-out"
        ledger = self.library.ledger(dataset, variant, protocol)
        if ledger is None:
            return 0, 0
        chosen = [row["epochs"] for row in ledger.per_seed() if row["figure"] == rule][:seeds]
        count, folds = 0, np.arange(ledger.num_folds)
        for record, epochs in zip(ledger.of(protocol), chosen, strict=False):
            accuracy = record.curves.train_accuracy[folds, np.array(epochs) - 1]
            count += int((100 * accuracy <= 100 / record.data.classes + STUCK).sum())
        return count, len(chosen) * len(folds)


@dataclass(frozen=True)
class Agreement:
    """Differences of C and C* of HGCN from the paper on one data set.

    Args:
        dataset (str): Name of the data set.
        c, star (float): Ours minus the paper's, in points.
        error (float): Standard error of our C, over seeds.
        paper_error (float): The paper's standard deviation over folds divided by the root of ten.
        further (float): Half the width of the 95 % prediction interval of one more seed of ours.
        seeds (ndarray): C of each seed.
    """

    dataset: str
    c: float
    star: float
    error: float
    paper_error: float
    further: float
    seeds: np.ndarray

    @property
    def agrees(self) -> bool:
        return abs(self.c) <= max(NEAR, 2 * self.error)

    @property
    def star_agrees(self) -> bool:
        return abs(self.star) <= NEAR_STAR


def agreements(results: Results) -> list[Agreement]:
    """Agreement on the data sets with several seeds of the paper's protocol."""
    rows = []
    for name in paper_datasets():
        seeds, star = results.seeds(name, "hgcn", "C"), results.seeds(name, "hgcn", "C*")
        if len(seeds) < 2:
            continue
        paper, S = published_hgcn(name, "C"), len(seeds)
        spread = float(seeds.std(ddof=1))
        c, star_difference = (
            float(seeds.mean()) - paper.mean,
            float(star.mean()) - published_hgcn(name, "C*").mean,
        )
        errors = spread / math.sqrt(S), (paper.std or 0.0) / math.sqrt(10)
        rows.append(Agreement(name, c, star_difference, *errors, further(seeds), seeds))
    return rows


def further(seeds: np.ndarray) -> float:
    """Half the width of the 95 % prediction interval of one more seed, by Student's distribution."""
    S = len(seeds)
    return float(stats.t.ppf(0.975, S - 1)) * float(seeds.std(ddof=1)) * math.sqrt(1 + 1 / S)


def ledger_table(results: Results) -> str:
    """All eleven data sets: held-out, optimism, C and C*, next to the paper's."""
    rows = []
    for name in paper_datasets():
        ours = [shown(results.estimate(name, "hgcn", rule)) for rule in ("held-out", "optimism", "C", "C*")]
        paper = [str(published_hgcn(name, rule)) for rule in ("C", "C*")]
        rows.append((name, f"**{ours[0]}**", ours[1], ours[2], paper[0], ours[3], paper[1]))
    head = ("data set", "held-out", "optimism", "C", "C of the paper", "C\\*", "C\\* of the paper")
    return table(head, rows)


def agreements_table(rows: Sequence[Agreement]) -> str:
    """Differences from the paper, and the errors to compare them with."""
    head = (
        *("data set", "C, difference", "2 SE, ours", "SE, paper's folds", "one more seed, 95 %", "agrees"),
        *("C\\*, difference", "within 1.2"),
    )
    cells = [
        (
            *(each.dataset, f"**{each.c:+.2f}**", f"{2 * each.error:.2f}", f"{each.paper_error:.2f}"),
            *(f"± {each.further:.2f}", yes(each.agrees), f"{each.star:+.2f}", yes(each.star_agrees)),
        )
        for each in rows
    ]
    return table(head, cells)


def fold_error(folds: np.ndarray) -> float:
    """Corrected standard error of a mean over folds that share training graphs (Nadeau and Bengio), in points."""
    return corrected_standard_error(folds.mean(0), fold_ratio(folds.shape[1]))


@dataclass(frozen=True)
class Comparable:
    """Held-out accuracy beside the best published ones on a data set.

    Args:
        dataset (str): Name of the data set.
        ours, error (float): Mean over seeds and folds in percent, and its corrected standard error.
        best, network (PublishedAccuracy): The best of all systems, and of networks.
    """

    dataset: str
    ours: float
    error: float
    best: PublishedAccuracy
    network: PublishedAccuracy

    @property
    def gap(self) -> float:
        return self.ours - self.best.value

    @property
    def network_gap(self) -> float:
        return self.ours - self.network.value


def comparable(results: Results) -> tuple[str, list[Comparable]]:
    """Held-out accuracy and the best published ones, as a table and by data set; without a record only published."""
    rows, found = [], []
    for name in paper_datasets():
        folds = results.folds(name, "hgcn", "held-out")
        ours = shown(results.estimate(name, "hgcn", "held-out"))
        best, network = best_published(name), best_published(name, networks=True)
        assert best is not None
        assert network is not None
        error, gaps = DASH, (DASH, DASH)
        if len(folds):
            each = Comparable(name, float(folds.mean()), fold_error(folds), best, network)
            found.append(each)
            error, gaps = f"{each.error:.2f}", (signed(each.gap), signed(each.network_gap))
        cells = [
            cell
            for one, gap in zip((best, network), gaps, strict=True)
            for cell in (f"{one.value:.1f}", gap, one.source)
        ]
        rows.append((name, f"**{ours}**", error, *cells))
    head = ("data set", "held-out, ours", "SE, corrected", "best published", "difference", "system")
    return table((*head, "best network", "difference", "system"), rows), found


def paper_tables(results: Results, tables: Sequence[str]) -> str:
    """Tables of the paper: published, ours and difference of HGCN; other systems as published."""
    comparisons = cell_results(choose_cells(tables), results.library)
    parts = []
    for name, title in titles(comparisons).items():
        datasets, rows = lines(comparisons, name)
        cells = []
        for line in rows:
            if line.what == "difference" and set(line.cells) == {"–"}:
                continue
            ours = line.what == "ours"
            texts = [
                f"**{cell}**" if ours and cell != "–" else NOT_MEASURED if ours else cell
                for cell in line.cells
            ]
            criterion = (line.selection or line.criterion).replace("*", "\\*")
            cells.append((line.row, criterion, line.what, *texts))
        trained = [each for each in comparisons if each.cell.table == name and each.cell.variant is not None]
        missing = sum(each.ours is None for each in trained)
        left = "all are measured." if not missing else f"{missing} are not measured (section 10)."
        head = table(("row", "criterion", "", *datasets), cells)
        parts.append(f"### {title}\n\n{head}\n\nOf our {len(trained)} cells, {left}")
    return "\n\n".join(parts)


def shown(estimate: AccuracyEstimate | None) -> str:
    """Mean ± standard deviation over folds ± standard deviation over seeds."""
    if estimate is None:
        return NOT_MEASURED
    seeds = "" if estimate.std_seeds is None else f" ± {estimate.std_seeds:.2f}"
    return f"{estimate}{seeds}"


def yes(value: bool) -> str:
    """``yes``, or a bold ``no``."""
    return "yes" if value else "**no**"
