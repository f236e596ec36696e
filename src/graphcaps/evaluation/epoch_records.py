"""Epoch by epoch, fold by fold: what a training is remembered by, exactly and in few bytes."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcaps.errors import DataError
from graphcaps.training.replicas import Replica
from graphcaps.training.trainer import EpochEnd

__all__ = ["CURVES", "LOSS_STEP", "EpochRecords"]

LOSS_STEP = 1e-5
_LARGEST = np.iinfo(np.int32).max
_MOST_VALUES = 5 * 10**7  # per curve; ten folds of 1000 epochs have 10⁴
CURVES = ("train_loss", "train_right", "validation_loss", "validation_right", "test_right")
_SIZES = ("train_graphs", "validation_graphs", "test_graphs")


@dataclass(frozen=True, eq=False)
class EpochRecords:
    """Losses and right answers of F trainings over E epochs, all as whole numbers ``[F, E]``.

    Accuracies are kept as counts, which are exact; losses as multiples of 0.00001, and one that is no number
    as the largest multiple. Rounding happens here, before any rule looks, so that figures made in memory and
    figures made from files are the same.

    Args:
        train_loss, train_right (ndarray): Over the training part, while learning.
        validation_loss, validation_right (ndarray): Over the validation part; all zero where there is none.
        test_right (ndarray): Over the test part.
        train_graphs, validation_graphs, test_graphs (ndarray): Graphs of each part, ``[F]``.
    """

    train_loss: np.ndarray
    train_right: np.ndarray
    validation_loss: np.ndarray
    validation_right: np.ndarray
    test_right: np.ndarray
    train_graphs: np.ndarray
    validation_graphs: np.ndarray
    test_graphs: np.ndarray

    @classmethod
    def from_events(cls, events: Sequence[EpochEnd], replicas: Sequence[Replica]) -> EpochRecords:
        """The records of one training of several replicas, from all its events."""
        parts = {
            name: [getattr(r, name).numel() for r in replicas] for name in ("train", "validation", "test")
        }
        sizes = {name: np.array(counts, dtype=np.int64) for name, counts in parts.items()}

        def collect(name: str) -> np.ndarray:
            rows = [getattr(event, name) or [0.0] * len(replicas) for event in events]
            return np.array(rows, dtype=np.float64).T  # [F, E]

        def right(name: str) -> np.ndarray:
            counts = np.nan_to_num(collect(f"{name}_accuracy")) * sizes[name][:, None]
            return np.rint(counts).astype(np.int64)

        def loss(name: str) -> np.ndarray:
            values = np.nan_to_num(collect(f"{name}_loss") / LOSS_STEP, nan=_LARGEST, posinf=_LARGEST)
            values = np.where(sizes[name][:, None] > 0, values, 0)
            return np.rint(values.clip(0, _LARGEST)).astype(np.int64)

        return cls(
            loss("train"), right("train"), loss("validation"), right("validation"), right("test"),
            sizes["train"], sizes["validation"], sizes["test"],
        )  # fmt: skip

    @property
    def num_folds(self) -> int:
        return len(self.test_right)

    @property
    def num_epochs(self) -> int:
        return self.test_right.shape[1]

    @property
    def train_accuracy(self) -> np.ndarray:
        """From 0 to 1, ``[F, E]``."""
        return self.train_right / self.train_graphs[:, None]

    @property
    def validation_accuracy(self) -> np.ndarray:
        """From 0 to 1, ``[F, E]``; NaN where there is no validation part."""
        with np.errstate(invalid="ignore"):
            return self.validation_right / self.validation_graphs[:, None]

    @property
    def test_accuracy(self) -> np.ndarray:
        """From 0 to 1, ``[F, E]``."""
        return self.test_right / self.test_graphs[:, None]

    def folds(self, rows: Sequence[int]) -> EpochRecords:
        """The named rows alone."""
        return EpochRecords(*(getattr(self, name)[list(rows)] for name in (*CURVES, *_SIZES)))

    @staticmethod
    def join(parts: Sequence[EpochRecords]) -> EpochRecords:
        """The rows of several records of equally many epochs, one after another."""
        names = (*CURVES, *_SIZES)
        return EpochRecords(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpochRecords):
            return NotImplemented
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in (*CURVES, *_SIZES))

    def __repr__(self) -> str:
        return f"EpochRecords(folds={self.num_folds}, epochs={self.num_epochs})"

    # ------------------------------------------------------------------ saving
    def header(self) -> dict[str, Any]:
        """Shape and part sizes, without the curves; JSON-safe."""
        sizes = {name: getattr(self, name).tolist() for name in _SIZES}
        return {"folds": self.num_folds, "epochs": self.num_epochs, "loss_step": LOSS_STEP} | sizes

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe; :meth:`from_dict` reads it back."""
        return self.header() | {name: _pack(getattr(self, name)) for name in CURVES}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> EpochRecords:
        """Reads what :meth:`as_dict` wrote.

        Args:
            values (mapping): Shape, sizes and curves. A curve is text, or an array ``[F, E]`` of int64.
            where (str): The file, for messages.

        Raises:
            DataError: If an entry is missing, truncated, no integer or out of range.
        """
        shape = values.get("folds"), values.get("epochs")
        if not all(type(size) is int and 0 < size < 10**7 for size in shape):
            raise DataError(where, "whole numbers under 'folds' and 'epochs'", repr(shape))
        F, E = int(shape[0] or 0), int(shape[1] or 0)
        if F * E > _MOST_VALUES:  # bounds the memory that a small malicious file can claim
            raise DataError(
                where, f"at most {_MOST_VALUES:,} values per curve", f"{F:,} folds of {E:,} epochs"
            )
        if values.get("loss_step") != LOSS_STEP:
            raise DataError(where, f"{LOSS_STEP} under 'loss_step'", repr(values.get("loss_step"))[:60])
        sizes = {}
        for name in _SIZES:
            entry = values.get(name)
            if not isinstance(entry, list) or len(entry) != F or not all(type(n) is int for n in entry):
                raise DataError(where, f"{F} whole numbers under '{name}'", "something else")
            least = 0 if name == "validation_graphs" else 1  # the paper's protocol has no such part
            if not all(least <= n <= _LARGEST for n in entry):
                raise DataError(where, f"numbers from {least} on under '{name}'", "others")
            sizes[name] = np.array(entry, dtype=np.int64)
        curves = {}
        for name in CURVES:
            value = values.get(name)
            curves[name] = (
                value if isinstance(value, np.ndarray) else _unpack(value, F, E, f"{where}, {name}")
            )
        for name, curve in curves.items():
            part, what = name.split("_")
            most = sizes[f"{part}_graphs"][:, None] if what == "right" else _LARGEST
            if (curve < 0).any() or (curve > most).any():
                limit = "the number of graphs" if what == "right" else f"{_LARGEST}"
                raise DataError(where, f"numbers from 0 to {limit} under '{name}'", "others")
        return cls(*curves.values(), *sizes.values())


def _pack(values: np.ndarray) -> str:
    """Differences along epochs as little-endian int32, bytes of equal weight together, zlib, base64."""
    steps = np.diff(values, axis=1, prepend=0).astype("<i4")
    planes = np.ascontiguousarray(steps.reshape(-1, 1).view(np.uint8).T)
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")


def _unpack(text: Any, F: int, E: int, where: str) -> np.ndarray:
    size = 4 * F * E
    try:
        packed = base64.b64decode(text, validate=True)
        # A limit on the output: a small file cannot fill the memory.
        raw = zlib.decompressobj().decompress(packed, size + 1)
    except (TypeError, ValueError, OverflowError, binascii.Error, zlib.error) as error:
        raise DataError(where, "a packed curve", "something else") from error
    if len(raw) != size:
        raise DataError(where, f"{F} × {E} numbers", "more or fewer")
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(4, F * E)
    steps = np.ascontiguousarray(planes.T).view("<i4").reshape(F, E).astype(np.int64)
    return steps.cumsum(1)
