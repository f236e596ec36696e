"""A record holds everything that determines its results, and survives JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from graphcaps.config import FeatureConfig, RunConfig
from graphcaps.errors import DataError
from graphcaps.evaluation import SeedRecord
from tests.evaluation.records import CONFIG, curves, measured_record, record


def test_json_round_trip() -> None:
    kept = record(seconds=1.23456)
    assert SeedRecord.from_json(kept.to_json()) == kept
    assert "held-out, seed 0: 3 folds, 4 epochs" in repr(kept)
    assert SeedRecord.from_json(measured_record().to_json()) == measured_record()


def test_a_record_of_an_earlier_version_has_no_metrics() -> None:
    values = json.loads(record().to_json())
    assert not {"metric", "class_weight", "metrics", "predictions"} & set(values)
    read = SeedRecord.from_dict(values)
    assert (read.metric, read.class_weight, read.metrics, read.predictions) == ("loss", None, None, None)
    assert read.curves.validation_metric is None
    assert "metric" not in read.settings


def test_json_is_readable() -> None:
    values = json.loads(record().to_json())
    assert (values["dataset"], values["variant"], values["protocol"], values["seed"]) == (
        *("MUTAG", "hgcn", "held-out"),
        0,
    )
    assert values["config"]["training"]["epochs"] == 4


def test_settings_hold_all_that_determines_the_results() -> None:
    plain = record().settings
    same = record(config=replace(CONFIG, source="elsewhere", dataset="other"), hardware="GPU", seconds=9.0)
    assert same.settings == plain
    assert record(seed=3, protocol="paper").settings == plain
    others: list[dict[str, Any]] = [
        {"config": CONFIG.with_training(epochs=5)},
        {"config": replace(CONFIG, model="gin")},
        {"config": replace(CONFIG, model_arguments={"num_capsules": (6,)})},
        {"config": replace(CONFIG, features=FeatureConfig(max_nodes=10))},
        {"folds_seed": 1},
        {"metric": "roc-auc"},
        {"class_weight": "balanced"},
        {"curves": curves(folds=4)},
        {"data": replace(record().data, y_sha256="cd" * 32)},
    ]
    for changes in others:
        assert record(**changes).settings != plain, changes


def test_a_configuration_read_back_has_the_same_settings() -> None:
    again = RunConfig.from_dict(json.loads(json.dumps(CONFIG.as_dict())))
    assert record(config=again).settings == record().settings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("format", "graphcaps record 1", "a record in the format 'graphcaps record 2'"),
        ("seed", "0", "a whole number under 'seed'"),
        ("metric", "auc", "one of loss, accuracy, .* under 'metric'"),
        ("class_weight", [1, 2], "'balanced' under 'class_weight'"),
        ("metrics", {"roc_auc": []}, "a list of names under 'class_names' of 'metrics'"),
        ("predictions", "none", "numbers of rows and classes under 'predictions'"),
        ("seed", True, "a whole number under 'seed'"),
        ("protocol", "mine", "one of the protocols held-out, paper"),
        ("seconds", None, "a number under 'seconds'"),
        ("peak_memory", 0, "a whole number from 1 on under 'peak_memory'"),
        ("data", {"graphs": 3}, "a whole number under 'nodes'"),
        ("config", {"modle": {}}, "a valid configuration"),
        ("curves", {}, "whole numbers under 'folds' and 'epochs'"),
    ],
)
def test_an_invalid_entry_is_named(name: str, value: object, expected: str) -> None:
    with pytest.raises(DataError, match=rf"^here.*expected {expected}, found ") as raised:
        SeedRecord.from_dict(record().as_dict() | {name: value}, "here")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", b"\xff\xfe"])
def test_other_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(DataError, match=r"^here: expected "):
        SeedRecord.from_json(text, "here")


def test_text_that_utf8_cannot_hold_is_refused_in_names_only() -> None:
    values = record().as_dict()
    for name in ("dataset", "variant"):
        with pytest.raises(DataError) as caught:
            SeedRecord.from_json(json.dumps(values | {name: "a\ud800"}), "r.json")
        assert str(caught.value) == f"r.json: expected a name in Unicode under '{name}', found 'a\\ud800'."
    read = SeedRecord.from_json(json.dumps(values | {"hardware": "CPU \ud800"}), "r.json")
    assert read.hardware == "CPU \ud800"


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "1e999", "-1", "1" + "0" * 400])
def test_seconds_are_a_finite_number(seconds: str) -> None:
    text = record(seconds=1.5).to_json().replace('"seconds": 1.5', f'"seconds": {seconds}')
    with pytest.raises(DataError, match="a finite number from 0 on under 'seconds'"):
        SeedRecord.from_json(text)


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 5000])
def test_json_that_python_cannot_parse_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="found invalid JSON"):
        SeedRecord.from_json(text)


def test_patience_is_a_setting_and_survives_json() -> None:
    plain = record()
    stopped = record(patience=7)
    assert "patience" not in plain.as_dict()
    assert "patience" not in plain.settings
    assert stopped.settings == plain.settings | {"patience": 7}
    assert SeedRecord.from_json(stopped.to_json()) == stopped
    assert SeedRecord.from_json(plain.to_json()).patience is None
    for value in (0, -1, 2.5, "7", True, None):
        with pytest.raises(DataError, match="a whole number from 1 on under 'patience'"):
            SeedRecord.from_dict(stopped.as_dict() | {"patience": value})
