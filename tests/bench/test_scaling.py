"""One graph of growing size: consistent rows, the check before timing, and measurements for the results."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from graphcaps.bench import CheckError, scaling
from graphcaps.errors import ArgumentError

MODEL: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (3, 2)}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_SECONDS", 0.0)


def test_rows_are_consistent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_in_new_process", lambda task: scaling._step(*task))
    rows = scaling.measure_scaling("cpu", (100, 1000, 5000), model=MODEL)
    assert [row.nodes for row in rows] == [100, 1000, 5000]
    assert [row.sampled for row in rows] == [False, False, True]
    assert all(0.9 * 2 * row.nodes <= row.edges <= 2 * row.nodes for row in rows)
    assert rows[0].time_ratio is None
    assert rows[2].time_ratio == pytest.approx(rows[2].seconds / rows[1].seconds / 5)
    assert json.loads(json.dumps(rows[2].as_dict()))["nodes"] == 5000
    measurements = scaling.scaling_measurements(rows, "graphcaps bench --scaling")
    kinds = {(one["what"], one["dataset"]) for one in measurements}
    assert len(kinds) == len(measurements) >= 8
    assert ("bench: forward and backward of one graph", "one graph of 5000 nodes") in kinds
    assert {one["command"] for one in measurements} == {"graphcaps bench --scaling"}


def test_memory_is_that_of_a_new_process() -> None:
    """Some tensors of [n, d] float32 at least, and far from the hundreds of megabytes of the libraries."""
    (row,) = scaling.measure_scaling("cpu", (20000,), model={"capsule_dim": 32, "num_capsules": (2,)})
    assert 5 * 20000 * 32 * 4 <= row.memory <= 2e8


def test_nothing_is_timed_before_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = scaling.reconstruction_loss
    monkeypatch.setattr(scaling, "reconstruction_loss", lambda *arguments: exact(*arguments) * 1.001)
    monkeypatch.setattr(scaling, "_in_new_process", lambda task: pytest.fail("timed"))
    with pytest.raises(
        CheckError, match=r"the sampled loss of all pairs differs from the exact one by 0\.001"
    ):
        scaling.measure_scaling("cpu", (100,), model=MODEL)


def test_the_same_seed_is_the_same_graph() -> None:
    one, two, other = (scaling.random_graph(50, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.edges.neighbours, two.edges.neighbours)
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.x, other.x)


@pytest.mark.parametrize("sizes", [(), (1,), (100, 10)], ids=str)
def test_messages(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="'sizes' must be ascending numbers of nodes from 2 on"):
        scaling.measure_scaling("cpu", sizes)
