"""Measured accuracies beside the published ones, cell by cell, from a results store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from graphcaps.evaluation.epoch_selection import AccuracyEstimate
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.record import Protocol, RecordKey, SeedRecord
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.reproduction.cells import Cell, Training

__all__ = [
    "CellResult",
    "MeasuredLedgers",
    "cell_results",
    "describe_epochs",
    "describe_origin",
    "how_to_show",
    "other_epochs",
]


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
            **_system_as_dict(self.cell),
            "finished": self.finished,
            "hardware": self.hardware,
        }


def _system_as_dict(cell: Cell) -> dict[str, Any]:
    """Model and published protocol of another system, and the slip of its published value, if it is one."""
    if cell.system is None:
        return {}
    entries = {"model": cell.system.model, "paper_protocol": cell.system.protocol}
    slip = cell.system.slips.get(cell.dataset) if cell.paper is not None else None
    return entries | ({} if slip is None else {"paper_slip": slip})


class MeasuredLedgers:
    """Ledgers by data set, variant and protocol, read from a results store on first use.

    Args:
        results (ResultsStore): Records.
        seeds (int, optional): Number of seeds to use, from seed 0 on. (default: all)
    """

    def __init__(self, results: ResultsStore, seeds: int | None = None) -> None:
        self.results, self.seeds = results, seeds
        self._ledgers: dict[tuple[str, str, str, int | None], Ledger | None] = {}

    def ledger(
        self, dataset: str, variant: str, protocol: Protocol, epochs: int | None = None
    ) -> Ledger | None:
        """The records of consecutive seeds from 0 on; ``None`` if seed 0 is missing.

        A record of other folds than the paper's counts as missing, and with ``epochs`` one of another number of epochs.
        """
        key = (dataset, variant, protocol, epochs)
        if key not in self._ledgers:
            records: list[SeedRecord] = []
            while self.seeds is None or len(records) < self.seeds:
                record = self.results.get(RecordKey(dataset, variant, protocol, len(records)))
                if record is None or record.partition is not None:
                    break
                if epochs is not None and record.curves.num_epochs != epochs:
                    break
                records.append(record)
            self._ledgers[key] = Ledger(tuple(records)) if records else None
        return self._ledgers[key]

    def estimate(self, dataset: str, variant: str, name: str) -> AccuracyEstimate | None:
        """An accuracy by its name in :data:`graphcaps.evaluation.RULES`; ``None`` if it was not measured."""
        protocol: Protocol = "paper" if name in ("C", "C*") else "held-out"
        ledger = self.ledger(dataset, variant, protocol)
        return None if ledger is None else ledger.estimates.get(name)


def cell_results(
    cells: Iterable[Cell],
    measured: MeasuredLedgers,
    epochs: int | None = None,
    compared: MeasuredLedgers | None = None,
) -> list[CellResult]:
    """The measured and the published accuracy of each cell; other systems' cells that have neither are left out.

    Args:
        cells (iterable): Cells of the tables.
        measured (MeasuredLedgers): Records; those of another number of epochs are not used.
        epochs (int, optional): Number of epochs. (default: the published number of each data set)
        compared (MeasuredLedgers, optional): Records of other systems, by the names of their models. (default: none)
    """
    results = []
    for cell in cells:
        if cell.variant is None:
            other = _compared_result(cell, compared)
            if other.ours is not None or cell.paper is not None:
                results.append(other)
            continue
        num_epochs = Training(cell.dataset, cell.variant, cell.protocol).num_epochs(epochs)
        ledger = measured.ledger(cell.dataset, cell.variant.name, cell.protocol, num_epochs)
        if ledger is None:
            results.append(CellResult(cell, None, None, None))
            continue
        ours = ledger.estimates[cell.criterion]
        results.append(CellResult(cell, ours, num_epochs, ledger.seconds, ledger.of(cell.protocol)))
    return results


def _compared_result(cell: Cell, compared: MeasuredLedgers | None) -> CellResult:
    """The result of another system."""
    ledger = None
    if compared is not None and cell.system is not None:
        ledger = compared.ledger(cell.dataset, cell.system.model, cell.protocol)
    if ledger is None:
        return CellResult(cell, None, None, None)
    records = ledger.of(cell.protocol)
    return CellResult(
        cell, ledger.estimates[cell.criterion], records[0].curves.num_epochs, ledger.seconds, records
    )


def other_epochs(
    needed: Iterable[Training], results: ResultsStore, seeds: int, epochs: int | None = None
) -> dict[RecordKey, int]:
    """The stored records of trainings that have another number of epochs, with that number.

    Args:
        needed (iterable): Trainings of some cells.
        results (ResultsStore): Records.
        seeds (int): Number of seeds; they are 0, 1, 2, …
        epochs (int, optional): Number of epochs. (default: the published number of each data set)
    """
    others = {}
    for training in needed:
        for key in training.keys(seeds):
            record = results.get(key)
            if record is not None and record.curves.num_epochs != training.num_epochs(epochs):
                others[key] = record.curves.num_epochs
    return others


def describe_epochs(stored: Mapping[RecordKey, int]) -> str:
    """Numbers of epochs with the data sets behind them: ``20 epochs (MUTAG, PTC_MR), 1,000 epochs (DD)``.

    Args:
        stored (mapping): Number of epochs of records, as from :func:`other_epochs`.
    """
    counts = sorted(set(stored.values()))
    names = {
        count: sorted({key.dataset for key, each in stored.items() if each == count}) for count in counts
    }
    return ", ".join(f"{_epochs(count)} ({', '.join(names[count])})" for count in counts)


def how_to_show(others: Mapping[RecordKey, int], results: ResultsStore, epochs: int | None) -> str:
    """The options that show records of another number of epochs, as a sentence; "" if no single number shows them.

    Args:
        others (mapping): From :func:`other_epochs`.
        results (ResultsStore): Their folder.
        epochs (int, optional): The number of epochs that does not show them.
    """
    counts = set(others.values())
    if len(counts) == 1:
        return f"They are shown with --epochs {counts.pop()} --results {results.folder}."
    return (
        "" if epochs is None else f"Without --epochs, {results.folder} shows those of the published number."
    )


def describe_origin(results: Iterable[CellResult], trained_keys: Collection[RecordKey]) -> str:
    """Says which records were trained and which were stored before; "" without records.

    Both come with their hardware and number of epochs, stored ones with their date too.

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
        details = f"{_range(trained)}, {seconds:.0f} s of training, {_hardware(trained)}"
        sentences.append(f"Trained now: {_count(trained)}, {details}.")
    if stored:
        days = sorted({record.finished[:10] for record in stored})
        period = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        nothing = "" if trained else "; nothing was trained"
        details = f"{_range(stored)}, {_hardware(stored)}{nothing}"
        sentences.append(f"Shown from {_count(stored, 'stored ')} of {period}, {details}.")
    return " ".join(sentences)


def _count(records: list[SeedRecord], kind: str = "") -> str:
    return f"{len(records):,} {kind}record{'' if len(records) == 1 else 's'}"


def _range(records: list[SeedRecord]) -> str:
    """Number of epochs of the records, as a range if they differ."""
    counts = {record.curves.num_epochs for record in records}
    return _epochs(max(counts)) if len(counts) == 1 else f"{min(counts):,} to {_epochs(max(counts))}"


def _epochs(count: int) -> str:
    return f"{count:,} epoch{'' if count == 1 else 's'}"


def _hardware(records: list[SeedRecord]) -> str:
    return "; ".join(sorted({record.hardware for record in records if record.hardware})) or "unknown hardware"
