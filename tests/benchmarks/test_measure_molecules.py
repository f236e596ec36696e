"""Molecules as arrays, candidates that are selected by validation, and rows of the summary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.measure_molecules import (
    CANDIDATES,
    METRICS,
    Candidate,
    candidates_of,
    main,
    measure,
    parse,
    read_rows,
    summary_rows,
)
from benchmarks.molecule_arrays import MoleculeArrays, load_molecules, read_molecules, save_molecules

from benchmarks import measure_molecules
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.seeded_splits import random_split
from graphcaps.evaluation.committee_results import committee_predictions
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.metrics import class_metrics
from tests.cli.training import PRESET

pytestmark = pytest.mark.usefixtures("isolated_folders")


@pytest.fixture
def arrays() -> MoleculeArrays:
    """Graphs in the place of molecules, with two splits."""
    store = planted_parts(num_graphs=60)
    assert store.y is not None
    splits = tuple(random_split(store.y, (0.6, 0.2, 0.2), seed) for seed in (0, 1))
    return MoleculeArrays(store, splits, 1.5)


def test_the_best_candidate_by_validation_is_tested(
    arrays: MoleculeArrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(PRESET.format(epochs=2))
    words = ["--arrays", str(tmp_path), "--sets", "bace", "--preset", str(tmp_path / "small.toml")]
    words += ["--device", "cpu", "--splits", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(measure_molecules, "load_molecules", lambda path: arrays)
    main([*words, "--epochs", "1", "2", "--metric", "roc-auc"])
    (result,) = json.loads((tmp_path / "out" / "molecules.json").read_text("utf-8"))
    areas = [each["validation_roc_auc"] for each in result["candidates"]]
    assert [each["epochs"] for each in result["candidates"]] == [1, 2]
    assert result["candidate"]["epochs"] == [1, 2][int(np.argmax(areas))]
    assert np.mean([each["roc_auc"] for each in result["validation"]]) == max(areas)
    assert [set(each) for each in result["test"]] == [set(METRICS)] * 2
    assert result["seconds"]["read"] == 1.5
    assert min(result["seconds"].values()) > 0
    rows = read_rows(tmp_path / "out" / "summary.csv")
    assert rows == summary_rows(result)
    assert [(row["dataset"], row["model"], row["seed"]) for row in rows] == [
        ("bace", "hgcn", "0"),
        ("bace", "hgcn", "1"),
    ]
    assert rows[1]["roc_auc"] == f"{result['test'][1]['roc_auc']:.4f}"
    main(["--merge", str(tmp_path / "out" / "molecules.json"), "--out", str(tmp_path / "merged")])
    assert read_rows(tmp_path / "merged" / "summary.csv") == rows


def test_no_candidate_begins_after_the_time_limit(arrays: MoleculeArrays, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(PRESET.format(epochs=1))
    words = ["--arrays", ".", "--preset", str(tmp_path / "small.toml"), "--device", "cpu", "--minutes", "0"]
    options = parse([*words, "--splits", "1"])
    options.began = 0.0
    result = measure("hiv", arrays, [Candidate(), Candidate("balanced")], options)
    assert [each["class_weight"] for each in result["candidates"]] == [None]


def test_committees_are_trained_split_by_split_and_continued(
    arrays: MoleculeArrays,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "small.toml").write_text(PRESET.format(epochs=1))
    words = ["--arrays", str(tmp_path), "--sets", "bace", "--preset", str(tmp_path / "small.toml")]
    words += ["--device", "cpu", "--members", "2", "--together", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(measure_molecules, "load_molecules", lambda path: arrays)
    main([*words, "--minutes", "0"])
    (first,) = json.loads((tmp_path / "out" / "molecules.json").read_text("utf-8"))
    assert (first["model"], first["members"], first["split_seeds"]) == ("hgcn, committee of 2", 2, [0])
    assert "1 splits not trained" in capsys.readouterr().out
    main(words)
    (both,) = json.loads((tmp_path / "out" / "molecules.json").read_text("utf-8"))
    assert both["split_seeds"] == [0, 1]
    assert both["test"][0] == first["test"][0]  # from the record of the first call
    members = [
        record.predictions for record in ResultsStore(tmp_path / "out" / "records" / "bace-split1").records()
    ]
    p = committee_predictions([each for each in members if each is not None])
    rows = p.part == 1
    assert both["test"][1]["roc_auc"] == pytest.approx(
        class_metrics(p.y[rows], p.probabilities[rows])["roc_auc"]
    )


def test_candidates_are_combinations_of_options() -> None:
    words = ["--arrays", "."]
    assert candidates_of("hiv", parse(words)) == CANDIDATES["hiv"]
    given = candidates_of(
        "bace", parse([*words, "--class-weight", "none", "balanced", "--weight-decay", "0.1"])
    )
    assert given == (Candidate(None, 0.1), Candidate("balanced", 0.1))
    assert given[1].title == "balanced, decay 0.1, by loss"
    assert candidates_of("hiv", parse([*words, "--model", "ecfp-forest"])) == (Candidate(),)


def test_saved_molecules_are_those_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    lines = [f"{'C' * n}{ring},{n % 2}" for n in range(8) for ring in ("c1ccccc1", "C1CC1", "O", "N")]
    (tmp_path / "bace.csv").write_text("smiles,Class\n" + "\n".join(lines[1:]) + "\n")
    save_molecules(tmp_path / "bace.csv", tmp_path / "m.npz", featurizer="standard", seeds=range(2))
    read, saved = read_molecules(tmp_path / "bace.csv", seeds=range(2)), load_molecules(tmp_path / "m.npz")
    assert saved.read_seconds > 0
    assert (saved.store.y == read.store.y).all()  # type: ignore[attr-defined, union-attr]
    assert (saved.store.edge_labels == read.store.edge_labels).all()  # type: ignore[attr-defined, union-attr]
    assert saved.store.smiles is None
    for one, other in zip(saved.splits, read.splits, strict=True):
        assert one.seed == other.seed
        for part in ("train", "validation", "test"):
            assert sorted(getattr(one, part).tolist()) == sorted(getattr(other, part).tolist())
