"""The benchmark of planted parts: restarts are chosen by the loss of parts on validation graphs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import measure_part_agreement as benchmark

WORDS = ["--models", benchmark.BEST, "--graphs", "60", "--epochs", "1"]


def test_the_restart_with_the_lowest_validation_loss_of_parts_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "RESTARTS", 2)
    networks, explained = [], []
    loss, explain = benchmark.parts_loss, benchmark.explain_store

    def record_loss(network, store, x):
        networks.append(network)
        assert len(store) == 6  # a ninth of the 54 graphs that are not tested
        return loss(network, store, x)

    def record_explained(network, store, **rows):
        explained.append(network)
        return explain(network, store, **rows)

    monkeypatch.setattr(benchmark, "parts_loss", record_loss)
    monkeypatch.setattr(benchmark, "explain_store", record_explained)
    path = tmp_path / "parts.json"
    benchmark.main([*WORDS, "--seeds", "1", "--out", str(path)])
    (row,) = json.loads(path.read_text("utf-8"))["rows"]
    (seed,) = row["seeds"]
    assert len(seed["parts_losses"]) == len(networks) == 2
    assert seed["parts_losses"][0] != seed["parts_losses"][1]
    assert explained == [networks[int(np.argmin(seed["parts_losses"]))]]
    benchmark.main(
        [*WORDS, "--seeds", "2", "--budget", "-1", "--out", str(path)]
    )  # nothing is measured again
    assert len(networks) == 2
    assert json.loads(path.read_text("utf-8"))["rows"][0]["seeds"] == [seed]
