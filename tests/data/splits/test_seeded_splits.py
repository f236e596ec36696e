"""Seeded splits of single graphs and of groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.splits.seeded_splits import grouped_split, random_split
from graphcaps.errors import ArgumentError


def codes(split, graphs):
    parts = np.full(graphs, -1)
    for number, members in enumerate((split.train, split.validation, split.test)):
        if members is not None:
            parts[members.numpy()] = number
    return parts


def test_a_random_split_has_the_class_proportions():
    y = torch.tensor([0] * 70 + [1] * 25 + [2] * 5)
    split = random_split(y, seed=1)
    counts = [y[part].bincount(minlength=3).tolist() for part in (split.train, split.validation, split.test)]
    # 0.1 · 25 = 2.5 is rounded either way; of five graphs each part has at least one.
    assert (counts[0][0], counts[1][0]) == (56, 7)
    assert [sum(each[c] for each in counts) for c in range(3)] == [70, 25, 5]
    assert [counts[part][2] for part in range(3)] == [3, 1, 1]
    assert all(each[1] in (2, 3) for each in counts[1:])
    assert torch.equal(random_split(y, seed=1).test, split.test)
    assert not torch.equal(random_split(y, seed=2).test, split.test)


def test_a_class_with_fewer_graphs_than_parts_is_refused():
    with pytest.raises(ArgumentError, match=r"got none of class 'rare' in the .* set"):
        random_split([0] * 40 + [1] * 2, class_names=("common", "rare"))
    assert random_split([0] * 40 + [1] * 2, (0.8, 0, 0.2)).test.numel() == 9


@pytest.mark.parametrize(
    "fractions",
    [
        (0.5, 0.5),
        (0.9, 0.2, 0.1),
        (1.0, 0.0, 0.0),
        (0.0, 0.5, 0.5),
        (float("nan"), 0.1, 0.1),
        (1.2, -0.1, -0.1),
    ],
)
def test_wrong_fractions_are_refused(fractions):
    with pytest.raises(ArgumentError, match="'fractions' must be three fractions that add up to 1"):
        grouped_split(np.arange(10), fractions=fractions)


def test_wrong_seeds_and_classes_are_refused():
    for seed in (-1, 1.0, True, None):
        with pytest.raises(ArgumentError, match="'seed' must be a non-negative integer"):
            grouped_split(np.arange(10), seed=seed)
    with pytest.raises(ArgumentError, match="'y' must hold one class per graph, 10, got 2"):
        grouped_split(np.arange(10), [0, 1])


def test_groups_that_are_all_large_fill_every_part():
    """Ten groups of ten: each is as large as the validation set."""
    split = grouped_split(np.arange(100) // 10, seed=0)
    assert (split.train.numel(), split.validation.numel(), split.test.numel()) == (80, 10, 10)


@given(st.integers(2, 12), st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_many_classes_are_balanced_as_far_as_groups_allow(classes, seed, largest):
    """Random groups of up to ``largest`` graphs: every part has every class, near its fraction of it."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, 60 * classes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.integers(0, classes, len(groups))
    split = grouped_split(groups, y, (0.7, 0.15, 0.15), seed % 1000)
    parts = codes(split, len(y))
    assert len({(group, part) for group, part in zip(groups.tolist(), parts.tolist(), strict=True)}) == len(
        sizes
    )
    for part, fraction in enumerate((0.7, 0.15, 0.15)):
        for label in range(classes):
            graphs = int((y == label).sum())
            assert abs(int((parts[y == label] == part).sum()) - fraction * graphs) <= max(
                largest, 0.1 * graphs
            )
