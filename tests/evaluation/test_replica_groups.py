"""Which replicas are trained together, and on which graphs."""

from __future__ import annotations

import pytest
import torch

from graphcaps.data.splits.folds import stratified_folds
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.replica_groups import plan_groups

FOLDS = stratified_folds(torch.arange(47) % 2, 10)


@pytest.mark.parametrize("protocol", ["paper", "held-out"])
def test_sets_follow_the_protocol(protocol: Protocol) -> None:
    (group,) = plan_groups(FOLDS, protocol, [0])
    tested = torch.cat([replica.test for replica in group.replicas])
    assert tested.sort().values.tolist() == list(range(47))  # every graph once
    for fold, replica in enumerate(group.replicas):
        assert (replica.fold, replica.seed) == (fold, 0)
        parts = torch.cat([replica.train, replica.validation, replica.test])
        assert parts.sort().values.tolist() == list(range(47))  # no graph in two parts
        assert FOLDS.assignment[replica.test].unique().tolist() == [fold]
        chooses = FOLDS.assignment[replica.validation].unique().tolist()
        assert chooses == ([] if protocol == "paper" else [(fold - 1) % 10])


@pytest.mark.parametrize(
    ("group", "sizes"),
    [
        (None, [30]),
        (30, [30]),
        (99, [30]),
        (29, [20, 10]),
        (10, [10, 10, 10]),
        (4, [4, 4, 2] * 3),
        (1, [1] * 30),
    ],
)
def test_groups_hold_complete_seeds_or_a_part_of_one(group: int | None, sizes: list[int]) -> None:
    plans = plan_groups(FOLDS, "paper", [0, 1, 2], group)
    assert [len(plan.replicas) for plan in plans] == sizes
    every = [(replica.seed, replica.fold) for plan in plans for replica in plan.replicas]
    assert every == [(seed, fold) for seed in range(3) for fold in range(10)]
    assert all(len(plan.seeds) == 1 or len(plan.replicas) % 10 == 0 for plan in plans)


def test_group_names_are_unique() -> None:
    plans = [plan for size in (None, 10, 4, 1) for plan in plan_groups(FOLDS, "paper", [0, 1], size)]
    names = [plan.name for plan in plans]
    assert len(set(names)) == len(names) == 1 + 2 + 6 + 20
    assert (names[0], names[1]) == ("seeds0to1-folds0to9", "seed0-folds0to9")
