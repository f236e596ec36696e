"""Class counts of splits and folds: the table and the refusal."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps.data.splits.class_counts import (
    ClassCounts,
    count_classes,
    count_fold_classes,
    require_classes,
)
from graphcaps.data.splits.folds import Folds, Split
from graphcaps.errors import ArgumentError

Y = torch.tensor([0, 0, 0, 1, 1, 0, 1, 1])
SPLIT = Split(torch.tensor([0, 1, 3, 4]), torch.tensor([2, 6]), torch.tensor([5, 7]))


def test_the_table_of_a_split():
    counts = count_classes(SPLIT, Y, ("no", "a class with a very long name"))
    assert counts.table() == (
        "              graphs  no  a class with a very …\n"
        "  training         4   2                      2\n"
        "  validation       2   1                      1\n"
        "  test             2   1                      1"
    )
    assert counts.as_dict()["validation"] == {"no": 1, "a class with a very long name": 1}
    empty = Split(SPLIT.train, torch.empty(0, dtype=torch.long), SPLIT.test)
    assert count_classes(empty, Y).parts == ("training", "test")


def test_several_splits_have_ranges():
    one = ClassCounts(("training", "test"), ("a", "b"), np.array([[1000, 5], [4, 2]]))
    two = ClassCounts(("training", "test"), ("a", "b"), np.array([[1002, 5], [3, 2]]))
    assert ClassCounts.stack([one, two]).table() == (
        "                 graphs            a  b\n"
        "  training  1,005–1,007  1,000–1,002  5\n"
        "  test              5–6          3–4  2"
    )
    assert ClassCounts.stack([one]) is one


def test_many_classes_are_summarised():
    counts = ClassCounts(("training",), tuple(map(str, range(11))), np.arange(11)[None])
    assert counts.table().splitlines() == [
        "            graphs  smallest of 11 classes  largest",
        "  training      55                       0       10",
    ]


def test_a_missing_class_is_refused_with_the_way_out():
    one_class = Split(SPLIT.train, SPLIT.validation, torch.tensor([7]), "by scaffold", 0)
    counts = count_classes(one_class, Y, ("no", "yes"))
    with pytest.raises(ArgumentError) as caught:
        require_classes(counts, "train", "split", one_class.title)
    assert str(caught.value) == (
        "train: 'split' must give every part graphs of every class, got none of class 'no' in the test set "
        "(by scaffold, seed 0). Choose another seed (--seed), other fractions (--fractions) or plain folds."
    )
    # A class that is nowhere is not missed.
    require_classes(count_classes(SPLIT, Y, ("no", "yes", "never")), "train", "split", "given")


def test_a_fold_without_a_class_is_refused():
    folds = Folds(torch.tensor([0, 0, 1, 1, 2, 2, 2, 2]), 0, 3, (4, 4), "")
    counts = count_fold_classes(folds, Y)
    assert counts.counts.tolist() == [[2, 0], [1, 1], [1, 3]]
    with pytest.raises(ArgumentError, match=r"none of class '1' in fold 1 \(scaffolds\)\. Use fewer folds\."):
        require_classes(counts, "cross_validate", "groups", "scaffolds", "Use fewer folds.")


def test_only_some_gaps_are_named():
    counts = ClassCounts(("training", "test"), tuple("abcde"), np.array([[1] * 5, [0] * 5]))
    with pytest.raises(ArgumentError, match=r"none of class 'c' in the test set, … \(5 in all\) \(x\)"):
        require_classes(counts, "train", "split", "x")
