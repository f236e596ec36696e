"""Speed of a data set: consistent values, and measurements that are merged into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphcaps.bench import Ceilings, merge_measurements, phases, read_measurements, speed
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.errors import ArgumentError, DataError
from tests.graphs import random_graphs

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,)},
    features=FeatureConfig(degree_onehot=4, propagation=1),
    training=TrainConfig(epochs=5, batch_size=4),
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "_SECONDS", 0.0)
    monkeypatch.setattr(speed, "measure_ceilings", lambda device: Ceilings(1e10, 1e11))


def _measure(config: RunConfig = CONFIG, **arguments: Any) -> speed.Speed:
    store = random_graphs([9, 12, 5, 6, 2, 8, 7, 11, 6, 10, 4, 13], seed=1).as_store()
    return speed.measure_speed(store, config, folds=3, epochs=2, **arguments)


def test_values_of_a_data_set_are_consistent() -> None:
    measured = _measure()
    assert (measured.dataset, measured.device, measured.folds, measured.replicas) == ("test", "cpu", 3, 3)
    assert measured.graphs_per_second == pytest.approx(3 * 8 / measured.seconds)
    assert measured.memory is not None
    assert measured.memory > 10**7
    assert measured.memory_of == "resident peak of the process"
    plain = json.loads(json.dumps(measured.as_dict()))
    assert plain["step"]["whole"]["share"] == measured.step.whole.share
    assert [phase["share"] for phase in plain["step"]["phases"]] == [p.share for p in measured.step.phases]


def test_on_two_cores_phases_are_those_of_one_process() -> None:
    torch.set_num_threads(2)
    try:
        measured = _measure()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert measured.folds == 3
    assert measured.replicas == 1  # of three folds the first process trains one


def test_groups_are_timed_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(training: Any, warm_up: int, epochs: int) -> tuple[list[float], list[float]]:
        sizes.append(len(training.replicas))
        training.close()
        return [9.0] * warm_up, [1.0, 1.5, 7.0]

    monkeypatch.setattr(speed, "time_epochs", counted)
    monkeypatch.setattr("graphcaps.training.memory.MemoryEstimate.max_replicas", lambda self, replicas: 2)
    measured = _measure()
    assert sizes == [2, 1]
    assert measured.seconds == 3.0
    assert (measured.folds, measured.replicas) == (3, 2)


def test_a_model_other_than_hgcn_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'model' must be hgcn, got 'gin'"):
        _measure(RunConfig(model="gin"))


def test_measurements_are_merged_by_what_data_set_and_device(tmp_path: Path) -> None:
    measured = _measure()
    path = tmp_path / "new" / "performance.json"
    merge_measurements(path, measured.measurements("graphcaps bench test"))
    first = read_measurements(path)
    names = [one["what"] for one in first]
    assert len({*names}) == len(names)
    assert "bench: share of the roofline, training step" in names
    assert {"hardware", "versions", "command", "unit", "value"} <= {*first[0]}
    changed = first[0] | {"value": 7.0}
    other = first[0] | {"device": "cuda"}
    merge_measurements(path, [changed, other])
    assert read_measurements(path) == [changed, *first[1:], other]


@pytest.mark.parametrize("text", ["{", "{}", '[{"what": 1}]'])
def test_a_file_with_other_content_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "performance.json"
    path.write_text(text)
    with pytest.raises(DataError, match="expected a JSON list of measurements"):
        merge_measurements(path, [])
    assert path.read_text() == text
