"""Which graphs trained a model: hashes of its training, validation and test graphs, stored in the model file.

A model file holds 8 bytes per distinct graph: 330 kB for 41,000 molecules, 8 MB for a million. The graphs themselves
cannot be read back from their hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.errors import ArgumentError

__all__ = ["Part", "SplitHashes"]

Part = Literal["training", "validation", "test", "left-out"]
"""Part of the data that a graph was in when the model was trained; molecules that ``duplicates="drop-contradicting"``
removed because of different labels are left out."""
_NONE: NDArray[np.uint64] = np.zeros(0, np.uint64)


@dataclass(frozen=True, eq=False)
class SplitHashes:
    """Hashes (:func:`graphcaps.data.quality.graph_hashes.graph_hashes`) of the graphs of each part.

    Args:
        training, validation, test (ndarray): Distinct hashes in ascending order, uint64.
        left_out (ndarray): Those of molecules that the training left out. (default: none)

    Raises:
        ArgumentError: If hashes are not distinct, or not ascending.
    """

    training: NDArray[np.uint64]
    validation: NDArray[np.uint64]
    test: NDArray[np.uint64]
    left_out: NDArray[np.uint64] = field(default_factory=_NONE.copy)

    def __post_init__(self) -> None:
        for name in get_args(Part):
            values = self._hashes(name)
            if values.dtype != np.uint64 or values.ndim != 1 or bool((values[1:] <= values[:-1]).any()):
                raise ArgumentError("SplitHashes", name, "be ascending hashes of 64 bits", str(values.dtype))

    @classmethod
    def from_parts(
        cls,
        training: NDArray[np.uint64],
        validation: NDArray[np.uint64],
        test: NDArray[np.uint64],
        start: SplitHashes | None = None,
        left_out: NDArray[np.uint64] = _NONE,
    ) -> SplitHashes:
        """From the hash of each graph of the parts, in any order.

        Args:
            training, validation, test (ndarray): Hash of each graph.
            start (SplitHashes, optional): Those of the model that was trained further: its training graphs are also
                those of this model.
            left_out (ndarray): Hash of each molecule that the training left out. (default: none)
        """
        if start is not None:
            training = np.concatenate([training, start.training])
        return cls(*map(np.unique, (training, validation, test, left_out)))

    def parts(self, hashes: NDArray[np.uint64]) -> tuple[Part | None, ...]:
        """The part of each graph; ``None`` if it is in none.

        A graph that equals graphs of several parts is in the first of training, validation, test and left-out: the
        model was trained on it.
        """
        found: list[Part | None] = [None] * len(hashes)
        for name in reversed(get_args(Part)):
            for row in np.flatnonzero(_are_in(hashes, self._hashes(name))).tolist():
                found[row] = name
        return tuple(found)

    def copies(self) -> dict[Part, int]:
        """Number of distinct validation graphs that are training graphs too, and of test graphs that are either."""
        seen = np.union1d(self.training, self.validation)
        return {
            "validation": int(np.isin(self.validation, self.training).sum()),
            "test": int(np.isin(self.test, seen).sum()),
        }

    def describe_copies(self) -> str:
        """A sentence on graphs that are in an earlier part too, for results by part; "" if there are none.

        They explain why a part has fewer graphs there than in the summary of the training.
        """
        sizes = self.counts()
        listed = [
            f"{count:,} of {sizes[part]:,} {part} graphs" for part, count in self.copies().items() if count
        ]
        if not listed:
            return ""
        verb, its = ("equals", "it counts") if sum(self.copies().values()) == 1 else ("equal", "they count")
        before = "a training graph" if not self.copies()["test"] else "a graph of an earlier part"
        return f"{' and '.join(listed)} {verb} {before} as the model reads them; {its} there only."

    def counts(self) -> dict[str, int]:
        """Number of distinct graphs of each part."""
        return {name: len(self._hashes(name)) for name in get_args(Part)}

    def to_tensors(self) -> dict[str, Tensor]:
        """The hashes by part, with the same 64 bits as signed integers; :meth:`from_tensors` is the inverse.

        A training that left no molecule out has no such part.
        """
        names = [name for name in get_args(Part) if name != "left-out" or len(self.left_out)]
        return {name: torch.from_numpy(self._hashes(name).view(np.int64).copy()) for name in names}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> SplitHashes:
        """Reads the result of :meth:`to_tensors`.

        Raises:
            ArgumentError: If a part is missing, or the hashes are not valid.
        """
        arrays = []
        for name in get_args(Part):
            values = tensors.get(name)
            if values is None and name == "left-out":
                continue
            if values is None or values.dtype != torch.int64 or values.dim() != 1:
                got = "none" if values is None else f"{values.dtype} {list(values.shape)}"
                raise ArgumentError("SplitHashes", name, "be one axis of 64-bit integers", got)
            arrays.append(values.numpy().view(np.uint64))
        return cls(*arrays)

    def _hashes(self, part: Part) -> NDArray[np.uint64]:
        return {
            "training": self.training,
            "validation": self.validation,
            "test": self.test,
            "left-out": self.left_out,
        }[part]


def _are_in(hashes: NDArray[np.uint64], ascending: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each hash is among ascending ones; each costs the logarithm of their number."""
    if not len(ascending):
        return np.zeros(len(hashes), dtype=bool)
    index = np.searchsorted(ascending, hashes).clip(max=len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[index] == hashes
    return found
