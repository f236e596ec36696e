"""Training, validation and test sets: single splits, stratified folds, and folds that keep groups together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.errors import ArgumentError

__all__ = [
    "Folds",
    "Split",
    "group_folds",
    "label_checksum",
    "set_of",
    "split_codes",
    "split_from_names",
    "stratified_folds",
]


# Accepted spellings of the three sets of a split.
_SPELLINGS = {
    "train": ("train", "training", "tr"),
    "validation": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing", "te", "holdout", "hold-out"),
}


# ---------------------------------------------------------------------- one split
@dataclass(frozen=True, eq=False)
class Split:
    """A training, a validation and a test set, as ascending graph indices.

    Args:
        train (Tensor): Training graphs.
        validation (Tensor, optional): Validation graphs, which choose the epoch; ``None`` in the paper's protocol.
        test (Tensor): Test graphs.
        name (str): Where the split comes from. (default: "given")
        seed (int, optional): Seed of a random split; ``None`` for one that was given.
    """

    train: Tensor
    validation: Tensor | None
    test: Tensor
    name: str = "given"
    seed: int | None = None

    @property
    def title(self) -> str:
        """Name and seed in words, for messages."""
        return self.name if self.seed is None else f"{self.name}, seed {self.seed}"

    def __repr__(self) -> str:
        validation = "none" if self.validation is None else self.validation.numel()
        return f"Split(train={self.train.numel()}, validation={validation}, test={self.test.numel()})"


def split_codes(split: Split, num_graphs: int) -> Tensor:
    """Code of each graph's set: 0 training, 1 validation, 2 test, −1 none, ``[num_graphs]``.

    Raises:
        ArgumentError: If the training or test set is empty, or the sets overlap or have indices out of range.
    """
    codes = torch.full((num_graphs,), -1)
    for code, indices in enumerate((split.train, split.validation, split.test)):
        if indices is None:
            continue
        if code != 1 and not indices.numel():
            raise ArgumentError("split", "split", "have training and test graphs", repr(split))
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < num_graphs:
            raise ArgumentError(
                "split", "split", f"have graph indices from 0 to {num_graphs - 1}", int(indices.max())
            )
        if (codes[indices] >= 0).any() or indices.unique().numel() < indices.numel():
            raise ArgumentError("split", "split", "have every graph at most once", "a repeated graph")
        codes[indices] = code
    return codes


def set_of(name: str) -> str | None:
    """The set that a name stands for, ``"train"``, ``"validation"`` or ``"test"``; ``None`` for any other name."""
    spelling = name.strip().lower()
    return next((key for key, spellings in _SPELLINGS.items() if spelling in spellings), None)


def split_from_names(names: Sequence[str]) -> Split:
    """Training, validation and test set from one name per graph.

    Case is ignored. Accepted spellings are train, training or tr; valid, validation, val or dev; and test,
    testing, te, holdout or hold-out. Without a validation graph, ``validation`` is ``None``.

    Args:
        names (sequence): Name of the set that each graph belongs to.

    Raises:
        ArgumentError: If a name is unknown, or no graph is in the training set or in the test set.
    """
    owner = "split_from_names"
    members: dict[str, list[int]] = {key: [] for key in _SPELLINGS}
    for graph, name in enumerate(names):
        key = set_of(name)
        if key is None:
            expected = "be train, valid or test for each graph"
            raise ArgumentError(owner, "names", expected, f"'{name}' for graph {graph}")
        members[key].append(graph)
    for key in ("train", "test"):
        if not members[key]:
            raise ArgumentError(owner, "names", f"assign at least one graph to {key}", "none")
    indices = {key: torch.tensor(graphs, dtype=torch.long) for key, graphs in members.items()}
    return Split(indices["train"], indices["validation"] if members["validation"] else None, indices["test"])


# ---------------------------------------------------------------------- folds
@dataclass(frozen=True, eq=False)
class Folds:
    """A partition of G graphs into folds.

    Args:
        assignment (Tensor): Fold in which each graph is a test graph, ``[G]``.
        seed (int): Seed of the shuffle.
        num_folds (int): Number of folds.
        class_counts (tuple): Number of graphs of each class.
        checksum (str): SHA-256 of the class of each graph; folds of another data set have another.
        notes (tuple): Remarks to show with the results, one sentence each.
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
        """Split of the published protocol: ``fold`` is the test set, all other folds are the training set."""
        self._check_fold("Folds.paper", fold)
        test = self.assignment == fold
        return Split(_indices(~test), None, _indices(test))

    def held_out(self, fold: int) -> Split:
        """Split of the held-out protocol: ``fold`` is the test set, the fold before it (cyclically) validation."""
        self._check_fold("Folds.held_out", fold)
        if self.num_folds < 3:
            raise ArgumentError("Folds.held_out", "num_folds", "be at least 3", self.num_folds)
        test = self.assignment == fold
        validation = self.assignment == (fold - 1) % self.num_folds
        return Split(_indices(~(test | validation)), _indices(validation), _indices(test))

    def _check_fold(self, owner: str, fold: int) -> None:
        if not 0 <= fold < self.num_folds:
            raise ArgumentError(owner, "fold", f"be from 0 to {self.num_folds - 1}", fold)


