"""The figures of one data set and one model, honest and optimistic side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation.epoch_records import LOSS_STEP
from graphcaps.evaluation.epoch_selection import (
    UPPER_BOUND,
    AccuracyEstimate,
    Choice,
    average_seeds,
    best_common_epoch,
    best_own_epochs,
    held_out,
    optimism,
    window_for,
)
from graphcaps.evaluation.partition import Partition
from graphcaps.evaluation.record import PROTOCOLS, Protocol, SeedRecord
from graphcaps.training.early_stopping import WINDOW

__all__ = ["RULES", "UPPER_BOUNDS", "Ledger", "choose_epochs", "held_out_accuracies"]

_FORMAT = "graphcaps ledger 1"

# What each figure is, in one line, wherever it is shown.
RULES = {
    "held-out": f"each fold's epoch of lowest validation loss (mean over {WINDOW} epochs); honest",
    "C": f"one epoch for all folds by mean test accuracy; {UPPER_BOUND}",
    "C*": f"each fold's own best test epoch; {UPPER_BOUND}",
    "optimism": "C minus held-out on the same held-out training: what choosing on test data is worth",
}

UPPER_BOUNDS = ("C", "C*")


@dataclass(frozen=True, repr=False)
class Ledger:
    """Records of one data set and one variant, and the figures that follow from them.

    Figures are in percent, per seed first and then averaged over seeds. ``None`` stands where the training
    that a figure needs is not there: ``held_out`` and ``optimism`` need the held-out protocol, ``C`` and
    ``C_star`` the paper's. C and C* choose the epoch on test data and are upper bounds.

    Args:
        records (tuple): One :class:`SeedRecord` per protocol and seed, of equal settings.
    """

    records: tuple[SeedRecord, ...]

    def __post_init__(self) -> None:
        if not self.records:
            raise ArgumentError("Ledger", "records", "be at least one", "none")
        first = self.records[0]
        for record in self.records:
            if (record.key.dataset, record.key.variant) != (first.key.dataset, first.key.variant):
                raise ArgumentError("Ledger", "records", f"all be of {self._title}", str(record.key))
            if record.settings != first.settings:
                raise ArgumentError(
                    "Ledger", "records", f"share the settings of {first.key}", f"others in {record.key}"
                )
        keys = [record.key for record in self.records]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ArgumentError("Ledger", "records", "be one per protocol and seed", f"two of {twice}")
        object.__setattr__(self, "records", tuple(sorted(self.records, key=lambda record: record.key)))

    # ------------------------------------------------------------------ what it is of
    @property
    def dataset(self) -> str:
        return self.records[0].key.dataset

    @property
    def variant(self) -> str:
        return self.records[0].key.variant

    @property
    def config(self) -> RunConfig:
        return self.records[0].config

    @property
    def num_folds(self) -> int:
        return self.records[0].curves.num_folds

    @property
    def folds_seed(self) -> int:
        return self.records[0].folds_seed

    @property
    def partition(self) -> Partition | None:
        """How the folds differ from the plain ones, where they do."""
        return self.records[0].partition

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        found = {record.key.protocol for record in self.records}
        return tuple(protocol for protocol in PROTOCOLS if protocol in found)

    @property
    def seconds(self) -> float:
        """What all its trainings took."""
        return sum(record.seconds for record in self.records)

    @property
    def hardware(self) -> str:
        return "; ".join(dict.fromkeys(record.hardware for record in self.records))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for record in self.records for note in record.notes))

    def of(self, protocol: Protocol) -> tuple[SeedRecord, ...]:
        """The records of one protocol, by seed."""
        return tuple(record for record in self.records if record.key.protocol == protocol)

    # ------------------------------------------------------------------ figures
    @property
    def held_out(self) -> AccuracyEstimate | None:
        """The honest figure."""
        return self.figures.get("held-out")

    @property
    def C(self) -> AccuracyEstimate | None:
        """One epoch for all folds of a seed, by mean test accuracy: an upper bound chosen on test data."""
        return self.figures.get("C")

    @property
    def C_star(self) -> AccuracyEstimate | None:
        """Each fold's own best test epoch: an upper bound chosen on test data."""
        return self.figures.get("C*")

    def rule(self, name: str) -> str:
        """What a figure is, in one line; of short trainings, with the window that was taken."""
        window = min(window_for(record.curves.num_epochs) for record in self.records)
        return RULES[name].replace(
            f"over {WINDOW} epochs", f"over {window} epoch{'' if window == 1 else 's'}"
        )

    @property
    def optimism(self) -> AccuracyEstimate | None:
        """C minus held-out, both of the held-out training."""
        return self.figures.get("optimism")

    @cached_property
    def figures(self) -> dict[str, AccuracyEstimate]:
        """The figures that there are, by the names of :data:`RULES`."""
        found = {}
        for name, (protocol, rule) in _CHOOSERS.items():
            records = self.of(protocol)
            if records:
                seeds = [record.key.seed for record in records]
                found[name] = average_seeds([rule(record) for record in records], seeds)
        return found

    def per_seed(self) -> list[dict[str, Any]]:
        """What each rule chose under each seed, JSON-safe: epochs and accuracies of the folds, and their mean."""
        rows = []
        for name, (protocol, rule) in _CHOOSERS.items():
            for record in self.of(protocol):
                choice = rule(record)
                rows.append(
                    {
                        "figure": name,
                        "protocol": protocol,
                        "seed": record.key.seed,
                        "mean": round(choice.mean, 4),
                        "std_folds": None if choice.std_folds is None else round(choice.std_folds, 4),
                        "epochs": choice.epochs.tolist(),
                        "accuracies": (100 * choice.accuracies).round(4).tolist(),
                    }
                )
        return rows

    @property
    def _title(self) -> str:
        return f"{self.records[0].key.dataset}, {self.records[0].key.variant}"

    def __repr__(self) -> str:
        folds = "one split" if self.num_folds == 1 else f"{self.num_folds} folds"
        lines = [f"Ledger: {self._title}, {folds}, {self.seconds:.1f} s"]
        if self.partition is not None:
            lines.append(f"  {self.partition.sentence}")
        for name, figure in self.figures.items():
            several = "" if figure.std_seeds is None else f", ± {figure.std_seeds:.2f} over seeds"
            seeds = f"{len(figure.seeds)} seed{'' if len(figure.seeds) == 1 else 's'}"
            lines.append(f"  {name:<9} {figure} over folds{several} ({seeds}; {self.rule(name)})")
        return "\n".join(lines)

    # ------------------------------------------------------------------ saving
    def summary(self) -> dict[str, Any]:
        """All but the curves, JSON-safe: figures with their rules, configuration, versions, hardware."""
        first = self.records[0]
        figures = {
            name: {
                "mean": round(figure.mean, 4),
                "std_folds": None if figure.std_folds is None else round(figure.std_folds, 4),
                "std_seeds": None if figure.std_seeds is None else round(figure.std_seeds, 4),
                "seeds": list(figure.seeds),
                "rule": self.rule(name),
                "upper_bound": name in UPPER_BOUNDS,
            }
            for name, figure in self.figures.items()
        }
        return {
            "dataset": self.dataset,
            "variant": self.variant,
            "protocols": list(self.protocols),
            "folds": self.num_folds,
            "folds_seed": self.folds_seed,
            **({} if self.partition is None else {"partition": vars(self.partition)}),
            "figures": figures,
            "per_seed": self.per_seed(),
            "seconds": round(self.seconds, 3),
            "hardware": self.hardware,
            "versions": first.versions,
            "notes": list(self.notes),
            "data": vars(first.data),
            "config": first.config.as_dict(),
        }

    def as_dict(self) -> dict[str, Any]:
        """The summary for readers, the records for :meth:`from_json`; JSON-safe."""
        records = [record.as_dict() for record in self.records]
        return {"format": _FORMAT} | self.summary() | {"records": records}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "ledger") -> Ledger:
        """Reads what :meth:`to_json` wrote; figures are computed again from the records."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise DataError(where, "a ledger written by graphcaps", "no JSON") from error
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise DataError(where, f"a file that names its format '{_FORMAT}'", "none")
        records = values.get("records")
        if not isinstance(records, list):
            raise DataError(where, "a list under 'records'", repr(records))
        return cls(tuple(SeedRecord.from_dict(record, where) for record in records))


def choose_epochs(record: SeedRecord) -> dict[str, Choice]:
    """The chosen epochs and test accuracies of one record, by the rules of :data:`RULES` that its protocol allows."""
    return {
        name: rule(record) for name, (protocol, rule) in _CHOOSERS.items() if protocol == record.key.protocol
    }


def held_out_accuracies(ledger: Ledger) -> np.ndarray:
    """The honest accuracy of every seed and fold, from 0 to 1, ``[S, F]``: what models are compared by."""
    _, rule = _CHOOSERS["held-out"]
    records = ledger.of("held-out")
    if not records:
        raise ArgumentError("held_out_accuracies", "ledger", "hold a held-out training", "none")
    return np.stack([rule(record).accuracies for record in records])


def _losses(record: SeedRecord) -> np.ndarray:
    return record.curves.validation_loss * LOSS_STEP


_CHOOSERS: dict[str, tuple[Protocol, Callable[[SeedRecord], Choice]]] = {
    "held-out": ("held-out", lambda record: held_out(_losses(record), record.curves.test_accuracy)),
    "C": ("paper", lambda record: best_common_epoch(record.curves.test_accuracy)),
    "C*": ("paper", lambda record: best_own_epochs(record.curves.test_accuracy)),
    "optimism": ("held-out", lambda record: optimism(_losses(record), record.curves.test_accuracy)),
}
