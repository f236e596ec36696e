"""Folds that keep graphs of one group together, such as copies of one graph, or molecules of one scaffold."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.errors import ArgumentError, DataError

__all__ = ["Folds", "Split", "group_folds", "label_checksum", "split_codes", "stratified_folds"]


_FORMAT = "graphcaps folds 1"


@dataclass(frozen=True, eq=False)
class Split:
    """Graphs to learn from, to choose by and to test on, ascending indices each.

    Args:
        train (Tensor): Graphs to learn from.
        validation (Tensor, optional): Graphs to choose the epoch by; ``None`` in the paper's protocol.
        test (Tensor): Graphs to test on.
        name (str): Where the parts come from, in words. (default: "given")
    """

    train: Tensor
    validation: Tensor | None
    test: Tensor
    name: str = "given"

    def __repr__(self) -> str:
        validation = "none" if self.validation is None else self.validation.numel()
        return f"Split(train={self.train.numel()}, validation={validation}, test={self.test.numel()})"


def split_codes(split: Split, graphs: int) -> Tensor:
    """0, 1 or 2 for a graph to learn from, to choose by or to test on, −1 for one in no part, ``[G]``."""
    numbers = torch.full((graphs,), -1)
    for number, part in enumerate((split.train, split.validation, split.test)):
        if part is None:
            continue
        if number != 1 and not part.numel():
            raise ArgumentError("split", "split", "have graphs to learn from and to test on", repr(split))
        if part.numel() and not 0 <= int(part.min()) <= int(part.max()) < graphs:
            raise ArgumentError("split", "split", f"name graphs from 0 to {graphs - 1}", int(part.max()))
        if (numbers[part] >= 0).any() or part.unique().numel() < part.numel():
            raise ArgumentError("split", "split", "name every graph once", "one twice")
        numbers[part] = number
    return numbers


@dataclass(frozen=True, eq=False)
class Folds:
    """A partition of G graphs into folds.

    Args:
        assignment (Tensor): Fold that tests each graph, ``[G]``.
        seed (int): Seed of the shuffle.
        num_folds (int): Number of folds.
        class_counts (tuple): Graphs of each class.
        checksum (str): SHA-256 of the classes, which folds of another data set do not share.
        notes (tuple): What a reader of results should know, one sentence each.
    """

    assignment: Tensor
    seed: int
    num_folds: int
    class_counts: tuple[int, ...]
    checksum: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.assignment.numel()

    def __repr__(self) -> str:
        return f"Folds(graphs={len(self)}, num_folds={self.num_folds}, seed={self.seed})"

    def paper(self, fold: int) -> Split:
        """The published protocol: all other folds train, fold ``fold`` tests."""
        self._check_fold("Folds.paper", fold)
        test = self.assignment == fold
        return Split(_where(~test), None, _where(test))

    def held_out(self, fold: int) -> Split:
        """The honest protocol: ``fold`` tests, the one before it (cyclically) chooses, the rest train."""
        self._check_fold("Folds.held_out", fold)
        if self.num_folds < 3:
            raise ArgumentError("Folds.held_out", "num_folds", "be at least 3", self.num_folds)
        test = self.assignment == fold
        validation = self.assignment == (fold - 1) % self.num_folds
        return Split(_where(~(test | validation)), _where(validation), _where(test))

    def _check_fold(self, owner: str, fold: int) -> None:
        if not 0 <= fold < self.num_folds:
            raise ArgumentError(owner, "fold", f"be from 0 to {self.num_folds - 1}", fold)

    def save(self, path: str | Path) -> None:
        """Writes the folds as JSON; the file appears whole or not at all."""
        values = {
            "format": _FORMAT,
            "seed": self.seed,
            "num_folds": self.num_folds,
            "graphs": len(self),
            "class_counts": list(self.class_counts),
            "y_sha256": self.checksum,
            "notes": list(self.notes),
            "assignment": self.assignment.tolist(),
        }
        _write(Path(path), json.dumps(values) + "\n")

    @classmethod
    def load(cls, path: str | Path, y: Tensor | None) -> Folds:
        """Reads folds and checks that they belong to graphs of the classes ``y`` (``None``: unchecked).

        Raises:
            DataError: If the file is missing, is no folds file, or belongs to other graphs.
        """
        path = Path(path)
        values = _read(path)
        assignment = torch.tensor(values["assignment"], dtype=torch.long)
        folds = cls(
            assignment,
            values["seed"],
            values["num_folds"],
            tuple(values["class_counts"]),
            values["y_sha256"],
            tuple(values["notes"]),
        )
        if y is not None:
            if y.numel() != len(folds):
                raise DataError(path.name, f"folds of {y.numel()} graphs", f"folds of {len(folds)}")
            if label_checksum(y) != folds.checksum:
                raise DataError(path.name, "folds of these graphs", "folds of graphs with other classes")
        return folds


def stratified_folds(
    y: Tensor | None,
    num_folds: int = 10,
    seed: int = 12345,
    *,
    class_names: Sequence[str] = (),
    groups: Sequence[int | str] | np.ndarray | Tensor | None = None,
) -> Folds:
    """Folds with the classes in equal parts, shuffled by ``seed``.

    They are those of scikit-learn's ``StratifiedKFold(num_folds, shuffle=True, random_state=seed)``; the
    defaults are the folds of the published figures. A class with fewer graphs than folds is missing from the
    test part of some folds, which ``notes`` then says.

    Args:
        y (Tensor): Class of each graph from 0 on, ``[G]``.
        num_folds (int): Number of folds, at least 2. (default: 10)
        seed (int): Seed of the shuffle, from 0 to 2³² − 1. (default: 12345)
        class_names (tuple): What the classes are called in messages. (default: their numbers)
        groups (sequence, optional): Group of each graph; graphs of one group, such as copies, stay in one fold, see
            :func:`graphcaps.data.splits.folds.group_folds`.
    """
    owner = "stratified_folds"
    if groups is not None:
        return group_folds(y, groups, num_folds, seed, class_names=class_names)
    if y is None:
        raise ArgumentError(owner, "y", "give the class of each graph", "none", "Folds need labelled graphs.")
    if type(num_folds) is not int or num_folds < 2:
        raise ArgumentError(owner, "num_folds", "be a whole number from 2 on", num_folds)
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ArgumentError(owner, "seed", "be a whole number from 0 to 2³² − 1", seed)
    classes = _classes(y)
    if len(classes) < num_folds:
        raise ArgumentError(owner, "y", f"hold at least {num_folds} graphs for as many folds", len(classes))
    if classes.min() < 0:
        graph = int(np.flatnonzero(classes < 0)[0])
        raise ArgumentError(owner, "y", "hold classes from 0 on", f"{classes[graph]} for graph {graph}")
    counts = np.bincount(classes)
    if (counts > 0).sum() < 2:
        raise ArgumentError(
            owner, "y", "hold at least two classes", f"class {_name(int(classes[0]), class_names)} alone"
        )
    if counts.max() < num_folds:
        raise ArgumentError(
            owner,
            "num_folds",
            "be no more than the graphs of the largest class",
            f"{num_folds} folds for {counts.max()} graphs",
            f"Use {counts.max()} folds or fewer." if counts.max() > 1 else "",
        )

    from sklearn.model_selection import StratifiedKFold  # a second to import, and needed only here

    assignment = np.empty(len(classes), dtype=np.int64)
    with warnings.catch_warnings():
        # Its only warning is about small classes, which the notes tell by name.
        warnings.simplefilter("ignore", UserWarning)
        parts = StratifiedKFold(num_folds, shuffle=True, random_state=seed).split(classes, classes)
        for fold, (_, test) in enumerate(parts):
            assignment[test] = fold
    notes = []
    for label in np.flatnonzero((counts > 0) & (counts < num_folds)):
        size = int(counts[label])
        graphs = "1 graph" if size == 1 else f"{size} graphs"
        name = _name(int(label), class_names)
        notes.append(f"Class {name} has {graphs} for {num_folds} folds and is missing from some.")
    return Folds(
        torch.from_numpy(assignment),
        seed,
        num_folds,
        tuple(counts.tolist()),
        _checksum(classes),
        tuple(notes),
    )


def _name(label: int, names: Sequence[str]) -> str:
    """A class as people call it: its own name in quotes, or its number."""
    return f"'{names[label]}'" if names else str(label)


def _where(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(-1)


def _classes(y: Tensor) -> np.ndarray:
    return torch.as_tensor(y).detach().cpu().long().reshape(-1).numpy()


def label_checksum(y: Tensor) -> str:
    """SHA-256 of the class of each graph, in order."""
    return _checksum(_classes(y))


def _checksum(classes: np.ndarray) -> str:
    return hashlib.sha256(classes.astype("<i8").tobytes()).hexdigest()


def _write(path: Path, text: str) -> None:
    """Writes beside ``path`` and renames, so that a reader finds the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """The entries of a folds file, each of the type and range that it should have."""
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(path.name, "a file that can be read", error.strerror or "none") from error
    except ValueError as error:
        raise DataError(path.name, "folds written by graphcaps", "no JSON") from error
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        raise DataError(path.name, f"a file that names its format {_FORMAT!r}", "none")
    for key in ("seed", "num_folds", "graphs"):
        if type(values.get(key)) is not int:
            raise DataError(path.name, f"a whole number under {key!r}", repr(values.get(key)))
    for key, kind in (("assignment", int), ("class_counts", int), ("notes", str)):
        entry = values.get(key)
        if not isinstance(entry, list) or not all(type(item) is kind for item in entry):
            raise DataError(
                path.name, f"a list of {'numbers' if kind is int else 'sentences'} under {key!r}", "none"
            )
    if not isinstance(values.get("y_sha256"), str):
        raise DataError(path.name, "a checksum under 'y_sha256'", repr(values.get("y_sha256")))
    if len(values["assignment"]) != values["graphs"]:
        raise DataError(path.name, f"a fold for each of {values['graphs']} graphs", len(values["assignment"]))
    for fold in values["assignment"]:
        if not 0 <= fold < values["num_folds"]:
            raise DataError(path.name, f"folds from 0 to {values['num_folds'] - 1}", fold)
    return values


