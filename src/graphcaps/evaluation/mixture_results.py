"""Held-out results of a network with companions, from the records of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.evaluation.committee_results import POOLED_METRICS, sort_rows
from graphcaps.evaluation.epoch_selection import MetricEstimate, average_metric
from graphcaps.evaluation.fold_metrics import FOLD_METRICS
from graphcaps.evaluation.graph_predictions import PARTS, GraphPredictions
from graphcaps.evaluation.record import SeedRecord
from graphcaps.inference.mixture import Mixture
from graphcaps.metrics import class_metrics
from graphcaps.training.calibration import calibrate_probabilities
from graphcaps.training.companion_weights import fit_mixture

__all__ = ["CompanionRecords", "MixtureResults", "PartResults", "mixture_results"]


@dataclass(frozen=True)
class CompanionRecords:
    """What the results of a mixture need beside the records of the network.

    Args:
        names (tuple): Names of the companions.
        folds (tuple): For each companion its held-out records on the same folds, with predictions: seed c of the
            records belongs to committee c of the network, or to its seed c.
        inner (tuple): Records of the network, then of each companion, on inner splits of the training graphs of each
            fold, with predictions; empty if the validation graphs choose the weights.
        fold_of_inner (tuple): Fold that each inner split belongs to.
        division (int): Division into folds that the records are of. (default: 0)
    """

    names: tuple[str, ...]
    folds: tuple[tuple[SeedRecord, ...], ...]
    inner: tuple[tuple[SeedRecord, ...], ...] = ()
    fold_of_inner: tuple[int, ...] = ()
    division: int = 0

    @property
    def seconds(self) -> float:
        """Time of all fits and inner trainings."""
        return sum(record.seconds for records in (*self.folds, *self.inner) for record in records)


@dataclass(frozen=True)
class PartResults:
    """Held-out metrics of the network, of a companion or of their mixture.

    Args:
        name (str): Name of the model, or those of all parts with + between them.
        accuracy (MetricEstimate): Test accuracy of each seed and fold, from 0 to 1.
        metrics (dict): Further metrics, by the names of :data:`~graphcaps.evaluation.fold_metrics.FOLD_METRICS`;
            ``None`` if one is not defined in every fold.
        pooled (dict): :data:`~graphcaps.evaluation.committee_results.POOLED_METRICS` over the test graphs of all folds,
            mean over seeds.
    """

    name: str
    accuracy: MetricEstimate
    metrics: dict[str, MetricEstimate | None]
    pooled: dict[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "name": self.name,
            "accuracy": self.accuracy.as_dict(),
            **{name: None if each is None else each.as_dict() for name, each in self.metrics.items()},
            **{
                name: None if value is None else {"mean": round(value, 6)}
                for name, value in self.pooled.items()
            },
        }


@dataclass(frozen=True)
class MixtureResults:
    """Held-out results of the network, of each companion and of their mixture, beside each other.

    Every part is calibrated on the validation graphs of the fold. The weights of a fold are chosen on its validation
    graphs, or on out-of-fold predictions of its training graphs where the validation graphs are few
    (docs/companion.md). Test graphs choose nothing.

    Args:
        members (int): Number of members of the network's committee; 1 for a single network.
        parts (tuple): The network, then each companion.
        mixture (PartResults): Their mixture.
        weights (ndarray): Weight of each part for each seed and fold, ``[S, F, K]``.
        stacked (int): Number of folds, counted for each seed, whose weights out-of-fold predictions choose.
        seconds (float): Time of the companions and of inner trainings.
    """

    members: int
    parts: tuple[PartResults, ...]
    mixture: PartResults
    weights: np.ndarray
    stacked: int
    seconds: float

    @property
    def mean_weights(self) -> tuple[float, ...]:
        """Mean weight of each part over seeds and folds."""
        return tuple(self.weights.mean((0, 1)).tolist())

    @property
    def rule(self) -> str:
        """One line on how the results were computed."""
        count, inner = (
            self.weights.shape[0] * self.weights.shape[1],
            "out-of-fold predictions of the training graphs",
        )
        graphs = f"{inner if self.stacked else 'the validation graphs'} of each fold"
        if 0 < self.stacked < count:
            graphs = f"{inner} in {self.stacked} of {count} folds and on the validation graphs in the others"
        text = (
            f"weighted mean of the calibrated probabilities, with the weights of lowest log loss on {graphs}"
        )
        if self.stacked and self.members > 1:
            text += f"; out-of-fold predictions are of one member, and the weights apply to the mean of {self.members}"
        return text

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "members": self.members,
            "parts": [part.as_dict() for part in self.parts],
            "mixture": self.mixture.as_dict(),
            "weights": {
                "names": [part.name for part in self.parts],
                "mean": [round(weight, 6) for weight in self.mean_weights],
                "per_fold": self.weights.round(6).tolist(),
            },
            "stacked": self.stacked,
            "seconds": round(self.seconds, 3),
            "rule": self.rule,
        }


def mixture_results(
    records: Sequence[SeedRecord], companions: Sequence[CompanionRecords], members: int = 1
) -> MixtureResults:
    """The results of a network, or of committees of it, with companions.

    Args:
        records (sequence): Held-out records of the network with predictions, sorted by division and seed.
        companions (sequence): Records of the companions, and of inner trainings, for each division.
        members (int): Number of members of a committee: consecutive records of a division. (default: 1)

    Raises:
        ArgumentError: If the records cannot be divided into committees, a record has no predictions, or the companions
            have records of other seeds or divisions.
    """
    owner = "mixture_results"
    if type(members) is not int or members < 1:
        raise ArgumentError(owner, "members", "be a whole number from 1 on", members)
    divisions = sorted({record.key.division for record in records})
    if divisions != [each.division for each in companions] or not divisions:
        expected = f"be one entry for each of the divisions {divisions}"
        raise ArgumentError(owner, "companions", expected, [each.division for each in companions])
    mixed: list[_Mixed] = []
    seeds, of_division = [], []
    for each in companions:
        of_network = [record for record in records if record.key.division == each.division]
        mixed += _mix_division(of_network, each, members)
        seeds += [record.key.seed for record in of_network[::members]]
        of_division += [each.division] * (len(of_network) // members)
    names = (records[0].config.model, *companions[0].names)
    results = [
        _part(title, [committee.results[part] for committee in mixed], seeds, of_division)
        for part, title in enumerate((*names, " + ".join(names)))
    ]
    return MixtureResults(
        members,
        tuple(results[:-1]),
        results[-1],
        np.array([[mixture.weights for mixture in committee.mixtures] for committee in mixed]),
        sum(mixture.stacked for committee in mixed for mixture in committee.mixtures),
        sum(each.seconds for each in companions),
    )


def _mix_division(records: Sequence[SeedRecord], companions: CompanionRecords, members: int) -> list[_Mixed]:
    """The committees of one division."""
    owner = "mixture_results"
    if len(records) % members:
        expected = f"be a multiple of {members} held-out records, one per seed"
        raise ArgumentError(owner, "records", expected, len(records))
    count, listed = len(records) // members, (*companions.folds, *companions.inner)
    if any(len(each) != count for each in listed):
        expected = f"have {count} records of each model"
        raise ArgumentError(owner, "companions", expected, [len(each) for each in listed])
    network = [_rows(record) for record in records]
    beside = [[_rows(record) for record in each] for each in companions.folds]
    inner = [[_rows(record) for record in each] for each in companions.inner]
    _require_equal_rows([*network, *(rows for each in beside for rows in each)])
    _require_equal_rows([rows for each in inner for rows in each])
    return [
        _Mixed(
            network[number * members : (number + 1) * members],
            [rows[number] for rows in beside],
            [rows[number] for rows in inner],
            np.array(companions.fold_of_inner, dtype=np.int64),
        )
        for number in range(count)
    ]


class _Mixed:
    """The parts of one committee and their mixture, over the test graphs of each fold and of all folds.

    Args:
        network (list): Predictions of the members, with the same rows.
        companions (list): Those of each companion, with the same rows.
        inner (list): Those of the network, then of each companion, on inner splits; empty without any.
        fold_of_inner (ndarray): Fold of each inner split.
    """

    def __init__(
        self,
        network: Sequence[GraphPredictions],
        companions: Sequence[GraphPredictions],
        inner: Sequence[GraphPredictions],
        fold_of_inner: np.ndarray,
    ) -> None:
        first = network[0]
        members = np.stack([member.probabilities for member in network])  # [M, rows, O]
        parts = [members, *(each.probabilities[None] for each in companions)]
        is_test = first.part == PARTS.index("test")
        self.mixtures: list[Mixture] = []
        tests: list[list[np.ndarray]] = [[] for _ in range(len(parts) + 1)]
        ys = []
        for fold in np.unique(first.fold).tolist():
            judge, test = ((first.fold == fold) & part for part in (~is_test, is_test))
            y = first.y[judge]
            calibrations = [calibrate_probabilities(p[:, judge], y, "temperature") for p in parts]
            calibrated = [each.apply(p).mean(0) for each, p in zip(calibrations, parts, strict=True)]
            chosen = [rows for rows in inner if (fold_of_inner[rows.fold] == fold).any()]
            if chosen:
                out = [
                    (fold_of_inner[rows.fold] == fold) & (rows.part == PARTS.index("test")) for rows in chosen
                ]
                rows_y = chosen[0].y[out[0]]
                p = [rows.probabilities[kept] for rows, kept in zip(chosen, out, strict=True)]
                mixture = fit_mixture(p, rows_y, "temperature", stacked=True)
            else:
                mixture = fit_mixture([p[judge] for p in calibrated], y, "temperature", stacked=False)
            self.mixtures.append(mixture)
            answers = [p[test] for p in calibrated]
            for kept, q in zip(tests, [*answers, mixture.apply(answers)], strict=True):
                kept.append(q)
            ys.append(first.y[test])
        self.results = [
            (
                [class_metrics(y, q) for y, q in zip(ys, folds, strict=True)],
                class_metrics(np.concatenate(ys), np.concatenate(folds)),
            )
            for folds in tests
        ]


def _part(
    name: str,
    seeds: Sequence[tuple[list[dict[str, float | None]], dict[str, float | None]]],
    firsts: Sequence[int],
    divisions: Sequence[int],
) -> PartResults:
    """The metrics of one part over all seeds."""

    def values(metric: str) -> list[np.ndarray]:
        return [np.array([fold[metric] for fold in folds], dtype=np.float64) for folds, _ in seeds]

    def mean(metric: str) -> float | None:
        defined = [value for _, pooled in seeds if (value := pooled[metric]) is not None]
        return sum(defined) / len(defined) if len(defined) == len(seeds) else None

    metrics: dict[str, MetricEstimate | None] = {}
    for metric in FOLD_METRICS:
        per_seed = values(metric)
        is_defined = all(np.isfinite(each).all() for each in per_seed)
        metrics[metric] = average_metric(per_seed, firsts, divisions) if is_defined else None
    pooled = {metric: mean(metric) for metric in POOLED_METRICS}
    return PartResults(name, average_metric(values("accuracy"), firsts, divisions), metrics, pooled)


def _rows(record: SeedRecord) -> GraphPredictions:
    """The predictions of a record in the order of folds, parts and graphs."""
    if record.predictions is None:
        fix = "Evaluate with companion=…, or with predictions=True."
        raise ArgumentError("mixture_results", "records", "hold predictions", f"none in {record.key}", fix)
    return sort_rows(record.predictions)


def _require_equal_rows(predictions: Sequence[GraphPredictions]) -> None:
    """Refuses sorted predictions of other graphs, folds, parts or classes than the first."""
    for rows in predictions[1:]:
        for name in ("fold", "part", "graph", "y"):
            if not np.array_equal(vars(rows)[name], vars(predictions[0])[name]):
                expected = "predict the same graphs in the same folds and parts"
                raise ArgumentError("mixture_results", "companions", expected, f"another '{name}'")
