"""Metrics of an epoch: those of some replicas, and of replicas that were trained apart."""

from __future__ import annotations

import math
from dataclasses import fields

from graphcaps.training.replica_trainer import METRICS, EpochEnd

EVENT = EpochEnd(
    2, 5, 0.5, [0.1, 0.2, 0.3], [0.7, 0.8, 0.9], [0.4, 0.5, 0.6], [0.6, 0.5, 0.4], [], [0.5, 0.6, 0.7],
    {"margin": [1.0, 2.0, 3.0]},
)  # fmt: skip


def test_metrics_are_all_that_is_measured_of_a_replica() -> None:
    others = ("epoch", "epochs", "seconds", "loss_terms")
    assert tuple(each.name for each in fields(EpochEnd) if each.name not in others) == METRICS
    assert EVENT.metrics["validation_loss"] == [0.4, 0.5, 0.6]


def test_some_replicas_in_another_order() -> None:
    picked = EVENT.pick([2, 0])
    assert picked == EpochEnd(
        2, 5, 0.5, [0.3, 0.1], [0.9, 0.7], [0.6, 0.4], [0.4, 0.6], [], [0.7, 0.5], {"margin": [3.0, 1.0]}
    )
    assert EVENT.first(2) == EVENT.pick([0, 1])
    assert EVENT.first(3) is EVENT


def test_parts_join_to_the_whole() -> None:
    parts = [EVENT.pick([0]), EVENT.pick([1, 2])]
    assert EpochEnd.join(parts, 0.5) == EVENT
    assert EpochEnd.join(parts).seconds == 1.0


def test_a_metric_that_a_part_lacks_is_not_a_number() -> None:
    one, two = EpochEnd(1, 1, 0.5, [0.1, 0.2], [1.0, 1.0], [], [], []), EVENT.pick([1])
    joined = EpochEnd.join([one, EpochEnd(1, 1, 0.5, **two.metrics)])
    assert joined.train_loss == [0.1, 0.2, 0.2]
    assert [math.isnan(value) for value in joined.validation_loss] == [True, True, False]
    assert joined.test_accuracy == []


def test_means_are_of_what_was_measured_besides_tests() -> None:
    assert EVENT.means().keys() == set(METRICS) - {"test_accuracy"}
    assert EVENT.pick([1]).means()["train_loss"] == 0.2
    assert "validation_loss" not in EpochEnd(1, 1, 0.5, [0.1], [1.0], [], [], [0.5]).means()
