"""Measured accuracies beside the published ones, cell by cell, from a results store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from graphcaps.evaluation.epoch_selection import AccuracyEstimate
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.record import RecordKey, SeedRecord
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.reproduction.cells import Cell

__all__ = ["CellResult", "MeasuredLedgers", "cell_results"]


@dataclass(frozen=True)
class CellResult:
    """A cell of a table with what was measured for it.

    Args:
        cell (Cell): The cell, with the published accuracy.
        ours (AccuracyEstimate, optional): Our accuracy; ``None`` if nothing was measured or the row is only reported.
        epochs (int, optional): Epochs of our training.
        seconds (float, optional): Time of our training, summed over its seeds.
    """

    cell: Cell
    ours: AccuracyEstimate | None
    epochs: int | None
    seconds: float | None

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
        results.append(CellResult(cell, ledger.estimates[cell.criterion], epochs, ledger.seconds))
    return results
