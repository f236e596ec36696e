"""Losses and accuracies of every epoch and fold, stored exactly and compactly."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphcaps.errors import DataError
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica

__all__ = ["CURVES", "LOSS_STEP", "METRIC_CURVE", "METRIC_STEP", "EpochRecords", "stored_criterion"]

LOSS_STEP = 1e-5
METRIC_STEP = 1e-6
METRIC_CURVE = "validation_metric"
_LARGEST = np.iinfo(np.int32).max
_MAX_VALUES = 4 * 10**6  # per curve; ten folds of 1000 epochs have 10⁴
CURVES = ("train_loss", "train_right", "validation_loss", "validation_right", "test_right")
_SIZES = ("train_graphs", "validation_graphs", "test_graphs")


@dataclass(frozen=True, eq=False)
class EpochRecords:
    """Losses and numbers of correct predictions of F folds over E epochs, as integers ``[F, E]``.

    Accuracies are stored as counts, which are exact. Losses are stored as multiples of 0.00001; NaN and infinity
    become the largest multiple. Values are rounded here, before an epoch is selected, so that results computed in
    memory and results computed from files are identical.

    Args:
        train_loss, train_right (ndarray): Loss and correct predictions on the training set, during the epoch.
        validation_loss, validation_right (ndarray): The same on the validation set; zero where there is none.
        test_right (ndarray): Correct predictions on the test set.
        train_graphs, validation_graphs, test_graphs (ndarray): Number of graphs of each set, ``[F]``.
        epochs_run (ndarray, optional): Number of epochs of each fold, ``[F]``, the largest of which is E. A fold that
            stopped earlier repeats its last values, which no rule selects. (default: E for each)
        validation_metric (ndarray, optional): The metric of the validation set that selects the epoch, as multiples of
            0.000001; NaN becomes −1. (default: the epoch is selected by the validation loss)
    """

    train_loss: np.ndarray
    train_right: np.ndarray
    validation_loss: np.ndarray
    validation_right: np.ndarray
    test_right: np.ndarray
    train_graphs: np.ndarray
    validation_graphs: np.ndarray
    test_graphs: np.ndarray
    epochs_run: np.ndarray | None = None
    validation_metric: np.ndarray | None = None

    @classmethod
    def from_events(
        cls,
        events: Sequence[EpochEnd],
        replicas: Sequence[Replica],
        epochs_run: np.ndarray | None = None,
    ) -> EpochRecords:
        """The curves of one training of several replicas, from the events of all its epochs.

        Args:
            events (list): An event per epoch.
            replicas (list): The replicas of the training.
            epochs_run (ndarray, optional): Number of epochs of each replica that count. (default: all)
        """
        counts = {
            name: [getattr(r, name).numel() for r in replicas] for name in ("train", "validation", "test")
        }
        sizes = {name: np.array(count, dtype=np.int64) for name, count in counts.items()}

        def collect(name: str) -> np.ndarray:
            rows = [getattr(event, name) or [0.0] * len(replicas) for event in events]
            return np.array(rows, dtype=np.float64).T  # [F, E]

        def right(name: str) -> np.ndarray:
            correct = np.nan_to_num(collect(f"{name}_accuracy")) * sizes[name][:, None]
            return np.rint(correct).astype(np.int64)

        def loss(name: str) -> np.ndarray:
            return np.where(sizes[name][:, None] > 0, _stored_loss(collect(f"{name}_loss")), 0)

        metric = None
        if any(event.validation_metric for event in events):
            metric = _stored_metric(collect(METRIC_CURVE))
        curves = cls(
            loss("train"), right("train"), loss("validation"), right("validation"), right("test"),
            sizes["train"], sizes["validation"], sizes["test"], None, metric,
        )  # fmt: skip
        return curves if epochs_run is None else curves._cut(epochs_run)

    @property
    def num_folds(self) -> int:
        return len(self.test_right)

    @property
    def num_epochs(self) -> int:
        return self.test_right.shape[1]

    @property
    def fold_epochs(self) -> np.ndarray:
        """Number of epochs of each fold, ``[F]``."""
        return np.full(self.num_folds, self.num_epochs) if self.epochs_run is None else self.epochs_run

    @property
    def criterion(self) -> np.ndarray:
        """What the held-out epoch minimises, ``[F, E]``: the validation loss, or one minus the metric."""
        if self.validation_metric is None:
            return self.validation_loss * LOSS_STEP
        return 1 - self.validation_metric * METRIC_STEP

    @property
    def train_accuracy(self) -> np.ndarray:
        """From 0 to 1, ``[F, E]``."""
        return self.train_right / self.train_graphs[:, None]

    @property
    def validation_accuracy(self) -> np.ndarray:
        """From 0 to 1, ``[F, E]``; NaN where there is no validation set."""
        with np.errstate(invalid="ignore"):
            return self.validation_right / self.validation_graphs[:, None]

    @property
    def test_accuracy(self) -> np.ndarray:
        """From 0 to 1, ``[F, E]``."""
        return self.test_right / self.test_graphs[:, None]

    def folds(self, rows: Sequence[int]) -> EpochRecords:
        """The curves of the given rows, up to the last epoch of the longest."""
        rows = list(rows)
        chosen = EpochRecords(*(getattr(self, name)[rows] for name in (*CURVES, *_SIZES)))
        metric = None if self.validation_metric is None else self.validation_metric[rows]
        return replace(chosen, validation_metric=metric)._cut(self.fold_epochs[rows])

    @staticmethod
    def join(parts: Sequence[EpochRecords]) -> EpochRecords:
        """Concatenates the rows of several records. Shorter ones are padded with their last values."""
        E = max(part.num_epochs for part in parts)

        def padded(curve: np.ndarray) -> np.ndarray:
            return np.pad(curve, ((0, 0), (0, E - curve.shape[1])), mode="edge")

        curves = [np.concatenate([padded(getattr(part, name)) for part in parts]) for name in CURVES]
        sizes = [np.concatenate([getattr(part, name) for part in parts]) for name in _SIZES]
        metrics = [padded(part.validation_metric) for part in parts if part.validation_metric is not None]
        epochs_run = np.concatenate([part.fold_epochs for part in parts])
        metric = np.concatenate(metrics) if metrics else None
        joined = EpochRecords(*curves, *sizes)
        return replace(joined, epochs_run=_or_none(epochs_run, E), validation_metric=metric)

    def _cut(self, epochs_run: np.ndarray) -> EpochRecords:
        """The same folds with that many epochs of each, in as many columns as the longest needs."""
        E = int(epochs_run.max())
        column = np.minimum(np.arange(E), epochs_run[:, None] - 1)  # [F, E]
        curves = [np.take_along_axis(getattr(self, name), column, 1) for name in CURVES]
        sizes = [getattr(self, name) for name in _SIZES]
        metric = self.validation_metric
        metric = None if metric is None else np.take_along_axis(metric, column, 1)
        cut = EpochRecords(*curves, *sizes)
        return replace(cut, epochs_run=_or_none(epochs_run, E), validation_metric=metric)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpochRecords):
            return NotImplemented
        names = (*CURVES, *_SIZES, "fold_epochs", "criterion")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)

    def __repr__(self) -> str:
        return f"EpochRecords(folds={self.num_folds}, epochs={self.num_epochs})"

    # ------------------------------------------------------------------ saving
    def header(self) -> dict[str, Any]:
        """Shape and set sizes, without the curves; JSON-safe."""
        names = _SIZES if self.epochs_run is None else (*_SIZES, "epochs_run")
        sizes = {name: getattr(self, name).tolist() for name in names}
        steps = {"loss_step": LOSS_STEP}
        if self.validation_metric is not None:
            steps["metric_step"] = METRIC_STEP
        return {"folds": self.num_folds, "epochs": self.num_epochs} | steps | sizes

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe; :meth:`from_dict` reads it back."""
        metric = {} if self.validation_metric is None else {METRIC_CURVE: _pack(self.validation_metric)}
        return self.header() | {name: _pack(getattr(self, name)) for name in CURVES} | metric

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> EpochRecords:
        """Reads what :meth:`as_dict` wrote.

        Args:
            values (mapping): Shape, sizes and curves. A curve is encoded text or an int64 array ``[F, E]``.
            where (str): The file, for messages.

        Raises:
            DataError: If an entry is missing, truncated, not an integer or out of range.
        """
        shape = values.get("folds"), values.get("epochs")
        if not all(type(size) is int and 0 < size < 10**7 for size in shape):
            raise DataError(where, "whole numbers under 'folds' and 'epochs'", repr(shape))
        F, E = int(shape[0] or 0), int(shape[1] or 0)
        if F * E > _MAX_VALUES:  # bounds the memory that a small malicious file can claim
            raise DataError(
                where, f"at most {_MAX_VALUES:,} values per curve", f"{F:,} folds of {E:,} epochs"
            )
        has_metric = "metric_step" in values
        for name, step in (
            ("loss_step", LOSS_STEP),
            *((("metric_step", METRIC_STEP),) if has_metric else ()),
        ):
            if values.get(name) != step:
                raise DataError(where, f"{step} under '{name}'", repr(values.get(name))[:60])
        sizes = {}
        for name in (*_SIZES, *(("epochs_run",) if "epochs_run" in values else ())):
            entry = values.get(name)
            if not isinstance(entry, list) or len(entry) != F or not all(type(n) is int for n in entry):
                raise DataError(where, f"{F} whole numbers under '{name}'", "something else")
            smallest = 0 if name == "validation_graphs" else 1  # the paper's protocol has no validation set
            if not all(smallest <= n <= _LARGEST for n in entry):
                raise DataError(where, f"numbers from {smallest} on under '{name}'", "others")
            if name == "epochs_run" and max(entry) != E:
                raise DataError(where, f"{E} as the largest number under '{name}'", f"{max(entry)}")
            sizes[name] = np.array(entry, dtype=np.int64)
        curves = {}
        for name in (*CURVES, *((METRIC_CURVE,) if has_metric else ())):
            value = values.get(name)
            curves[name] = (
                value if isinstance(value, np.ndarray) else _unpack(value, F, E, f"{where}, {name}")
            )
        for name, curve in curves.items():
            subset, quantity = name.split("_")
            limits: dict[str, tuple[int, Any, str]] = {
                "right": (0, sizes[f"{subset}_graphs"][:, None], "the number of graphs"),
                "loss": (0, _LARGEST, f"{_LARGEST}"),
                "metric": (-round(1 / METRIC_STEP), round(1 / METRIC_STEP), f"{round(1 / METRIC_STEP)}"),
            }
            smallest, largest, limit = limits[quantity]
            if (curve < smallest).any() or (curve > largest).any():
                raise DataError(where, f"numbers from {smallest} to {limit} under '{name}'", "others")
        metric = curves.pop(METRIC_CURVE, None)
        return replace(cls(*curves.values(), *sizes.values()), validation_metric=metric)