def stratified_folds(
    y: Tensor | NDArray[np.generic] | Sequence[int | str] | None,
    num_folds: int = 10,
    seed: int = 12345,
    *,
    class_names: Sequence[str] = (),
    groups: Sequence[int | str] | np.ndarray | Tensor | None = None,
) -> Folds:
    """Folds with the class proportions of the whole set, shuffled by ``seed``.

    They equal scikit-learn's ``StratifiedKFold(num_folds, shuffle=True, random_state=seed)``; the defaults are the
    folds of the published results. A class with fewer graphs than folds is missing from some test sets, which
    ``notes`` then states.

    Args:
        y (Tensor or sequence): Class index or class name of each graph, ``[G]``.
        num_folds (int): Number of folds, at least 2. (default: 10)
        seed (int): Seed of the shuffle, from 0 to 2³² − 1. (default: 12345)
        class_names (sequence): Names of the class indices for messages. (default: the indices)
        groups (sequence, optional): Group of each graph. Graphs of one group, such as duplicates, stay in one fold;
            see :func:`group_folds`.

    Raises:
        ArgumentError: If ``y`` is missing or not one class per graph, has fewer than two classes, or has too few graphs
            for the folds.
    """
    owner = "stratified_folds"
    if groups is not None:
        return group_folds(y, groups, num_folds, seed, class_names=class_names)
    if y is None:
        raise ArgumentError(owner, "y", "hold the class of each graph", "none", "Folds need class labels.")
    if type(num_folds) is not int or num_folds < 2:
        raise ArgumentError(owner, "num_folds", "be an integer of at least 2", num_folds)
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ArgumentError(owner, "seed", "be an integer from 0 to 2³² − 1", seed)
    y, class_names = _encode_names(y, class_names, owner)
    classes = _as_numpy(y)
    if len(classes) < num_folds:
        raise ArgumentError(owner, "y", f"hold at least {num_folds} graphs for as many folds", len(classes))
    if classes.min() < 0:
        graph = int(np.flatnonzero(classes < 0)[0])
        raise ArgumentError(owner, "y", "hold class indices from 0", f"{classes[graph]} for graph {graph}")
    counts = np.bincount(classes)
    if (counts > 0).sum() < 2:
        got = f"only class {_class_name(int(classes[0]), class_names)}"
        raise ArgumentError(owner, "y", "hold at least two classes", got)
    if counts.max() < num_folds:
        raise ArgumentError(
            owner,
            "num_folds",
            "be at most the number of graphs of the largest class",
            f"{num_folds} folds for {counts.max()} graphs",
            f"Use {counts.max()} folds or fewer." if counts.max() > 1 else "",
        )

    assignment = _deal_classes(classes, num_folds, seed)
    notes = []
    for label in np.flatnonzero((counts > 0) & (counts < num_folds)):
        size = int(counts[label])
        graphs = "1 graph" if size == 1 else f"{size} graphs"
        name = _class_name(int(label), class_names)
        notes.append(f"Class {name} has {graphs} for {num_folds} folds and is missing from some.")
    return Folds(
        torch.from_numpy(assignment),
        seed,
        num_folds,
        tuple(counts.tolist()),
        label_checksum(y),
        tuple(notes),
    )


def _deal_classes(classes: NDArray[np.int64], num_folds: int, seed: int) -> NDArray[np.int64]:
    """Fold of each graph as scikit-learn's shuffled ``StratifiedKFold`` gives it, whose import takes a second.

    The graphs are sorted by class, classes in the order of their first graphs, and dealt out to the folds in turn; that
    fixes how many graphs of a class each fold has. Which ones is a shuffle, one per class.
    """
    _, first, codes = np.unique(classes, return_index=True, return_inverse=True)
    dealt = np.arange(len(classes)) % num_folds
    random = np.random.RandomState(seed)
    assignment, start = np.empty_like(classes), 0
    for label in np.argsort(first):
        members = np.flatnonzero(codes == label)
        folds = np.sort(dealt[start : start + len(members)])
        random.shuffle(folds)
        assignment[members] = folds
        start += len(members)
    return assignment


