"""The benchmark of planted parts: restarts are chosen by the loss of parts on validation graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import measure_part_agreement as benchmark

WORDS = ["--models", benchmark.BEST, "--graphs", "60", "--epochs", "1"]


def test_the_restart_with_the_lowest_validation_loss_of_parts_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "RESTARTS", 2)
    trained, train = [], benchmark.train_final

    def record(store, config, **options):
        assert len(options["validation"]) == 6  # a ninth of the 54 graphs that are not tested
        trained.append(train(store, config, **options))
        return trained[-1]

    monkeypatch.setattr(benchmark, "train_final", record)
    path = tmp_path / "parts.json"
    benchmark.main([*WORDS, "--seeds", "1", "--out", str(path)])
    (row,) = json.loads(path.read_text("utf-8"))["rows"]
    (seed,) = row["seeds"]
    losses = {run["seed"]: run["criterion"] for run in seed["restarts"]["runs"]}
    assert list(losses) == [0, 1]
    assert losses[0] != losses[1]
    assert seed["restarts"]["kept_seed"] == min(losses, key=losses.__getitem__)
    assert "block loss" in seed["restarts"]["rule"]
    benchmark.main(
        [*WORDS, "--seeds", "2", "--budget", "-1", "--out", str(path)]
    )  # nothing is measured again
    assert len(trained) == 1
    assert json.loads(path.read_text("utf-8"))["rows"][0]["seeds"] == [seed]


def test_groups_need_no_model_and_have_no_kind(tmp_path: Path) -> None:
    path = tmp_path / "parts.json"
    words = ["--models", benchmark.GROUPS, "--graphs", "60", "--seeds", "2", "--out", str(path)]
    benchmark.main(words)
    (row,) = json.loads(path.read_text("utf-8"))["rows"]
    assert row["config"] == {}
    assert [seed.pop("seed") for seed in row["seeds"]] == [0, 1]
    for seed in (row["mean"], *row["seeds"]):
        assert set(seed) == {"nmi", "ari", "nmi_planted"}
        assert 0.7 < seed["nmi"] < seed["nmi_planted"] <= 1