def stored_criterion(event: EpochEnd) -> np.ndarray:
    """:attr:`EpochRecords.criterion` of one epoch, rounded as it is stored, ``[F]``."""
    if event.validation_metric:
        return 1 - _stored_metric(np.array(event.validation_metric, dtype=np.float64)) * METRIC_STEP
    return _stored_loss(np.array(event.validation_loss, dtype=np.float64)) * LOSS_STEP


def _stored_loss(loss: np.ndarray) -> np.ndarray:
    values = np.nan_to_num(loss / LOSS_STEP, nan=_LARGEST, posinf=_LARGEST)
    return np.rint(values.clip(0, _LARGEST)).astype(np.int64)


def _stored_metric(metric: np.ndarray) -> np.ndarray:
    return np.rint(np.nan_to_num(metric, nan=-1.0) / METRIC_STEP).astype(np.int64)


def _or_none(epochs_run: np.ndarray, E: int) -> np.ndarray | None:
    """``None`` where all folds have all epochs."""
    return None if (epochs_run == E).all() else epochs_run


def _pack(values: np.ndarray) -> str:
    """Encodes a curve: differences along epochs as little-endian int32, byte planes, zlib, base64."""
    steps = np.diff(values, axis=1, prepend=0).astype("<i4")
    planes = np.ascontiguousarray(steps.reshape(-1, 1).view(np.uint8).T)
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")


def _unpack(text: Any, F: int, E: int, where: str) -> np.ndarray:
    """Decodes what :func:`_pack` encoded, ``[F, E]``."""
    size = 4 * F * E
    try:
        packed = base64.b64decode(text, validate=True)
        # Bounds the output: a small file cannot fill the memory.
        raw = zlib.decompressobj().decompress(packed, size + 1)
    except (TypeError, ValueError, OverflowError, binascii.Error, zlib.error) as error:
        raise DataError(where, "a packed curve", "something else") from error
    if len(raw) != size:
        raise DataError(where, f"{F} × {E} numbers", "more or fewer")
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(4, F * E)
    steps = np.ascontiguousarray(planes.T).view("<i4").reshape(F, E).astype(np.int64)
    return steps.cumsum(1)
