"""Subsets of companions by their cross-fitted losses, and the table of the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.measure_companions import cross_fitted_losses, judged_graphs, main, subset_losses
from benchmarks.measure_reach import read_rows
from benchmarks.pages.companion import loss_table, summary

from benchmarks import measure_reach
from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.graph_predictions import PARTS

GIN = RunConfig(model="gin", model_arguments={"hidden": 4, "num_layers": 1}).with_training(epochs=2)
COMPANIONS = ("wl", "gk")  # forests take longer


def test_a_graph_is_judged_by_weights_of_the_other_half() -> None:
    """A companion that knows the classes of one half only: weights fitted there are worthless for the other."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    network = np.full((1, 400, 2), 0.5)
    oracle = np.stack([y == 0, y == 1], -1) * 0.9 + 0.05
    assert cross_fitted_losses([network], y).mean() == pytest.approx(np.log(2), abs=1e-3)
    assert cross_fitted_losses([network, oracle[None]], y).mean() < 0.1

    half = np.empty(400, dtype=bool)
    half[np.argsort(y, kind="stable")] = np.arange(400) % 2 == 0
    wrong = np.where(half[:, None], oracle, 1 - oracle)
    losses = cross_fitted_losses([network, wrong[None]], y)
    assert losses[~half].mean() > 1  # weights of the half on which it is right
    assert losses[half].mean() < np.log(2) + 0.1  # weights of the half on which it is wrong


@pytest.mark.parametrize(("graphs", "stacked"), [(30, True), (330, False)])
def test_test_folds_are_not_used(graphs: int, stacked: bool) -> None:
    ledger = CrossValidation(
        planted_parts(num_graphs=graphs), GIN, folds=3, members=2, companion=",".join(COMPANIONS)
    ).run()
    folds = list(judged_graphs(ledger))
    assert len(folds) == 3
    predictions = ledger.records[0].predictions
    assert predictions is not None
    for fold, (parts, y) in enumerate(folds):
        assert [len(p) for p in parts] == [1 if stacked else 2, 1, 1]  # members
        assert all(p.shape[1] == len(y) for p in parts)
        part = PARTS.index("test" if stacked else "validation")
        own = (predictions.fold == fold) & (predictions.part == part)
        if stacked:  # the training graphs, each once
            assert len(y) == graphs - own.sum() - (graphs // 3)
        else:
            assert sorted(y) == sorted(predictions.y[own])
    found = subset_losses(ledger, COMPANIONS)
    assert list(found) == ["none", "wl", "gk", "wl + gk"]


def test_data_sets_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure_reach, "candidate_config", lambda name: GIN)
    write_tu(planted_parts(num_graphs=30), tmp_path / "TINY.zip")
    words = ["--sets", "TINY", "--root", str(tmp_path), "--members", "2", "--folds", "3", "--epochs", "2"]
    words += ["--precision", "float32", "--records", str(tmp_path / "records"), "--out", str(tmp_path)]
    main([*words, "--companions", "wl"])
    assert "| TINY | " in capsys.readouterr().out
    rows = read_rows(tmp_path / "companions.json")
    assert [(row["dataset"], row["division"], list(row["log_loss"])) for row in rows] == [
        ("TINY", 0, ["none", "wl"])
    ]
    main([*words, "--companions", "gk"])  # it is there
    assert read_rows(tmp_path / "companions.json") == rows
    with pytest.raises(SystemExit, match="2"):
        main(["--sets", "TINY"])
    assert "--records is needed" in capsys.readouterr().err


def test_the_table_marks_the_lowest_loss() -> None:
    found = {
        "ENZYMES": dict(zip(_TITLES, (0.96, 0.91, 0.86, 0.94, 0.85), strict=True)),
        "IMDB-MULTI": dict(zip(_TITLES, (0.982, 0.987, 0.984, 0.988, 0.99), strict=True)),
    }
    table = loss_table(found)
    assert "| ENZYMES | labels, attributes | 0.960 | 0.910 | 0.860 | 0.940 | **0.850** |" in table
    assert "| IMDB-MULTI | neither | **0.982** |" in table
    lower, further, others = summary(found)
    assert lower == "lowers the loss on 1 of 2 data sets"
    assert further.startswith("lowers it further on ENZYMES, ")
    assert further.endswith(" by up to 0.060")
    assert others.endswith("by at most 0.003, and lowers it on 0 of 1")


_TITLES = ("none", "wl-forest", "features-trees", "ldp-forest", "wl-forest + features-trees")