def group_folds(
    y: Tensor | None,
    groups: Sequence[int | str] | np.ndarray | Tensor,
    num_folds: int = 10,
    seed: int = 12345,
    *,
    class_names: Sequence[str] = (),
) -> Folds:
    """Folds with the classes in parts as equal as the groups allow; no group stands in two folds.

    Groups of two and more are dealt out first, the largest first, each to the fold that has the fewest graphs of
    its classes so far; the other graphs then fill the folds up, class by class. The seed shuffles groups of equal
    size, and the graphs that stand alone. Where no group has two members, the folds are those of
    :func:`graphcaps.data.stratified_folds`.

    Args:
        y (Tensor): Class of each graph from 0 on, ``[G]``.
        groups (sequence): Group of each graph, ``[G]``, such as ``find_duplicates(store).group_ids()``.
        num_folds (int): Number of folds, at least 2. (default: 10)
        seed (int): Seed of the shuffle. (default: 12345)
        class_names (sequence): What the classes are called in messages.

    Raises:
        ArgumentError: If the groups are not one per graph, or too few or too large to fill the folds.
    """
    owner = "group_folds"
    plain = stratified_folds(y, num_folds, seed, class_names=class_names)  # with its checks and its notes
    names = groups.tolist() if isinstance(groups, Tensor | np.ndarray) else list(groups)
    if len(names) != len(plain):
        raise ArgumentError(owner, "groups", f"give one group per graph, {len(plain)}", len(names))
    # Known by their first graph: folds do not depend on what the groups are called.
    first: dict[str, int] = {}
    numbers = [str(first.setdefault(str(name), len(first))) for name in names]
    ids = np.unique(np.array(numbers), return_inverse=True)[1].reshape(-1)
    counts = np.bincount(ids)
    if counts.max() == 1:
        return plain
    if len(counts) < num_folds:
        raise ArgumentError(owner, "groups", f"be at least {num_folds}, one per fold", len(counts))

    assert y is not None
    classes = torch.as_tensor(y).cpu().long().reshape(-1).numpy()
    assignment = _deal(classes, ids, num_folds, np.random.default_rng(seed))
    sizes = np.bincount(assignment, minlength=num_folds)
    if sizes.min() == 0:
        found = f"{len(counts)} groups, the largest with {counts.max()} of {len(plain)} graphs"
        raise ArgumentError(owner, "groups", f"be small enough to fill {num_folds} folds", found)
    shared, members = int((counts > 1).sum()), int(counts[counts > 1].sum())
    note = (
        f"Folds keep groups together: {len(counts):,} groups, {shared:,} of them with several graphs "
        f"({members:,} in all); folds have {sizes.min():,} to {sizes.max():,} graphs."
    )
    return Folds(
        torch.from_numpy(assignment),
        seed,
        num_folds,
        plain.class_counts,
        plain.checksum,
        (*plain.notes, note),
    )


def _deal(
    classes: NDArray[np.int64], ids: NDArray[np.int64], num_folds: int, draw: np.random.Generator
) -> NDArray[np.int64]:
    """Fold of each graph."""
    num_classes = int(classes.max()) + 1
    total = np.maximum(np.bincount(classes, minlength=num_classes), 1)
    counts = np.zeros((num_folds, num_classes), np.int64)  # graphs of each class in each fold so far
    assignment = np.full(len(classes), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)
    several = [group for group in groups if len(group) > 1]
    several = [several[place] for place in draw.permutation(len(several))]
    for group in sorted(several, key=len, reverse=True):
        own = np.bincount(classes[group], minlength=num_classes)
        share = own / total**2
        best = np.lexsort((counts.sum(1), counts @ share))[0]  # of equal ones the smaller fold
        assignment[group] = best
        counts[best] += own
    alone = np.concatenate([group for group in groups if len(group) == 1] or [np.zeros(0, np.int64)])
    for graph in draw.permutation(alone):
        of = classes[graph]
        best = np.lexsort((counts.sum(1), counts[:, of]))[0]
        assignment[graph] = best
        counts[best, of] += 1
    return assignment
