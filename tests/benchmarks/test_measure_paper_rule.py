"""C of committees and mixtures in the paper's protocol."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.measure_paper_rule import companion_probabilities, main
from benchmarks.measure_reach import read_rows, write_lines

from benchmarks import measure_paper_rule
from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.evaluation import CrossValidation, cross_validate
from graphcaps.presets import load_preset

GIN = RunConfig(model="gin", model_arguments={"hidden": 4, "num_layers": 1})


def test_one_member_has_the_c_of_an_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_paper_rule, "candidate_config", lambda name: GIN)
    committee = load_preset("best").committee
    store = planted_parts(num_graphs=30)
    write_tu(store, tmp_path / "TINY.zip")
    cell = {"dataset": "TINY", "candidate": measure_paper_rule.BASE, "companion": committee.companion}
    write_lines(tmp_path / "cells.json", [cell | {"members": committee.members, "weights": [1.0, 0.0]}])
    words = ["--sets", "TINY", "--root", str(tmp_path), "--device", "cpu", "--epochs", "3", "--folds", "3"]
    words += ["--precision", "float32", "--cells", str(tmp_path / "cells.json"), "--out", str(tmp_path)]

    main([*words, "--fit-companion"])
    assert (tmp_path / "companions" / "TINY.npz").exists()
    assert not (tmp_path / "paper-rule.json").exists()
    main([*words, "--members", "1"])
    (row,) = read_rows(tmp_path / "paper-rule.json")
    expected = cross_validate(store, GIN.with_training(epochs=3), folds=3, protocol="paper").estimates["C"]
    assert row["member_C"] == pytest.approx(expected.mean, abs=1e-3)
    assert np.mean(row["C"]["accuracy"]) == pytest.approx(expected.mean, abs=1e-3)
    assert row["mixture_C"] == row["C"]  # the companion has no weight

    main([*words, "--members", "2"])  # a data set that is there is left out
    assert [each["members"] for each in read_rows(tmp_path / "paper-rule.json")] == [1]
    main(["--merge", str(tmp_path), "--out", str(tmp_path / "all")])
    assert read_rows(tmp_path / "all" / "paper-rule.json") == [row]


def test_a_companion_is_fitted_to_all_other_folds(tmp_path: Path) -> None:
    store = planted_parts(num_graphs=30)
    folds = CrossValidation(store, GIN, folds=3, protocol="paper").folds
    found = companion_probabilities(store, folds, tmp_path)
    accuracy = [
        float((rows.argmax(-1) == store.y[folds.paper(fold).test].numpy()).mean())
        for fold, rows in enumerate(found)
    ]
    expected = cross_validate(store, RunConfig(model="wl-forest"), folds=3, protocol="paper")
    assert 100 * np.mean(accuracy) == pytest.approx(expected.estimates["C"].mean)


def test_data_sets_without_a_stored_weight_are_not_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_paper_rule, "candidate_config", lambda name: GIN)
    write_tu(planted_parts(num_graphs=30), tmp_path / "TINY.zip")
    words = ["--sets", "TINY", "--root", str(tmp_path), "--device", "cpu", "--precision", "float32"]
    main([*words, "--cells", str(tmp_path / "none.json"), "--out", str(tmp_path)])
    assert "TINY: not started, no weight is stored" in capsys.readouterr().out
    main(["--sets", "MUTAG", "--budget", "1", "--out", str(tmp_path), "--device", "cpu"])
    assert "MUTAG: not started, 1 s left" in capsys.readouterr().out
