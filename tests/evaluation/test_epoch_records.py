"""Counts are exact, losses are integer multiples of a step, and both survive JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from graphcaps.errors import DataError
from graphcaps.evaluation.epoch_records import (
    CURVES,
    LOSS_STEP,
    METRIC_STEP,
    EpochRecords,
    _pack,
    stored_criterion,
)
from graphcaps.training import EpochEnd, Replica
from tests.evaluation.records import curves


def _replica(train: int, validation: int, test: int) -> Replica:
    return Replica(torch.arange(train), torch.arange(validation), torch.arange(test))


def _event(epoch: int, loss: float, validation: bool = True) -> EpochEnd:
    return EpochEnd(
        epoch=epoch,
        epochs=2,
        seconds=0.1,
        train_loss=[loss, 0.25],
        train_accuracy=[1 / 3, 49 / 50],
        validation_loss=[loss, 0.123456789] if validation else [],
        validation_accuracy=[2 / 7, 3 / 7] if validation else [],
        test_accuracy=[10 / 11, 4 / 12],
    )


def test_counts_and_steps_from_events() -> None:
    replicas = [_replica(3, 7, 11), _replica(50, 7, 12)]
    records = EpochRecords.from_events([_event(1, 0.5), _event(2, 1e-7)], replicas)
    assert records.train_right.tolist() == [[1, 1], [49, 49]]
    assert records.validation_right.tolist() == [[2, 2], [3, 3]]
    assert records.test_right.tolist() == [[10, 10], [4, 4]]
    assert records.train_loss.tolist() == [[50_000, 0], [25_000, 25_000]]
    assert records.validation_loss.tolist() == [[50_000, 0], [12_346, 12_346]]
    assert records.test_accuracy[0, 0] == 10 / 11
    assert (records.num_folds, records.num_epochs) == (2, 2)


def test_without_validation_set() -> None:
    records = EpochRecords.from_events([_event(1, 0.5, validation=False)], [_replica(3, 0, 11)] * 2)
    assert records.validation_loss.tolist() == records.validation_right.tolist() == [[0], [0]]
    assert np.isnan(records.validation_accuracy).all()


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e30])
def test_a_loss_that_is_not_finite_becomes_the_largest(loss: float) -> None:
    records = EpochRecords.from_events([_event(1, loss)], [_replica(3, 7, 11)] * 2)
    assert records.validation_loss[0, 0] == 2**31 - 1
    assert EpochRecords.from_dict(records.as_dict(), "here") == records


def test_json_round_trip() -> None:
    kept = curves(folds=10, epochs=1000)
    text = json.dumps(kept.as_dict())
    assert EpochRecords.from_dict(json.loads(text), "here") == kept
    assert json.loads(text)["loss_step"] == LOSS_STEP


def test_a_thousand_epochs_of_ten_folds_are_a_small_file() -> None:
    draw = np.random.default_rng(0)
    smooth = (200_000 * np.exp(-np.arange(1000) / 100)).astype(int)
    near = np.clip(16 + draw.integers(-1, 3, (10, 1000)), 0, 18)
    loss = smooth + draw.integers(0, 2_000, (10, 1000))
    parts = np.full(10, 18)
    kept = EpochRecords(loss, near, loss, near, near, parts, parts, parts)
    assert len(json.dumps(kept.as_dict())) < 80_000


def test_selecting_and_joining_rows() -> None:
    kept = curves(folds=5)
    assert EpochRecords.join([kept.folds([0, 1]), kept.folds([2, 3, 4])]) == kept
    assert kept.folds([3]).test_right.tolist() == kept.test_right[3:4].tolist()
    assert kept != curves(seed=1, folds=5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("test_right", "no base64!"),
        ("test_right", "YWJj"),
        ("test_right", None),
        ("test_right", curves(epochs=5).as_dict()["test_right"]),
        ("test_right", curves(epochs=3).as_dict()["test_right"]),
        ("folds", "3"),
        ("epochs", 0),
        ("test_graphs", [7, 7]),
        ("test_graphs", [7, 7, 7.5]),
        ("test_graphs", [7, 7, 0]),
        ("test_graphs", [7, 7, float("nan")]),
        ("test_graphs", [7, 7, 10**30]),
        ("test_graphs", [1, 1, 1]),
        ("validation_graphs", [6, 6, -1]),
        ("test_right", _pack(np.full((3, 4), -1))),
        ("test_right", _pack(np.full((3, 4), 8))),
        ("train_loss", _pack(np.full((3, 4), -1))),
        ("loss_step", float("nan")),
        ("metric_step", 1.0),
        ("metric_step", METRIC_STEP),  # without the curve
    ],
)
def test_damaged_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(DataError, match=r"^here.*: expected .*, found "):
        EpochRecords.from_dict(curves().as_dict() | {name: value}, "here")


# ---------------------------------------------------------------------- folds that stopped early
def _stopped() -> EpochRecords:
    """Three folds of 4, 2 and 3 epochs."""
    plain = curves(folds=3, epochs=6)
    events = [
        EpochEnd(
            e + 1, 6, 0.1, *((LOSS_STEP * plain.train_loss[:, e]).tolist(), (plain.train_right[:, e] / 20).tolist()),
            *((LOSS_STEP * plain.validation_loss[:, e]).tolist(), (plain.validation_right[:, e] / 6).tolist()),
            (plain.test_right[:, e] / 7).tolist(),
        )
        for e in range(6)
    ]  # fmt: skip
    records = EpochRecords.from_events(events, [_replica(20, 6, 7)] * 3, np.array([4, 2, 3]))
    for name in CURVES:  # unchanged up to the stop, then the last value
        values, full = getattr(records, name), getattr(plain, name)
        for fold, length in enumerate((4, 2, 3)):
            expected = [*full[fold, :length], *[full[fold, length - 1]] * (4 - length)]
            assert values[fold].tolist() == expected, name
    return records


def test_a_stopped_fold_repeats_its_last_values() -> None:
    records = _stopped()
    assert (records.num_epochs, records.fold_epochs.tolist()) == (4, [4, 2, 3])
    assert curves(epochs=4).fold_epochs.tolist() == [4, 4, 4]
    assert curves(epochs=4).epochs_run is None


def test_folds_of_different_lengths_are_cut_and_joined() -> None:
    records = _stopped()
    short = records.folds([1, 2])
    assert (short.num_epochs, short.fold_epochs.tolist()) == (3, [2, 3])
    equal = records.folds([2])
    assert (equal.num_epochs, equal.epochs_run) == (3, None)
    assert EpochRecords.join([records.folds([0]), short]) == records
    assert EpochRecords.join([short, records.folds([0])]).fold_epochs.tolist() == [2, 3, 4]


def test_lengths_of_folds_survive_json_and_are_checked() -> None:
    records = _stopped()
    content = json.loads(json.dumps(records.as_dict()))
    assert content["epochs_run"] == [4, 2, 3]
    assert EpochRecords.from_dict(content, "here") == records
    assert "epochs_run" not in curves().as_dict()
    for value, message in (
        ([4, 2], "3 whole numbers under 'epochs_run'"),
        ([4, 2, 0], "numbers from 1 on under 'epochs_run'"),
        ([3, 2, 3], "4 as the largest number under 'epochs_run', found 3"),
        ("4", "3 whole numbers under 'epochs_run'"),
    ):
        with pytest.raises(DataError, match=message):
            EpochRecords.from_dict(content | {"epochs_run": value}, "here")
    without = {name: value for name, value in content.items() if name != "epochs_run"}
    assert EpochRecords.from_dict(without, "here") != records


# ---------------------------------------------------------------------- a metric that selects the epoch
def test_the_metric_is_kept_through_parts_and_files() -> None:
    values = [[0.5, 1.0, math.nan], [0.123456789, -0.25, 0.75]]  # of three folds in two epochs
    events = [
        EpochEnd(e, 2, 0.1, [0.1] * 3, [0.5] * 3, [0.3] * 3, [0.5] * 3, [0.5] * 3, metric)
        for e, metric in enumerate(values, 1)
    ]
    records = EpochRecords.from_events(events, [_replica(20, 6, 8)] * 3)
    assert records.validation_metric is not None
    assert records.validation_metric.tolist() == [
        [500_000, 123_457],
        [1_000_000, -250_000],
        [-1_000_000, 750_000],
    ]
    np.testing.assert_allclose(records.criterion, [[0.5, 0.876543], [0.0, 1.25], [2.0, 0.25]])
    for epoch, event in enumerate(events):
        np.testing.assert_array_equal(stored_criterion(event), records.criterion[:, epoch])
    assert EpochRecords.from_dict(records.as_dict(), "here") == records
    assert EpochRecords.join([records.folds([0]), records.folds([1, 2])]) == records
    without = EpochRecords.from_dict(
        {k: v for k, v in records.as_dict().items() if "metric" not in k}, "here"
    )
    assert without.validation_metric is None
    assert without != records
    with pytest.raises(DataError, match="numbers from -1000000 to 1000000 under 'validation_metric'"):
        EpochRecords.from_dict(
            records.as_dict() | {"validation_metric": _pack(np.full((3, 2), 1_000_001))}, "here"
        )
