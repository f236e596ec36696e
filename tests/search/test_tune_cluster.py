"""A search whose trials are trained by the executor of Ray, with a Ray of this process: same trials, divided cells."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcaps
from graphcaps.errors import DataError
from graphcaps.execution import RayExecutor, ray_executor
from graphcaps.search import SearchProgress, TuneResult
from graphcaps.training import checkpoint_writer
from tests.execution.fake_ray import FakeCluster, FakeRay
from tests.search.searches import CONFIG, graphs

SPACE = {
    "training": {"learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}},
    "model": {"num_capsules": [[2], [3]]},
}


@pytest.fixture(autouse=True)
def _short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.search.successive_halving.MIN_RUNG", 1)


def _connect(monkeypatch: pytest.MonkeyPatch, ray: FakeRay) -> tuple[RayExecutor, list[str]]:
    monkeypatch.setattr(ray_executor, "RayCluster", lambda address: FakeCluster(ray))
    # As many trials in a cell as here, where all that fit are trained together.
    monkeypatch.setattr(ray_executor, "choose_group", lambda folds, seeds, *others: folds * seeds)
    notes: list[str] = []
    return RayExecutor("auto", notes.append), notes


def _tune(executor: RayExecutor | None = None, **options: Any) -> TuneResult:
    given = {"trials": 4, "batch": 4, "per_shape": 2, "folds": 3, "reduction": 2, "sampler": "random"}
    return graphcaps.tune(
        graphs(), CONFIG, space=SPACE, device="cpu", executor=executor, **given | options
    )  # fmt: skip


@pytest.fixture(scope="module")
def local() -> TuneResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphcaps.search.successive_halving.MIN_RUNG", 1)
        return _tune()


def _values(result: TuneResult) -> list[tuple[Any, ...]]:
    return [(each.number, each.state, each.values, each.losses) for each in result.search.trials]


def test_trials_on_a_cluster_equal_those_of_this_process(
    monkeypatch, local: TuneResult, tmp_path: Path
) -> None:
    ray = FakeRay({"group1": ["NodeDiedError"]})
    executor, notes = _connect(monkeypatch, ray)
    events: list[SearchProgress] = []
    result = _tune(executor, out=tmp_path / "search", on_event=events.append)
    assert _values(result) == _values(local)
    assert [note.partition(" (")[0] for note in notes] == [
        f"{graphs().name} hgcn batch0-group1: the node or the process ended"
    ]
    assert any(event.cluster is not None and event.cluster.nodes == 2 for event in events)
    work = [event.work for event in events if event.epoch is not None and event.part == ""]
    assert work == sorted(work)
    assert work[-1] == events[0].total
    assert not [*(tmp_path / "search").glob(".*.part")]


def test_a_cell_of_trials_out_of_memory_is_halved(monkeypatch, local: TuneResult) -> None:
    ray = FakeRay({"group0": ["OutOfMemoryError"]})
    executor, notes = _connect(monkeypatch, ray)
    result = _tune(executor)
    assert len(notes) == 1
    assert "Its two halves are trained one by one." in notes[0]
    names = {each["name"].rpartition(" ")[2] for each in ray.submitted}
    assert {"batch0-group0", "batch0-group0.0", "batch0-group0.1", "batch0-group1"} <= names
    for one, other in zip(result.search.trials, local.search.trials, strict=True):
        assert one.values == other.values
        assert one.losses == pytest.approx(other.losses, abs=1e-4)


def test_a_full_disk_of_a_worker_is_said_and_changes_no_trial(
    monkeypatch, local: TuneResult, tmp_path: Path
) -> None:
    def fail(path: Path, *given: Any) -> None:
        raise DataError(path, f"file cannot be written ({os.strerror(errno.ENOSPC)})")

    monkeypatch.setattr(checkpoint_writer, "write_checkpoint", fail)
    executor, _ = _connect(monkeypatch, FakeRay())
    with pytest.warns(
        UserWarning, match=r"^tune: Node .+: A checkpoint could not be written: .*No space left"
    ):
        result = _tune(executor, out=tmp_path)
    assert _values(result) == _values(local)


@pytest.mark.slow
def test_a_nested_search_on_a_cluster_equals_that_of_this_process(monkeypatch) -> None:
    executor, _ = _connect(monkeypatch, FakeRay())
    events: list[SearchProgress] = []
    expected = _tune(nested=True).nested
    result = _tune(executor, nested=True, on_event=events.append).nested
    scoring = [event for event in events if event.is_scoring]
    assert {event.part for event in scoring} == {"nested", "unnested"}
    assert scoring[-1].work == scoring[-1].total
    assert scoring[-1].ended == scoring[-1].trials == 3
    assert any(event.cluster is not None for event in scoring)
    assert np.array_equal(result.nested, expected.nested)
    assert np.array_equal(result.unnested, expected.unnested)