def group_folds(
    y: Tensor | NDArray[np.generic] | Sequence[int | str] | None,
    groups: Sequence[int | str] | np.ndarray | Tensor,
    num_folds: int = 10,
    seed: int = 12345,
    *,
    class_names: Sequence[str] = (),
) -> Folds:
    """Folds in which no group is split, with class proportions as equal as the groups allow.

    Groups of two or more graphs are assigned first, the largest first, each to the fold with the fewest graphs of
    its classes so far. Single graphs then fill the folds, class by class. The seed shuffles groups of equal size and
    the single graphs. If no group has two graphs, the folds are those of :func:`stratified_folds`.

    Args:
        y (Tensor or sequence): Class index or class name of each graph, ``[G]``.
        groups (sequence): Group of each graph, ``[G]``, such as ``find_duplicates(store).group_ids()``.
        num_folds (int): Number of folds, at least 2. (default: 10)
        seed (int): Seed of the shuffle. (default: 12345)
        class_names (sequence): Names of the classes for messages.

    Raises:
        ArgumentError: If there is not one group per graph, or the groups are too few or too large for the folds.
    """
    owner = "group_folds"
    ungrouped = stratified_folds(y, num_folds, seed, class_names=class_names)  # also checks the arguments
    names = groups.tolist() if isinstance(groups, Tensor | np.ndarray) else list(groups)
    if len(names) != len(ungrouped):
        raise ArgumentError(owner, "groups", f"hold one group per graph, {len(ungrouped)}", len(names))
    # Groups are numbered by their first graph, so that folds do not depend on the names of the groups.
    numbers: dict[str, int] = {}
    numbered = [str(numbers.setdefault(str(name), len(numbers))) for name in names]
    ids = np.unique(np.array(numbered), return_inverse=True)[1].reshape(-1)
    counts = np.bincount(ids)
    if counts.max() == 1:
        return ungrouped
    if len(counts) < num_folds:
        raise ArgumentError(owner, "groups", f"be at least {num_folds}, one per fold", len(counts))

    assert y is not None
    classes = _as_numpy(_encode_names(y, class_names, owner)[0])
    assignment = _assign_groups(classes, ids, num_folds, np.random.default_rng(seed))
    sizes = np.bincount(assignment, minlength=num_folds)
    if sizes.min() == 0:
        got = f"{len(counts)} groups, the largest with {counts.max()} of {len(ungrouped)} graphs"
        raise ArgumentError(owner, "groups", f"be small enough to fill {num_folds} folds", got)
    shared, members = int((counts > 1).sum()), int(counts[counts > 1].sum())
    note = (
        f"Folds keep groups together: {len(counts):,} groups, {shared:,} of them with several graphs "
        f"({members:,} in all); folds have {sizes.min():,} to {sizes.max():,} graphs."
    )
    return Folds(
        torch.from_numpy(assignment),
        seed,
        num_folds,
        ungrouped.class_counts,
        ungrouped.checksum,
        (*ungrouped.notes, note),
    )


def _assign_groups(
    classes: NDArray[np.int64], ids: NDArray[np.int64], num_folds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Fold of each graph, ``[G]``, for the group ``ids [G]``; see :func:`group_folds`."""
    num_classes = int(classes.max()) + 1
    total = np.maximum(np.bincount(classes, minlength=num_classes), 1)
    counts = np.zeros((num_folds, num_classes), np.int64)  # graphs of each class in each fold so far
    assignment = np.full(len(classes), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)
    shared = [group for group in groups if len(group) > 1]
    shared = [shared[index] for index in rng.permutation(len(shared))]
    for group in sorted(shared, key=len, reverse=True):
        class_counts = np.bincount(classes[group], minlength=num_classes)
        weights = class_counts / total**2
        best = np.lexsort((counts.sum(1), counts @ weights))[0]  # ties go to the smaller fold
        assignment[group] = best
        counts[best] += class_counts
    single = np.concatenate([group for group in groups if len(group) == 1] or [np.zeros(0, np.int64)])
    for graph in rng.permutation(single):
        label = classes[graph]
        best = np.lexsort((counts.sum(1), counts[:, label]))[0]
        assignment[graph] = best
        counts[best, label] += 1
    return assignment


def label_checksum(y: Tensor) -> str:
    """SHA-256 of the class index of each graph, in order."""
    return hashlib.sha256(_as_numpy(y).astype("<i8").tobytes()).hexdigest()


def _as_numpy(y: Tensor) -> NDArray[np.int64]:
    return torch.as_tensor(y).detach().cpu().long().reshape(-1).numpy()


def _encode_names(
    y: Tensor | NDArray[np.generic] | Sequence[int | str], class_names: Sequence[str], owner: str
) -> tuple[Tensor, Sequence[str]]:
    """Class indices and the names of the classes; class names in ``y`` get indices in ascending order.

    Raises:
        ArgumentError: If ``y`` does not hold one class index or class name per graph.
    """
    if isinstance(y, Tensor):
        return y, class_names
    values = np.asarray(y)
    whole = values.dtype.kind in "iub" or (values.dtype.kind == "f" and bool((values % 1 == 0).all()))
    is_text = values.dtype.kind == "U" or all(isinstance(value, str) for value in values.flat)
    if values.ndim != 1 or not (whole or is_text):
        got = f"{y!r:.60}" if values.ndim == 0 else f"{values.dtype} {list(values.shape)}"
        raise ArgumentError(owner, "y", "hold the class index or class name of each graph", got)
    if whole:
        return torch.from_numpy(values.astype(np.int64)), class_names
    names, indices = np.unique(values.astype(str), return_inverse=True)
    return torch.from_numpy(indices.reshape(-1).astype(np.int64)), tuple(names.tolist())


def _class_name(label: int, names: Sequence[str]) -> str:
    """Name of a class in quotes, or its index."""
    return f"'{names[label]}'" if names else str(label)


def _indices(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(-1)
