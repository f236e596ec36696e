"""Folds: equal to those of scikit-learn, in both protocols."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold

from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality.duplicates import fold_leakage
from graphcaps.data.splits.folds import group_folds, split_from_names, stratified_folds
from graphcaps.errors import ArgumentError


@pytest.fixture
def y() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).choice(3, 120, p=[0.5, 0.3, 0.2]))


@pytest.mark.parametrize(("num_folds", "seed"), [(10, 12345), (5, 0), (2, 7)])
def test_folds_are_those_of_scikit_learn(y: torch.Tensor, num_folds: int, seed: int) -> None:
    folds = stratified_folds(y, num_folds, seed)
    reference = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
    for fold, (train, test) in enumerate(reference.split(np.zeros(len(y)), y.numpy())):
        split = folds.paper(fold)
        assert split.train.tolist() == train.tolist()
        assert split.test.tolist() == test.tolist()
        assert split.validation is None
    assert folds.class_counts == tuple(torch.bincount(y).tolist())
    assert folds.notes == ()


@pytest.mark.filterwarnings("ignore:The least populated class")
@given(
    classes=st.lists(st.integers(0, 4), min_size=12, max_size=60),
    num_folds=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_folds_of_any_classes_are_those_of_scikit_learn(
    classes: list[int], num_folds: int, seed: int
) -> None:
    counts = np.bincount(classes)
    assume(counts.max() >= num_folds and (counts > 0).sum() > 1)
    reference = StratifiedKFold(num_folds, shuffle=True, random_state=seed)
    assignment = np.empty(len(classes), dtype=np.int64)
    for fold, (_, test) in enumerate(reference.split(classes, classes)):
        assignment[test] = fold
    assert stratified_folds(torch.tensor(classes), num_folds, seed).assignment.tolist() == assignment.tolist()


def test_defaults_are_the_published_folds(y: torch.Tensor) -> None:
    folds = stratified_folds(y)
    assert (folds.num_folds, folds.seed) == (10, 12345)
    assert torch.equal(folds.assignment, stratified_folds(y, 10, 12345).assignment)
    assert not torch.equal(folds.assignment, stratified_folds(y, 10, 0).assignment)


@given(num_folds=st.integers(3, 8), counts=st.lists(st.integers(1, 30), min_size=2, max_size=4))
def test_held_out_splits_are_partitions(num_folds: int, counts: list[int]) -> None:
    counts[0] += num_folds
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    folds = stratified_folds(y, num_folds, 1)
    tested = []
    for fold in range(num_folds):
        split = folds.held_out(fold)
        assert split.validation is not None
        assert split.validation.tolist() == folds.paper((fold - 1) % num_folds).test.tolist()
        assert split.test.tolist() == folds.paper(fold).test.tolist()
        together = torch.cat([split.train, split.validation, split.test])
        assert sorted(together.tolist()) == list(range(len(y)))
        tested += split.test.tolist()
    assert sorted(tested) == list(range(len(y)))
    small = [label for label, count in enumerate(counts) if count < num_folds]
    assert len(folds.notes) == len(small)
    for label, note in zip(small, folds.notes, strict=True):
        assert note.startswith(f"Class {label} has {counts[label]} graph")


def test_a_small_class_is_allowed_and_noted(y: torch.Tensor) -> None:
    folds = stratified_folds(torch.cat([y, torch.tensor([3, 3])]))
    assert folds.notes == ("Class 3 has 2 graphs for 10 folds and is missing from some.",)


def test_the_first_fold_is_validated_on_the_last(y: torch.Tensor) -> None:
    folds = stratified_folds(y)
    assert folds.held_out(0).validation.tolist() == folds.paper(9).test.tolist()  # type: ignore[union-attr]
    assert repr(folds) == "Folds(graphs=120, num_folds=10, seed=12345)"
    assert repr(folds.paper(0)) == "Split(train=108, validation=none, test=12)"


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("classes", "arguments", "text"),
    [
        (None, {}, r"'y' must hold the class of each graph, got none\. Folds need class labels"),
        ([0, 1, 0], {}, r"'y' must hold at least 10 graphs for as many folds, got 3\."),
        ([1] * 20, {}, r"'y' must hold at least two classes, got only class 1\."),
        (
            [0, 1] * 8,
            {},
            r"at most the number of graphs of the largest class, got 10 folds for 8 graphs\. Use 8",
        ),
        ([0, 1, -1] * 8, {}, r"'y' must hold class indices from 0, got -1 for graph 2\."),
        ([0, 1] * 8, {"num_folds": 1}, r"'num_folds' must be an integer of at least 2, got 1\."),
        ([0, 1] * 8, {"seed": -1}, r"'seed' must be an integer from 0 to 2³² − 1, got -1\."),
    ],
)
def test_labels_that_allow_no_folds_are_refused(
    classes: list[int] | None, arguments: dict[str, int], text: str
) -> None:
    with pytest.raises(ArgumentError, match=text):
        stratified_folds(None if classes is None else torch.tensor(classes), **arguments)


def test_fold_out_of_range_is_refused(y: torch.Tensor) -> None:
    folds = stratified_folds(y, 2)
    with pytest.raises(ArgumentError, match=r"'fold' must be from 0 to 1, got 2\."):
        folds.paper(2)
    with pytest.raises(ArgumentError, match=r"'num_folds' must be at least 3, got 2\."):
        folds.held_out(0)


# ---------------------------------------------------------------------- groups
def test_folds_keep_groups_together_and_are_stratified():
    store = load_dataset("planted-parts")
    ids = np.arange(len(store)) // 3
    folds = stratified_folds(store.y, groups=ids)
    for group in range(len(store) // 3):
        assert len(set(folds.assignment[ids == group].tolist())) == 1
    assert fold_leakage(folds, ids) == (0.0,) * 10
    sizes = torch.bincount(folds.assignment, minlength=10)
    assert (int(sizes.min()), int(sizes.max())) == (36, 36)
    assert folds.notes[-1] == (
        "Folds keep groups together: 120 groups, 120 of them with several graphs (360 in all); "
        "folds have 36 to 36 graphs."
    )
    again = group_folds(store.y, [f"g{1000 - i}" for i in ids])
    assert torch.equal(again.assignment, folds.assignment)  # names of groups do not matter
    assert torch.equal(stratified_folds(store.y, groups=ids).assignment, folds.assignment)
    other = stratified_folds(store.y, groups=ids, seed=1)
    assert not torch.equal(other.assignment, folds.assignment)
    assert folds.held_out(3).test.numel() == 36


def test_groups_of_one_graph_give_stratified_folds():
    store = load_dataset("planted-parts")
    plain, grouped = stratified_folds(store.y), stratified_folds(store.y, groups=range(len(store)))
    assert torch.equal(plain.assignment, grouped.assignment)
    assert plain.notes == grouped.notes


def test_invalid_groups_are_refused():
    y = torch.tensor([0, 1] * 20)
    with pytest.raises(ArgumentError, match="'groups' must hold one group per graph, 40, got 3"):
        stratified_folds(y, groups=[1, 2, 3])
    with pytest.raises(ArgumentError, match="'groups' must be at least 10, one per fold, got 2"):
        stratified_folds(y, groups=[0, 1] * 20)


# ---------------------------------------------------------------------- splits by name
def test_split_from_names():
    split = split_from_names(["Train", "val", "TEST", "training", "dev"])
    assert (split.train.tolist(), split.validation.tolist(), split.test.tolist()) == ([0, 3], [1, 4], [2])
    assert split_from_names(["train", "test"]).validation is None
    assert split_from_names(["test", "train"]).train.dtype == torch.long
    with pytest.raises(ArgumentError, match="train, valid or test for each graph, got 'x' for graph 1"):
        split_from_names(["train", "x"])
    with pytest.raises(ArgumentError, match="at least one graph to test"):
        split_from_names(["train", "val"])


def test_classes_may_be_names():
    names = ["b"] * 6 + ["a"] * 5 + ["c"]
    indices = torch.tensor([1] * 6 + [0] * 5 + [2])
    folds, by_index = stratified_folds(names, 3), stratified_folds(indices, 3, class_names=("a", "b", "c"))
    assert torch.equal(folds.assignment, by_index.assignment)
    assert folds.notes == by_index.notes == ("Class 'c' has 1 graph for 3 folds and is missing from some.",)
    assert folds.checksum == by_index.checksum
    groups = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert torch.equal(
        stratified_folds(names, 3, groups=groups).assignment,
        stratified_folds(indices, 3, groups=groups).assignment,
    )


@pytest.mark.parametrize("y", ["a", 3, [[0, 1]], [0.5, 1.0], [None, "a"]])
def test_other_values_are_no_classes(y):
    with pytest.raises(ArgumentError, match="'y' must hold the class index or class name of each graph"):
        stratified_folds(y, 2)
