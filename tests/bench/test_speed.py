"""The speed of a data set: figures that fit together, rivals in the same run, entries for the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphcaps.bench import Ceilings, RivalError, merge_entries, phases, read_entries, speed
from graphcaps.bench.rivals.padded_training import PaddedTraining
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


def test_figures_of_a_data_set_fit_together() -> None:
    found = _measure(rivals=("padded", "gin"))
    assert (found.dataset, found.device, found.folds, found.replicas) == ("test", "cpu", 3, 3)
    assert found.graphs_per_second == pytest.approx(3 * 8 / found.seconds)
    assert found.memory is not None
    assert found.memory > 10**7
    assert found.memory_of == "resident peak of the process"
    assert [rival.name for rival in found.rivals] == ["padded", "torch-geometric gin"]
    for rival in found.rivals:
        assert rival.times == pytest.approx(rival.seconds / (found.seconds / 3))
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["step"]["whole"]["share"] == found.step.whole.share
    assert [phase["share"] for phase in plain["step"]["phases"]] == [p.share for p in found.step.phases]


def test_on_two_cores_phases_are_those_of_one_process() -> None:
    torch.set_num_threads(2)
    try:
        found = _measure()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert found.folds == 3
    assert found.replicas == 1  # of three folds the first process trains one


def test_groups_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(training: Any, warm_up: int, epochs: int) -> tuple[float, Any]:
        sizes.append(len(training.group.replicas))
        training.close()
        return 1.5, list(training.group.replicas)

    monkeypatch.setattr(speed, "_epoch_seconds", counted)
    monkeypatch.setattr("graphcaps.training.memory.MemoryEstimate.max_replicas", lambda self, replicas: 2)
    found = _measure()
    assert sizes == [2, 1]
    assert found.seconds == 3.0
    assert (found.folds, found.replicas) == (3, 2)


def test_a_rival_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: PaddedTraining) -> None:
        raise RivalError("padded: wrong.")

    monkeypatch.setattr(PaddedTraining, "_check", wrong)
    with pytest.raises(RivalError, match="wrong"):
        _measure(rivals=("padded",))


def test_padded_graphs_that_would_fill_the_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "total_memory", lambda device: 10)
    found = _measure(rivals=("padded",))
    assert found.rivals == ()
    assert found.notes == ("padded is left out: its graphs would fill more than half of the memory.",)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'rivals' must be some of padded, gin, diffpool, sagpool"):
        _measure(rivals=("gcn",))
    with pytest.raises(ArgumentError, match="'model' must be hgcn, got 'gin'"):
        _measure(RunConfig(model="gin"))


def test_entries_are_merged_by_what_data_set_and_device(tmp_path: Path) -> None:
    found = _measure(rivals=("gin",))
    path = tmp_path / "new" / "performance.json"
    merge_entries(path, found.entries("graphcaps bench test"))
    first = read_entries(path)
    names = [one["what"] for one in first]
    assert len({*names}) == len(names)
    assert "bench: share of the roofline, training step" in names
    assert "bench: a fold's epoch, times faster than torch-geometric gin" in names
    assert {"hardware", "versions", "command", "unit", "value"} <= {*first[0]}
    changed = first[0] | {"value": 7.0}
    other = first[0] | {"device": "cuda"}
    merge_entries(path, [changed, other])
    assert read_entries(path) == [changed, *first[1:], other]


@pytest.mark.parametrize("text", ["{", "{}", '[{"what": 1}]'])
def test_a_file_of_something_else_is_not_merged_into(tmp_path: Path, text: str) -> None:
    path = tmp_path / "performance.json"
    path.write_text(text)
    with pytest.raises(DataError, match="expected a JSON list of figures"):
        merge_entries(path, [])
    assert path.read_text() == text


def test_the_stored_figures_can_be_read() -> None:
    assert read_entries(Path(__file__).resolve().parents[2] / "results" / "performance.json")
