"""A seed is complete with all its folds, whatever the order of the groups that trained them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from graphcaps.evaluation.replica_groups import GroupResult, ReplicaGroup
from graphcaps.evaluation.seed_collector import CompletedSeed, SeedCollector
from graphcaps.training import EpochEnd, Replica

FOLDS = 3


def _group(*runs: tuple[int, int]) -> tuple[ReplicaGroup, GroupResult]:
    """A group of one epoch with pairs of seed and fold; a fold has ``10 · seed + fold`` correct predictions of 100."""
    graphs = torch.arange(100)
    replicas = tuple(Replica(graphs, graphs[:0], graphs, seed=seed, fold=fold) for seed, fold in runs)
    event = EpochEnd(
        epoch=1,
        epochs=1,
        seconds=6.0,
        train_loss=[0.5] * len(runs),
        train_accuracy=[1.0] * len(runs),
        validation_loss=[],
        validation_accuracy=[],
        test_accuracy=[(10 * seed + fold) / 100 for seed, fold in runs],
    )
    note = f"Group of {len(runs)}."
    return ReplicaGroup("paper", replicas), GroupResult([event], np.ones(len(runs), dtype=np.int64), (note,))


def _collect(*groups: Sequence[tuple[int, int]]) -> list[list[CompletedSeed]]:
    """The seeds that each group completes; group number n has a peak of n bytes on the device ``GPU n``."""
    collector = SeedCollector(FOLDS, ["Before."])
    return [
        list(collector.add(*_group(*runs), peak_memory=number, hardware=f"GPU {number}"))
        for number, runs in enumerate(groups)
    ]


def test_a_group_of_whole_seeds_completes_each_of_them() -> None:
    ((first, second),) = _collect([(seed, fold) for seed in (0, 1) for fold in range(FOLDS)])
    assert (first.seed, second.seed) == (0, 1)
    assert first.curves.test_right.tolist() == [[0], [1], [2]]
    assert second.curves.test_right.tolist() == [[10], [11], [12]]
    assert first.seconds == second.seconds == 3.0  # half of the group each


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_parts_of_a_seed_are_joined_in_the_order_of_folds(order: tuple[int, int]) -> None:
    parts = [(2, 0), (2, 1)], [(2, 2)]
    nothing, (seed,) = _collect(*(parts[number] for number in order))
    assert nothing == []
    assert seed.curves.test_right.tolist() == [[20], [21], [22]]
    assert seed.seconds == 12.0
    assert seed.peak_memory == 1
    assert seed.hardware == ("GPU 0; GPU 1" if order == (0, 1) else "GPU 1; GPU 0")
    assert set(seed.notes) == {"Before.", "Group of 2.", "Group of 1."}


def test_notes_end_with_the_seeds_that_were_trained_together() -> None:
    (first,), (second,) = _collect(*([(seed, fold) for fold in range(FOLDS)] for seed in (0, 1)))
    assert first.notes == ("Before.", "Group of 3.")
    assert second.notes == ("Group of 3.",)


def test_predictions_need_classes() -> None:
    group, result = _group(*((0, fold) for fold in range(FOLDS)))
    probabilities = [np.full((100, 2), 0.5) for _ in range(FOLDS)]
    result = GroupResult(result.events, result.epochs_run, (), probabilities=probabilities)
    (without,) = SeedCollector(FOLDS).add(group, result)
    (kept,) = SeedCollector(FOLDS, y=np.zeros(100, dtype=np.int64)).add(group, result)
    assert without.predictions is None
    assert kept.predictions is not None
