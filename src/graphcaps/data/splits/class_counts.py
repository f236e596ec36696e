"""Graphs of each class in each part of a split or in each fold: a small table, and the refusal of a missing class.

A part without one of the classes cannot be scored: its accuracy rewards predicting the classes that it has, and its
ROC-AUC is not defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.splits.folds import Folds, Split
from graphcaps.errors import ArgumentError

__all__ = ["ClassCounts", "class_indices", "count_classes", "count_fold_classes", "require_classes"]

_MAX_CLASSES = 10  # columns of the table
_MAX_NAME = 20  # characters of a class name in the table
_MAX_SHOWN = 3  # missing classes that a message names


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Graphs of each class in each part.

    Args:
        parts (tuple): Names of the parts, such as ``training`` or ``fold 1``.
        class_names (tuple): Names of the classes.
        counts (ndarray): Number of graphs, ``[P, C]``, or ``[R, P, C]`` for R repetitions of the split.
    """

    parts: tuple[str, ...]
    class_names: tuple[str, ...]
    counts: NDArray[np.int64]

    @classmethod
    def stack(cls, tables: Sequence[ClassCounts]) -> ClassCounts:
        """The counts of several splits into the same parts."""
        if len(tables) == 1:
            return tables[0]
        return cls(tables[0].parts, tables[0].class_names, np.stack([table.counts for table in tables]))

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Counts by part and class, JSON-safe; of one split."""
        rows = self.counts.tolist()
        return {
            part: dict(zip(self.class_names, row, strict=True))
            for part, row in zip(self.parts, rows, strict=True)
        }

    def missing(self) -> list[tuple[str, str]]:
        """Part and class of each class that occurs in some part and not in this one; of one split."""
        present = self.counts.any(0)
        rows, columns = np.nonzero((self.counts == 0) & present)
        return [
            (self.parts[row], self.class_names[column]) for row, column in zip(rows, columns, strict=True)
        ]

    def table(self) -> str:
        """A small table: a line per part, with the number of graphs and the graphs of each class.

        With more than ten classes, the smallest and the largest class stand for all. Over several splits, a range
        stands for different counts.
        """
        counts = self.counts if self.counts.ndim == 3 else self.counts[None]
        if len(self.class_names) <= _MAX_CLASSES:
            names = [name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…" for name in self.class_names]
            columns, values = names, counts
        else:
            columns = [f"smallest of {len(self.class_names)} classes", "largest"]
            values = np.stack([counts.min(-1), counts.max(-1)], -1)
        values = np.concatenate([counts.sum(-1, keepdims=True), values], -1)  # [R, P, columns]
        rows = [["", "graphs", *columns]]
        for index, part in enumerate(self.parts):
            ends = zip(values[:, index].min(0).tolist(), values[:, index].max(0).tolist(), strict=True)
            rows.append([part, *(f"{low:,}" if low == high else f"{low:,}–{high:,}" for low, high in ends)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in rows
        )
        return "\n".join(f"  {line}" for line in lines)


def class_indices(
    y: Tensor | NDArray[np.int64] | Sequence[int | str], class_names: Sequence[str] = ()
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Class of each graph as an index, ``[G]``, and the names of the classes.

    Args:
        y (Tensor or sequence): Class of each graph; indices into ``class_names`` if these are given.
        class_names (sequence): Names of the classes. (default: the values of ``y``)
    """
    values = np.asarray(y.cpu() if isinstance(y, Tensor) else y).reshape(-1)
    if len(class_names):
        return values.astype(np.int64), tuple(class_names)
    names, indices = np.unique(values, return_inverse=True)
    return indices.reshape(-1).astype(np.int64), tuple(map(str, names.tolist()))


def count_classes(split: Split, y: Tensor, class_names: Sequence[str] = ()) -> ClassCounts:
    """Class counts of a split; the validation set is left out if there is none."""
    parts = {"training": split.train, "validation": split.validation, "test": split.test}
    filled = {name: graphs for name, graphs in parts.items() if graphs is not None and graphs.numel()}
    return _count(filled, y, class_names)


def count_fold_classes(folds: Folds, y: Tensor, class_names: Sequence[str] = ()) -> ClassCounts:
    """Class counts of the test set of every fold."""
    tests = {f"fold {fold + 1}": folds.paper(fold).test for fold in range(folds.num_folds)}
    return _count(tests, y, class_names)


def _count(parts: Mapping[str, Tensor], y: Tensor, class_names: Sequence[str]) -> ClassCounts:
    classes, names = class_indices(y, class_names)
    labels = torch.from_numpy(classes)
    counts = [labels[graphs.cpu()].bincount(minlength=len(names)).numpy() for graphs in parts.values()]
    return ClassCounts(tuple(parts), names, np.stack(counts))


def require_classes(counts: ClassCounts, owner: str, argument: str, source: str, fix: str = "") -> None:
    """Refuses a split or folds of which a part lacks one of the classes.

    Args:
        counts (ClassCounts): Class counts of the parts.
        owner, argument (str): Owner and argument that the message names.
        source (str): What the parts come from, such as ``by scaffold, seed 0``.
        fix (str): The way out, as a sentence. (default: another seed, other fractions or plain folds)

    Raises:
        ArgumentError: If a part lacks a class that another part has.
    """
    missing = counts.missing()
    if not missing:
        return
    shown = [
        f"none of class '{name}' in {part if part.startswith('fold') else f'the {part} set'}"
        for part, name in missing[:_MAX_SHOWN]
    ]
    more = f", … ({len(missing)} in all)" if len(missing) > _MAX_SHOWN else ""
    raise ArgumentError(
        owner,
        argument,
        "give every part graphs of every class",
        f"{', '.join(shown)}{more} ({source})",
        fix or "Choose another seed (--seed), other fractions (--fractions) or plain folds.",
    )
