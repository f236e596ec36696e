"""Epoch selection: from the curves of a cross-validation to one epoch and one test accuracy per fold.

All rules take arrays ``[F, E]``, a row per fold and a column per epoch, and optionally the number of epochs of each
fold, ``[F]``: later columns of a fold that was stopped early are never selected, nor do they enter its means. Ties go
to the earliest epoch. Rules that select on test accuracy give upper bounds, which their docstrings state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.training.early_stopping import WINDOW

__all__ = [
    "UPPER_BOUND",
    "AccuracyEstimate",
    "Choice",
    "MetricEstimate",
    "average_metric",
    "average_seeds",
    "best_common_epoch",
    "best_epoch_per_fold",
    "held_out",
    "lowest_epoch",
    "optimism",
    "smooth",
    "window_for",
]

UPPER_BOUND = "an upper bound: the epoch is chosen on test data"


@dataclass(frozen=True, eq=False)
class Choice:
    """The epochs that a rule selects for one seed, and the test accuracies there.

    Args:
        epochs (ndarray): Selected epoch of each fold, counted from 1, ``[F]``.
        accuracies (ndarray): Test accuracy of each fold at that epoch, from 0 to 1, ``[F]``; for
            :func:`optimism` a difference of two accuracies.
    """

    epochs: np.ndarray
    accuracies: np.ndarray

    @property
    def mean(self) -> float:
        """Mean over folds, in percent."""
        return float(100 * self.accuracies.mean())

    @property
    def std_folds(self) -> float | None:
        """Standard deviation over folds (n − 1), in percent; ``None`` for a single fold."""
        return _std(100 * self.accuracies)


@dataclass(frozen=True)
class AccuracyEstimate:
    """A mean accuracy with its standard deviations, in percent.

    Args:
        mean (float): Mean over folds, then over seeds, then over divisions into folds.
        std_folds (float, optional): Standard deviation over folds (n − 1), averaged over seeds and divisions.
        std_seeds (float, optional): Standard deviation over seeds (n − 1) of each seed's mean, averaged over divisions;
            ``None`` for one seed.
        seeds (tuple): Seeds that were averaged.
        std_divisions (float, optional): Standard deviation over divisions (n − 1) of each division's mean; ``None`` for
            one division.
        per_division (tuple): Mean of each division.
    """

    mean: float
    std_folds: float | None
    std_seeds: float | None
    seeds: tuple[int, ...]
    std_divisions: float | None = None
    per_division: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std_folds is None else f"{self.mean:.2f} ± {self.std_folds:.2f}"


@dataclass(frozen=True)
class MetricEstimate:
    """A mean metric with its standard deviations, in its own unit.

    Args:
        mean (float): Mean over folds, then over seeds, then over divisions into folds.
        std_folds (float, optional): Standard deviation over folds (n − 1), averaged over seeds and divisions.
        std_seeds (float, optional): Standard deviation over seeds (n − 1) of each seed's mean, averaged over divisions;
            ``None`` for one seed.
        per_seed (tuple): Values of the folds of each seed, one division after another.
        seeds (tuple): Seeds that were averaged.
        std_divisions (float, optional): Standard deviation over divisions (n − 1) of each division's mean; ``None`` for
            one division.
        per_division (tuple): Mean of each division.
    """

    mean: float
    std_folds: float | None
    std_seeds: float | None
    per_seed: tuple[tuple[float, ...], ...]
    seeds: tuple[int, ...]
    std_divisions: float | None = None
    per_division: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe, rounded to six digits."""
        stds = {"std_folds": self.std_folds, "std_seeds": self.std_seeds}
        if self.std_divisions is not None:
            stds["std_divisions"] = self.std_divisions
        return {
            "mean": round(self.mean, 6),
            **{name: None if std is None else round(std, 6) for name, std in stds.items()},
            "seeds": list(self.seeds),
            "per_seed": [[round(value, 6) for value in values] for values in self.per_seed],
        }


def average_metric(
    values: Sequence[np.ndarray], seeds: Sequence[int], divisions: Sequence[int] | None = None
) -> MetricEstimate:
    """Averages a metric, ``[F]`` for each seed and division: over folds first, then over seeds, then over divisions.

    Args:
        values (sequence): Values of the folds of each run.
        seeds (sequence): Seed of each run.
        divisions (sequence, optional): Division of each run. (default: all of one)
    """
    runs = _Runs(np.array([each.mean() for each in values]), seeds, divisions)
    deviations = [std for each in values if (std := _std(each)) is not None]
    return MetricEstimate(
        runs.mean,
        float(np.mean(deviations)) if deviations else None,
        runs.std_seeds,
        tuple(tuple(each.tolist()) for each in values),
        runs.seeds,
        runs.std_divisions,
        runs.per_division,
    )


