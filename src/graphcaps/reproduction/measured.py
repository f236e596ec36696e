"""Measured accuracies beside the published ones, cell by cell, from a results store."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from graphcaps.evaluation.epoch_selection import AccuracyEstimate
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.record import RecordKey, SeedRecord
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.reproduction.cells import Cell

__all__ = ["CellResult", "MeasuredLedgers", "cell_results", "describe_origin"]


@dataclass(frozen=True)
class CellResult:
    """A cell of a table with what was measured for it.

    Args:
        cell (Cell): The cell, with the published accuracy.
        ours (AccuracyEstimate, optional): Our accuracy; ``None`` if nothing was measured or the row is only reported.
        epochs (int, optional): Epochs of our training.
        seconds (float, optional): Time of our training, summed over its seeds.
        records (tuple): The records that our accuracy is computed from, one per seed.
    """

    cell: Cell
    ours: AccuracyEstimate | None
    epochs: int | None
    seconds: float | None
    records: tuple[SeedRecord, ...] = ()

    @property
    def finished(self) -> str | None:
        """When the last of its records was finished, UTC, as ``2026-01-31T12:00:00Z``; ``None`` without records."""
        return max((record.finished for record in self.records), default=None)

    @property
    def hardware(self) -> str | None:
        """Device or devices that its records were trained on; ``None`` without records."""
        return "; ".join(dict.fromkeys(record.hardware for record in self.records)) or None

    @property
    def difference(self) -> float | None:
        """Our accuracy minus the paper's, in percentage points."""
        if self.ours is None or self.cell.paper is None:
            return None
        return self.ours.mean - self.cell.paper.mean

    @property
    def standard_error(self) -> float | None:
        """Standard error of our mean over seeds; ``None`` for one seed."""
        if self.ours is None or self.ours.std_seeds is None:
            return None
        return self.ours.std_seeds / len(self.ours.seeds) ** 0.5

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe; baselines have no accuracy of ours."""
        ours, variant = self.ours, self.cell.variant
        return {
            "table": self.cell.table,
            "row": self.cell.row,
            "dataset": self.cell.dataset,
            "criterion": self.cell.criterion,
            "paper": None if self.cell.paper is None else self.cell.paper.mean,
            "ours": None if ours is None else round(ours.mean, 4),
            "std_folds": None if ours is None or ours.std_folds is None else round(ours.std_folds, 4),
            "std_seeds": None if ours is None or ours.std_seeds is None else round(ours.std_seeds, 4),
            "seeds": 0 if ours is None else len(ours.seeds),
            "epochs": self.epochs,
            "formulation": None if variant is None else variant.formulation,
            "finished": self.finished,
            "hardware": self.hardware,
        }


class MeasuredLedgers:
    """Ledgers by data set, variant and protocol, read from a results store on first use.

    Args:
        results (ResultsStore): Records.
        seeds (int, optional): Number of seeds to use, from seed 0 on. (default: all)
    """

    def __init__(self, results: ResultsStore, seeds: int | None = None) -> None:
        self.results, self.seeds = results, seeds
        self._ledgers: dict[tuple[str, str, str], Ledger | None] = {}

    def ledger(self, dataset: str, variant: str, protocol: str) -> Ledger | None:
        """The records of consecutive seeds from 0 on; ``None`` if seed 0 is missing."""
        key = (dataset, variant, protocol)
        if key not in self._ledgers:
            records: list[SeedRecord] = []
            while self.seeds is None or len(records) < self.seeds:
                record = self.results.get(RecordKey(*key, len(records)))
                if record is None or record.partition is not None:  # not the paper's folds
                    break
                records.append(record)
            self._ledgers[key] = Ledger(tuple(records)) if records else None
        return self._ledgers[key]

    def estimate(self, dataset: str, variant: str, name: str) -> AccuracyEstimate | None:
        """An accuracy by its name in :data:`graphcaps.evaluation.RULES`; ``None`` if it was not measured."""
        protocol = "paper" if name in ("C", "C*") else "held-out"
        ledger = self.ledger(dataset, variant, protocol)
        return None if ledger is None else ledger.estimates.get(name)


def cell_results(cells: Iterable[Cell], measured: MeasuredLedgers) -> list[CellResult]:
    """The measured and the published accuracy of each cell."""
    results = []
    for cell in cells:
        ledger = (
            None if cell.variant is None else measured.ledger(cell.dataset, cell.variant.name, cell.protocol)
        )
        if ledger is None:
            results.append(CellResult(cell, None, None, None))
            continue
        epochs = ledger.records[0].curves.num_epochs
        ours = ledger.estimates[cell.criterion]
        results.append(CellResult(cell, ours, epochs, ledger.seconds, ledger.of(cell.protocol)))
    return results


def describe_origin(results: Iterable[CellResult], trained_keys: Collection[RecordKey]) -> str:
    """Says which records were trained and which were stored before, with date and hardware; "" without records.

    Args:
        results (list): Cells with their records; several cells may share one.
        trained_keys (collection): Keys of the records that were trained by this run.
    """
    records = {record.key: record for result in results for record in result.records}.values()
    if not records:
        return ""
    stored = [record for record in records if record.key not in trained_keys]
    trained = [record for record in records if record.key in trained_keys]
    sentences = []
    if trained:
        seconds = sum(record.seconds for record in trained)
        sentences.append(
            f"Trained now: {_count(trained)}, {seconds:.0f} s of training, {_hardware(trained)}."
        )
    if stored:
        days = sorted({record.finished[:10] for record in stored})
        period = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        nothing = "" if trained else "; nothing was trained"
        sentences.append(f"Shown from {_count(stored, 'stored ')} of {period}, {_hardware(stored)}{nothing}.")
    return " ".join(sentences)


def _count(records: list[SeedRecord], kind: str = "") -> str:
    return f"{len(records):,} {kind}record{'' if len(records) == 1 else 's'}"


def _hardware(records: list[SeedRecord]) -> str:
    return "; ".join(sorted({record.hardware for record in records if record.hardware})) or "unknown hardware"
