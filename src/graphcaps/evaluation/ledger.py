"""Accuracies of one variant on one data set, by every rule of epoch selection."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphcaps._io.read_limit import check_json
from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation.committee_results import CommitteeResults, committee_results
from graphcaps.evaluation.epoch_selection import (
    UPPER_BOUND,
    AccuracyEstimate,
    Choice,
    MetricEstimate,
    average_metric,
    average_seeds,
    best_common_epoch,
    best_epoch_per_fold,
    held_out,
    optimism,
    window_for,
)
from graphcaps.evaluation.fold_metrics import FOLD_METRICS, cautions
from graphcaps.evaluation.mixture_results import CompanionRecords, MixtureResults, mixture_results
from graphcaps.evaluation.partition import Partition
from graphcaps.evaluation.record import PROTOCOLS, Protocol, SeedRecord
from graphcaps.metrics import METRIC_TITLES, SelectionMetric
from graphcaps.nn.capsule_use import collapse_warning
from graphcaps.training.early_stopping import WINDOW

__all__ = ["RULES", "UPPER_BOUNDS", "Ledger", "choose_epochs", "describe_rule", "held_out_accuracies"]

_FORMAT = "graphcaps ledger 1"

# One line on each accuracy, shown wherever it is printed.
RULES = {
    "held-out": f"each fold's epoch of lowest validation loss (mean over {WINDOW} epochs); chosen without test data",
    "C": f"one epoch for all folds by mean test accuracy; {UPPER_BOUND}",
    "C*": f"each fold's own best test epoch; {UPPER_BOUND}",
    "optimism": "C minus held-out on the same held-out training: the gain from choosing on test data",
}

UPPER_BOUNDS = ("C", "C*")

# For a single epoch, such as the fit of a classical model, from which nothing can be chosen.
_SINGLE_EPOCH_RULES = {
    "held-out": "the test fold of each fit; there is one epoch, and on test data nothing is chosen",
    "C": "the test fold of each fit to all other folds; there is one epoch, and on test data nothing is chosen",
    "C*": "the same as C",
    "optimism": "zero, since there is one epoch and nothing is chosen",
}


def describe_rule(name: str, window: int) -> str:
    """The line of :data:`RULES`, for validation losses that are averaged over another number of epochs.

    Args:
        name (str): A key of :data:`RULES`.
        window (int): Number of epochs, from :func:`graphcaps.evaluation.epoch_selection.window_for`.
    """
    return RULES[name].replace(f"over {WINDOW} epochs", f"over {window} epoch{'' if window == 1 else 's'}")


@dataclass(frozen=True, repr=False)
class Ledger:
    """Records of one data set and one variant, and the accuracies computed from them.

    Accuracies are in percent, per seed first and then averaged over seeds, and over divisions into folds if there are
    several. They are ``None`` without records of the protocol they need: ``held_out`` and ``optimism`` need the
    held-out protocol, ``C`` and ``C_star`` the paper's. C and C* select the epoch on test data and are upper bounds.

    Args:
        records (tuple): One :class:`SeedRecord` per protocol, seed and division, of equal settings.
        companions (tuple): :class:`CompanionRecords` of each division, where companions were evaluated; they hold
            records of their own, which are not in :meth:`to_json`. (default: ())
    """

    records: tuple[SeedRecord, ...]
    companions: tuple[CompanionRecords, ...] = ()

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
            duplicate = next(key for key in keys if keys.count(key) > 1)
            raise ArgumentError("Ledger", "records", "be one per protocol and seed", f"two of {duplicate}")
        object.__setattr__(self, "records", tuple(sorted(self.records, key=_order)))

    @classmethod
    def join(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """The ledger of all records of several ones, such as those of different divisions."""
        companions = tuple(each for ledger in ledgers for each in ledger.companions)
        return cls(tuple(record for ledger in ledgers for record in ledger.records), companions)

    # ------------------------------------------------------------------ description
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
        """Seed of the folds; of several divisions, that of the first."""
        return self.records[0].folds_seed

    @property
    def divisions(self) -> tuple[int, ...]:
        """Numbers of the divisions into folds; only 0 for the folds of published results."""
        return tuple(sorted({record.key.division for record in self.records}))

    def division(self, number: int) -> Ledger:
        """The ledger of one division, with its companions.

        Raises:
            ArgumentError: If there is no record of it.
        """
        if number not in self.divisions:
            expected = f"be one of {', '.join(map(str, self.divisions))}"
            raise ArgumentError("Ledger.division", "number", expected, number)
        records = tuple(record for record in self.records if record.key.division == number)
        return Ledger(records, tuple(each for each in self.companions if each.division == number))

    @property
    def partition(self) -> Partition | None:
        """Groups or fixed split behind the folds; ``None`` for plain stratified folds."""
        return self.records[0].partition

    @property
    def is_repeated_split(self) -> bool:
        """Whether several splits, such as random ones of different seeds, stand in the place of folds."""
        return self.partition is not None and self.partition.kind == "splits"

    @property
    def patience(self) -> int | None:
        """Epochs without progress after which a fold stopped; ``None`` if all were trained to the last epoch."""
        return self.records[0].patience

    @property
    def metric(self) -> SelectionMetric:
        """Metric of the validation set that selects the epoch."""
        return self.records[0].metric

    @property
    def class_weight(self) -> str | None:
        """``"balanced"`` if classes are weighted inversely to their frequency; ``None`` if they are not."""
        return self.records[0].class_weight

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        present = {record.key.protocol for record in self.records}
        return tuple(protocol for protocol in PROTOCOLS if protocol in present)

    @property
    def seconds(self) -> float:
        """Time of all trainings."""
        return sum(record.seconds for record in self.records)

    @property
    def hardware(self) -> str:
        return "; ".join(dict.fromkeys(record.hardware for record in self.records))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for record in self.records for note in record.notes))

    def of(self, protocol: Protocol) -> tuple[SeedRecord, ...]:
        """The records of one protocol, by division and seed."""
        return tuple(record for record in self.records if record.key.protocol == protocol)

    # ------------------------------------------------------------------ accuracies
    @property
    def held_out(self) -> AccuracyEstimate | None:
        """Held-out accuracy: the epoch is selected on validation data."""
        return self.estimates.get("held-out")

    @property
    def C(self) -> AccuracyEstimate | None:
        """One epoch for all folds of a seed, by mean test accuracy: an upper bound chosen on test data."""
        return self.estimates.get("C")

    @property
    def C_star(self) -> AccuracyEstimate | None:
        """Each fold's own best test epoch: an upper bound chosen on test data."""
        return self.estimates.get("C*")

    def rule(self, name: str) -> str:
        """One line on an accuracy of :data:`RULES`; for short trainings, with the window that was used."""
        if not self.selects_epochs:
            return _SINGLE_EPOCH_RULES[name]
        window = min(window_for(int(record.curves.fold_epochs.min())) for record in self.records)
        rule = describe_rule(name, window)
        best = "lowest" if self.metric == "loss" else "highest"
        return rule.replace("lowest validation loss", f"{best} validation {METRIC_TITLES[self.metric]}")

    @property
    def selects_epochs(self) -> bool:
        """Whether there is more than one epoch to choose from."""
        return any(record.curves.num_epochs > 1 for record in self.records)

    def is_upper_bound(self, name: str) -> bool:
        """Whether an accuracy of :data:`RULES` is chosen on test data."""
        return name in UPPER_BOUNDS and self.selects_epochs

    @property
    def optimism(self) -> AccuracyEstimate | None:
        """C minus held-out, both of the held-out training."""
        return self.estimates.get("optimism")

    @cached_property
    def estimates(self) -> dict[str, AccuracyEstimate]:
        """The accuracies that the records allow, by the names of :data:`RULES`."""
        estimates = {}
        for name, (protocol, rule) in _SELECTION_RULES.items():
            records = self.of(protocol)
            if records:
                choices = [rule(record) for record in records]
                estimates[name] = average_seeds(choices, *_seeds_and_divisions(records))
        return estimates

    @cached_property
    def metrics(self) -> dict[str, MetricEstimate | None]:
        """Further metrics of the test graphs at the held-out epoch, by the names of :data:`FOLD_METRICS`.

        ``None`` for a metric that is not defined in every test fold. Empty if a held-out record has no metrics, as
        records of earlier versions.
        """
        records = self.of("held-out")
        stored = [record.metrics for record in records if record.metrics is not None]
        if not stored or len(stored) < len(records):
            return {}
        estimates: dict[str, MetricEstimate | None] = {}
        for name in FOLD_METRICS:
            values = [each.fold_values(name) for each in stored]
            defined = [value for value in values if value is not None]
            runs = _seeds_and_divisions(records)
            estimates[name] = average_metric(defined, *runs) if len(defined) == len(values) else None
        return estimates

    def committees(self, members: int) -> CommitteeResults:
        """Held-out results of committees of ``members`` consecutive seeds each, beside those of their members.

        Raises:
            ArgumentError: If the held-out records have no predictions, or cannot be divided into such committees.
        """
        return committee_results(self.of("held-out"), members)

    def mixture(self, members: int = 1) -> MixtureResults:
        """Held-out results of the network, of its companions and of their mixture.

        Args:
            members (int): Number of members of the network's committees. (default: 1, single networks)

        Raises:
            ArgumentError: If no companions were evaluated, and as :meth:`committees` does.
        """
        if not self.companions:
            fix = "Evaluate with companion='wl-forest'."
            raise ArgumentError("Ledger", "companions", "be evaluated on the same folds", "none", fix)
        return mixture_results(self.of("held-out"), self.companions, members)

    @cached_property
    def twin_free(self) -> AccuracyEstimate | None:
        """Held-out accuracy on test graphs without a twin (:mod:`graphcaps.data.quality.twins`), of all folds together.

        Records that lack the counts, as those of earlier versions, are left out; ``seeds`` of the result says which
        were counted. ``None`` if there are none, or in a division all graphs have a twin.
        """
        counts = self._twin_free_counts
        if not counts or not all(each.sum(0)[1] for _, each in counts):
            return None
        means = [np.array([right / graphs]) for right, graphs in (each.sum(0) for _, each in counts)]
        choices = [Choice(np.zeros(1, dtype=np.int64), mean) for mean in means]
        return average_seeds(choices, *_seeds_and_divisions([record for record, _ in counts]))

    @property
    def twin_share(self) -> float | None:
        """Share of the test graphs that have a twin, from 0 to 1; ``None`` if it was not counted."""
        counts = self._twin_free_counts
        if not counts:
            return None
        shares = [each.sum(0)[1] / record.curves.test_graphs.sum() for record, each in counts]
        return 1 - float(np.mean(shares))

    @property
    def _twin_free_counts(self) -> list[tuple[SeedRecord, np.ndarray]]:
        """Correct and all twin-free test graphs of each fold, ``[F, 2]``, of the records that have these counts."""
        return [
            (record, np.array(record.metrics.twin_free))
            for record in self.of("held-out")
            if record.metrics is not None and record.metrics.twin_free is not None
        ]

    @property
    def peak_memory(self) -> int | None:
        """Largest memory of all trainings, in bytes; ``None`` if it was not measured."""
        return max((each.peak_memory for each in self.records if each.peak_memory is not None), default=None)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Sentences on :attr:`metrics` that are not defined or rest on few graphs of a class."""
        stored = [record.metrics for record in self.of("held-out") if record.metrics is not None]
        unit = "split" if self.is_repeated_split else "fold"
        return tuple(cautions(stored, unit)) if self.metrics else ()

    @property
    def capsule_warning(self) -> str:
        """A warning if in a training one capsule of the lowest level holds almost all nodes, else ""."""
        return collapse_warning(use for record in self.records for use in record.capsule_use)

    def per_seed(self) -> list[dict[str, Any]]:
        """Selected epochs and accuracies of every fold, and their mean, for each rule and seed; JSON-safe."""
        rows = []
        for name, (protocol, rule) in _SELECTION_RULES.items():
            for record in self.of(protocol):
                choice = rule(record)
                rows.append(
                    {
                        "figure": name,
                        "protocol": protocol,
                        "seed": record.key.seed,
                        **({"division": record.key.division} if len(self.divisions) > 1 else {}),
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
        unit = "split" if self.is_repeated_split else "fold"
        folds = "one split" if self.num_folds == 1 else f"{self.num_folds} {unit}s"
        lines = [f"Ledger: {self._title}, {folds}, {self.seconds:.1f} s"]
        if self.partition is not None:
            lines.append(f"  {self.partition.sentence}")
        for name, estimate in self.estimates.items():
            several = "" if estimate.std_seeds is None else f", ± {estimate.std_seeds:.2f} over seeds"
            if estimate.std_divisions is not None:
                several += f", ± {estimate.std_divisions:.2f} over {len(estimate.per_division)} divisions"
            seeds = f"{len(estimate.seeds)} seed{'' if len(estimate.seeds) == 1 else 's'}"
            lines.append(f"  {name:<9} {estimate} over {unit}s{several} ({seeds}; {self.rule(name)})")
        return "\n".join(lines)

    # ------------------------------------------------------------------ saving
    def summary(self) -> dict[str, Any]:
        """All but the curves, JSON-safe: accuracies with their rules, configuration, versions, hardware."""
        first = self.records[0]
        estimates = {
            name: {
                "mean": round(estimate.mean, 4),
                "std_folds": None if estimate.std_folds is None else round(estimate.std_folds, 4),
                "std_seeds": None if estimate.std_seeds is None else round(estimate.std_seeds, 4),
                "seeds": list(estimate.seeds),
                **_division_entries(estimate),
                "rule": self.rule(name),
                "upper_bound": self.is_upper_bound(name),
            }
            for name, estimate in self.estimates.items()
        }
        return {
            "dataset": self.dataset,
            "variant": self.variant,
            "protocols": list(self.protocols),
            "folds": self.num_folds,
            "folds_seed": self.folds_seed,
            **({"divisions": list(self.divisions)} if self.divisions != (0,) else {}),
            **({} if self.partition is None else {"partition": vars(self.partition)}),
            **({} if self.patience is None else {"patience": self.patience}),
            "metric": self.metric,
            **({} if self.class_weight is None else {"class_weight": self.class_weight}),
            "figures": estimates,
            "metrics": {
                name: None if estimate is None else estimate.as_dict()
                for name, estimate in self.metrics.items()
            },
            "cautions": list(self.cautions),
            "capsule_use": [
                {
                    "protocol": record.key.protocol,
                    "seed": record.key.seed,
                    "capsules": record.capsule_use[0].capsules,
                    "in_use": [use.in_use for use in record.capsule_use],
                }
                for record in self.records
                if record.capsule_use
            ],
            "capsule_warning": self.capsule_warning,
            "per_seed": self.per_seed(),
            "twin_free": None if self.twin_free is None else round(self.twin_free.mean, 4),
            "twin_share": None if self.twin_share is None else round(self.twin_share, 4),
            "seconds": round(self.seconds, 3),
            "peak_memory": self.peak_memory,
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
        """Reads what :meth:`to_json` wrote; accuracies are recomputed from the records."""
        check_json(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"), where)
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(where, "a ledger written by graphcaps", "invalid JSON") from error
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise DataError(where, f"a file that names its format '{_FORMAT}'", "none")
        records = values.get("records")
        if not isinstance(records, list):
            raise DataError(where, "a list under 'records'", repr(records))
        return cls(tuple(SeedRecord.from_dict(record, where) for record in records))


def _order(record: SeedRecord) -> tuple[str, int, int]:
    return (record.key.protocol, record.key.division, record.key.seed)


def _seeds_and_divisions(records: Sequence[SeedRecord]) -> tuple[list[int], list[int]]:
    """Seed and division of each record."""
    return [record.key.seed for record in records], [record.key.division for record in records]


def _division_entries(estimate: AccuracyEstimate) -> dict[str, Any]:
    """Mean of each division and their deviation, JSON-safe; none for a single division."""
    if estimate.std_divisions is None:
        return {}
    return {
        "std_divisions": round(estimate.std_divisions, 4),
        "per_division": [round(mean, 4) for mean in estimate.per_division],
    }


def choose_epochs(record: SeedRecord) -> dict[str, Choice]:
    """Selected epochs and test accuracies of one record, by the rules of :data:`RULES` that its protocol allows."""
    return {
        name: rule(record)
        for name, (protocol, rule) in _SELECTION_RULES.items()
        if protocol == record.key.protocol
    }


def held_out_accuracies(ledger: Ledger) -> np.ndarray:
    """Held-out accuracy of every seed and fold, from 0 to 1, ``[S, F]``; models are compared by it."""
    _, rule = _SELECTION_RULES["held-out"]
    records = ledger.of("held-out")
    if not records:
        raise ArgumentError("held_out_accuracies", "ledger", "hold records of the held-out protocol", "none")
    return np.stack([rule(record).accuracies for record in records])


def _held_out(record: SeedRecord) -> Choice:
    curves = record.curves
    return held_out(curves.criterion, curves.test_accuracy, fold_epochs=curves.fold_epochs)


def _optimism(record: SeedRecord) -> Choice:
    curves = record.curves
    return optimism(curves.criterion, curves.test_accuracy, fold_epochs=curves.fold_epochs)


def _common(record: SeedRecord) -> Choice:
    return best_common_epoch(record.curves.test_accuracy, record.curves.fold_epochs)


def _per_fold(record: SeedRecord) -> Choice:
    return best_epoch_per_fold(record.curves.test_accuracy, record.curves.fold_epochs)


_SELECTION_RULES: dict[str, tuple[Protocol, Callable[[SeedRecord], Choice]]] = {
    "held-out": ("held-out", _held_out),
    "C": ("paper", _common),
    "C*": ("paper", _per_fold),
    "optimism": ("held-out", _optimism),
}