def smooth(loss: np.ndarray, window: int = WINDOW) -> np.ndarray:
    r"""Centred mean over ``window`` epochs, ``[F, E]``; truncated at both ends.

    .. math::
        \bar\ell_e = \frac{1}{|W_e|} \sum_{t \in W_e} \ell_t, \qquad
        W_e = \{\, t : |t - e| \le (\mathrm{window} - 1) / 2,\; 1 \le t \le E \,\}

    Sums are integers in units of 1e-9, so that equal losses have equal means at every epoch.
    """
    if window < 1 or window % 2 == 0:
        raise ArgumentError("smooth", "window", "be an odd number from 1 on", window)
    loss = _table("smooth", "loss", loss)
    E, half = loss.shape[1], window // 2
    sums = np.pad(np.rint(loss * 1e9).astype(np.int64).cumsum(1), ((0, 0), (1, 0)))  # [F, E + 1]
    epoch = np.arange(E)
    first, end = np.maximum(epoch - half, 0), np.minimum(epoch + half + 1, E)
    mean: np.ndarray = (sums[:, end] - sums[:, first]) / (end - first) / 1e9
    return mean


def lowest_epoch(criterion: np.ndarray, window: int) -> np.ndarray:
    """Index of each fold's epoch of lowest smoothed criterion, ``[F]``; of equal ones the earliest.

    The first ``(window - 1) / 2`` epochs are not considered. Their truncated windows contain more later epochs than
    earlier ones: if the loss falls for a few epochs and then rises, as in networks that overfit quickly, the untrained
    first epoch would have the lowest mean. Windows truncated at the end contain earlier epochs and remain.
    """
    first = min(window // 2, criterion.shape[1] - 1)
    epochs: np.ndarray = first + smooth(criterion, window)[:, first:].argmin(1)
    return epochs


def window_for(epochs: int) -> int:
    """Width of the smoothing window: the largest odd number up to 21 and up to half of the epochs.

    A wider window would contain all epochs at every position: all means would be equal and epoch 1 selected.
    """
    limit = max(min(WINDOW, epochs // 2), 1)
    return limit - (limit + 1) % 2


def held_out(
    criterion: np.ndarray,
    test_accuracy: np.ndarray,
    window: int | None = None,
    fold_epochs: np.ndarray | None = None,
) -> Choice:
    r"""Each fold's epoch of lowest smoothed criterion (validation loss, or one minus a metric), and its test accuracy.

    .. math::
        e_f = \arg\min_{e > (w - 1) / 2} \bar\ell^{\,\mathrm{validation}}_{f,e}, \qquad a_f = a^{\mathrm{test}}_{f,e_f}

    Test data is not used for the selection: this is the held-out accuracy. The criterion is smoothed over w =
    ``window`` epochs (default: :func:`window_for` the number of epochs of the fold), see :func:`lowest_epoch`.
    """
    values = _table("held_out", "criterion", criterion)
    test = _table("held_out", "test_accuracy", test_accuracy, values.shape)
    lengths = _lengths("held_out", fold_epochs, values)
    epochs = np.zeros(len(values), dtype=np.int64)
    for length in np.unique(lengths).tolist():  # folds of one length together: one mean for all of them
        rows = lengths == length
        epochs[rows] = lowest_epoch(values[rows, :length], window_for(length) if window is None else window)
    return _select(test, epochs)


def best_common_epoch(test_accuracy: np.ndarray, fold_epochs: np.ndarray | None = None) -> Choice:
    r"""Criterion C: the one epoch, for all folds, with the best mean test accuracy. An upper bound.

    .. math:: e = \arg\max_e \frac{1}{F} \sum_f a^{\mathrm{test}}_{f,e}, \qquad a_f = a^{\mathrm{test}}_{f,e}

    Epochs that not all folds have are not considered.
    """
    test = _table("best_common_epoch", "test_accuracy", test_accuracy)
    common = int(_lengths("best_common_epoch", fold_epochs, test).min())
    # Rounded, so that the order of the folds in the sum cannot break a tie.
    epoch = int(test[:, :common].mean(0).round(12).argmax())
    return _select(test, np.full(len(test), epoch))


def best_epoch_per_fold(test_accuracy: np.ndarray, fold_epochs: np.ndarray | None = None) -> Choice:
    r"""Criterion C*: each fold's own best test epoch. An upper bound, at least as high as C.

    .. math:: e_f = \arg\max_e a^{\mathrm{test}}_{f,e}, \qquad a_f = a^{\mathrm{test}}_{f,e_f}
    """
    test = _table("best_epoch_per_fold", "test_accuracy", test_accuracy)
    lengths = _lengths("best_epoch_per_fold", fold_epochs, test)
    counted = np.arange(test.shape[1]) < lengths[:, None]
    return _select(test, np.where(counted, test, -np.inf).argmax(1))


def optimism(
    criterion: np.ndarray,
    test_accuracy: np.ndarray,
    window: int | None = None,
    fold_epochs: np.ndarray | None = None,
) -> Choice:
    """Gain from selecting the epoch on test data: C minus held-out, both on the same held-out training."""
    best = best_common_epoch(test_accuracy, fold_epochs)
    validated = held_out(criterion, test_accuracy, window, fold_epochs)
    return Choice(best.epochs, best.accuracies - validated.accuracies)


def average_seeds(
    choices: Sequence[Choice], seeds: Sequence[int], divisions: Sequence[int] | None = None
) -> AccuracyEstimate:
    """Averages the accuracies of several runs: over folds first, then over seeds, then over divisions.

    Args:
        choices (sequence): The choice of each run.
        seeds (sequence): Seed of each run.
        divisions (sequence, optional): Division of each run. (default: all of one)
    """
    if not choices or len(choices) != len(seeds):
        raise ArgumentError("average_seeds", "choices", f"be one per seed, {len(seeds)}", len(choices))
    runs = _Runs(np.array([choice.mean for choice in choices]), seeds, divisions)
    deviations = [std for choice in choices if (std := choice.std_folds) is not None]
    return AccuracyEstimate(
        runs.mean,
        float(np.mean(deviations)) if len(deviations) == len(choices) else None,
        runs.std_seeds,
        runs.seeds,
        runs.std_divisions,
        runs.per_division,
    )


class _Runs:
    """Means and deviations of runs with one value each.

    Args:
        values (ndarray): Value of each run, ``[N]``.
        seeds (sequence): Seed of each run.
        divisions (sequence, optional): Division of each run. (default: all of one)
    """

    def __init__(self, values: np.ndarray, seeds: Sequence[int], divisions: Sequence[int] | None) -> None:
        numbers = np.zeros(len(values), dtype=np.int64) if divisions is None else np.array(divisions)
        parts = [values[numbers == number] for number in np.unique(numbers)]
        means = np.array([part.mean() for part in parts])
        stds = [std for part in parts if (std := _std(part)) is not None]
        self.mean, self.per_division = float(means.mean()), tuple(means.tolist())
        self.seeds = tuple(dict.fromkeys(seeds))
        self.std_seeds = float(np.mean(stds)) if len(stds) == len(parts) else None
        self.std_divisions = _std(means)


def _select(test: np.ndarray, epochs: np.ndarray) -> Choice:
    """Test accuracies at one epoch index per fold."""
    return Choice(epochs + 1, test[np.arange(len(test)), epochs])


def _lengths(owner: str, fold_epochs: np.ndarray | None, table: np.ndarray) -> np.ndarray:
    """Number of epochs of each fold, ``[F]``; all columns of ``table`` if they are not given."""
    F, E = table.shape
    if fold_epochs is None:
        return np.full(F, E)
    lengths = np.asarray(fold_epochs)
    if lengths.shape != (F,):
        raise ShapeError(owner, "fold_epochs", f"have one number per fold, {F}", list(lengths.shape))
    if not ((lengths >= 1) & (lengths <= E)).all():
        raise ArgumentError(owner, "fold_epochs", f"be from 1 to the number of epochs, {E}", lengths.tolist())
    return lengths


def _std(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _table(owner: str, name: str, values: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """``values`` as a finite float64 array ``[F, E]``."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(owner, name, "have a row per fold and a column per epoch", list(table.shape))
    if shape is not None and table.shape != shape:
        raise ShapeError(owner, name, f"have the shape {list(shape)} of the loss", list(table.shape))
    if not np.isfinite(table).all():
        raise ArgumentError(owner, name, "be finite", "NaN or infinity")
    return table
