"""A table of molecules as people have them: byte-order mark, Windows line ends, missing labels, salts, copies."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import graphcaps
from graphcaps.cli.main import app
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.explanation.report.report_data import read_block
from tests.small_models import train_small

pytest.importorskip("rdkit", reason="molecules need the extra chem")
pytestmark = pytest.mark.usefixtures("isolated_folders")

ROWS = [
    *(f"{'C' * n}O,{1 if n % 2 else '1.0'}" for n in range(2, 22)),
    *(f"{'C' * n}N,{0 if n % 2 else '0.0'}" for n in range(2, 22)),
    "CC(=O)[O-].[Na+], 0 ",
    " CCC(=O)[O-].[K+],1",
    "OCC,1",  # CCO again
    "NCC,1",  # CCN again, with another label
    "CCS,",
    "CCCS,NaN",
    "C1CC,1",
]
COLUMNS = ("--label", "active", "--bad", "skip")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "messy.csv", ["smiles,active", *ROWS])


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    return path


def run(verb: str, *words: object) -> Result:
    return CliRunner().invoke(app, [*verb.split(), *map(str, words)], env={"COLUMNS": "160"})


def train(table: Path, out: Path, *words: object) -> Result:
    small = ("--epochs", 2, "--model", "gin", "--device", "cpu", "--out", out)
    result = run("train", table, *COLUMNS, *small, *words)
    assert result.exit_code == 0, result.output
    return result


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def test_predictions_of_repeated_splits_have_ids_and_seeds(tmp_path: Path) -> None:
    lines = [f"{'C' * n}{end},{end},M-{end}{n}" for end in "ON" for n in range(1, 21)]
    table = write(tmp_path / "named.csv", ["smiles,active,code", *lines])
    words = ("--id", "code", "--label", "active", "--epochs", 1, "--model", "gin", "--device", "cpu")
    out = tmp_path / "p.csv"
    seeds = ("--split", "random", "--repeat", 2, "--seed", 3, "--seeds", 2)
    result = run("evaluate", table, *words, *seeds, "--no-baseline", "--predictions", out)
    assert result.exit_code == 0, result.output
    rows = rows_of(out)
    assert {(row["seed"], row["fold"], row["split_seed"]) for row in rows} == {
        *(("0", "1", "3"), ("0", "2", "4"), ("1", "1", "3"), ("1", "2", "4"))
    }
    assert all(row["id"] == f"M-{row['label']}{len(row['smiles']) - 1}" for row in rows)
    folds = run("evaluate", table, *words, "--folds", 3, "--no-baseline", "--predictions", out)
    assert folds.exit_code == 0, folds.output
    assert "split_seed" not in rows_of(out)[0]
    missing = run("train", table, "--id", "nome", "--label", "active", "--out", tmp_path / "m.safetensors")
    assert missing.exit_code == 2
    assert "'nome'" in missing.stderr


def test_training_says_what_was_left_out(table: Path, tmp_path: Path) -> None:
    result = train(table, tmp_path / "m.safetensors")
    lines = result.stderr.splitlines()
    assert lines[:4] == [
        "1 row holds no valid molecule and was left out: line 48.",
        "2 rows without a label were left out: lines 46, 47.",
        "2 of 44 molecules have several fragments (salts, mixtures); --fragments largest keeps the largest of each.",
        "2 molecules are in more than one row (2 further rows), 1 of them with different labels; all rows are kept. "
        "--duplicates first keeps one row of each, --duplicates drop-contradicting leaves those out.",
    ]
    assert graphcaps.load(tmp_path / "m.safetensors").class_names == ("0", "1")


def test_a_missing_label_is_refused_without_skip(table: Path, tmp_path: Path) -> None:
    result = run("train", table, "--label", "active", "--out", tmp_path / "m.safetensors")
    assert result.exit_code == 2
    assert (
        "messy.csv, line 46: expected a label in column 'active', found an empty entry (2 such rows)."
        in result.stderr
    )
    assert "--bad skip" in result.stderr


def test_the_fragments_of_the_training_are_used_for_predictions(table: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    train(table, model, "--fragments", "largest", "--duplicates", "drop-contradicting")
    assert graphcaps.load(model).recipe.fragments == "largest"
    assert graphcaps.load(model).training["graphs"] == 42
    salts = write(tmp_path / "salts.csv", ["smiles,kind", "CC(=O)[O-].[Na+],1.0", "CC(=O)[O-],", "CCO,0"])
    out = tmp_path / "out.csv"
    result = run("predict", model, salts, "--out", out, "--label", "kind", "--device", "cpu")
    assert result.exit_code == 0, result.output
    rows = rows_of(out)
    assert [row["error"] for row in rows] == ["", "", ""]
    assert rows[0]["probability"] == rows[1]["probability"]
    assert [row["true_class"] for row in rows] == ["1", "", "0"]  # a row without a label is predicted
    by_library = graphcaps.load(model).predict_proba(["CC(=O)[O-].[Na+]", "CC(=O)[O-]"])
    assert by_library[0].tolist() == by_library[1].tolist()
    other = run("predict", model, salts, "--fragments", "all", "--unseen", "ignore", "--device", "cpu")
    assert "The model was trained with --fragments largest." in other.stderr
    lines = [" ".join(line.split()) for line in run("info", model).stdout.splitlines()]
    assert "fragments the largest of each molecule" in lines


def test_rows_that_training_left_out_are_not_new_to_the_model(table: Path, tmp_path: Path) -> None:
    """CCN is in two rows with different labels: half of these must be wrong, which says nothing about the model."""
    file, out = tmp_path / "m.safetensors", tmp_path / "out.csv"
    train(table, file, "--model", "hgcn", "--duplicates", "drop-contradicting", "--no-baseline")
    words = (file, table, "--label", "active", "--device", "cpu")
    result = run("predict", *words, "--out", out)
    left_out = [row["graph"] for row in rows_of(out) if row["used_in"] == "left-out"]
    assert left_out == ["21", "44"]
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "accuracy no figure: none of the graphs is new to this model" in lines
    sentence = "50.00 % of 2 graphs that training left out, since copies have different labels"
    assert f"left-out graphs {sentence}" in lines
    recorded = json.loads(run("info", file, "--json").stdout)["recorded_graphs"]
    assert recorded["left-out"] == 1
    shown = run("explain", *words, "--out", tmp_path / "report").stdout
    assert "new graphs" not in shown.replace("says nothing about new graphs", "")
    assert "accuracy on left-out graphs 50.0 %: 1 of 2 graphs that training left out" in " ".join(
        shown.split()
    )
    assert "--out report" not in shown  # a hint for those without a page


def test_copies_in_several_parts_are_said(table: Path, tmp_path: Path) -> None:
    parts = [f"{row},{'test' if index % 4 == 0 else 'train'}" for index, row in enumerate(ROWS[:44])]
    split = write(tmp_path / "split.csv", ["smiles,active,part", *parts])
    result = train(split, tmp_path / "m.safetensors", "--split", "part")
    for labels in ("one label, so that results", "different labels, so that a model"):
        assert f"1 molecule is in more than one part of the split with {labels}" in result.stderr
    folds = run("evaluate", table, *COLUMNS, "--model", "wl-forest", "--folds", 3, "--device", "cpu")
    assert folds.exit_code == 0, folds.output
    assert (
        "messy: Copies of 2 molecules may be in different folds; --groups copies keeps them in one."
        in folds.stderr
    )
    grouped = run(
        "evaluate",
        table,
        *COLUMNS,
        "--model",
        "wl-forest",
        "--folds",
        3,
        "--groups",
        "copies",
        "--device",
        "cpu",
    )
    assert "may be in different folds" not in grouped.stderr


def test_data_check_and_info_list_the_same_notes(table: Path) -> None:
    checked = json.loads(run("data check", table, *COLUMNS, "--no-forecast", "--json").stdout)
    assert len(checked["reading"]) == 4
    info = json.loads(run("data info", table, *COLUMNS, "--fragments", "largest", "--json").stdout)
    assert (
        "2 of 44 molecules have several fragments (salts, mixtures); the largest of each was kept."
        in info["reading"]
    )
    assert {row["kind"] for row in info["skipped"]} == {"molecule", "label"}


@pytest.fixture(scope="module")
def small_hgcn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    smiles, labels = zip(*(row.split(",") for row in ROWS[:40]), strict=True)
    store = from_smiles([*smiles], [label[0] for label in labels])
    path = tmp_path_factory.mktemp("small") / "m.safetensors"
    train_small(store, epochs=1).save(path)
    return path


def test_explain_keeps_the_labels_of_the_other_rows(small_hgcn: Path, tmp_path: Path) -> None:
    """One row without a label, and one with a label that is no class of the model."""
    table = write(tmp_path / "new.csv", ["smiles,active", "CCO,1", "CCN,", "CCCO,1.0", "CCCCN,0", "CN,7"])
    words = (small_hgcn, table, "--label", "active", "--device", "cpu")
    result = run("explain", *words, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "of 3 graphs" in shown
    assert "95 % interval" in shown
    assert "2 graphs have no label among the classes of the model; accuracies are over the other 3." in shown
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    (block,) = re.findall(r'id="data">([^<]*)<', page)
    meta, columns = read_block(block)
    assert columns["true_class"].tolist() == [1, -1, 1, 0, -1]
    assert sum(map(sum, meta["sets"][0]["confusion"])) == 3
    for graph, known in ((1, "1"), (2, None), (4, "0")):
        one = json.loads(run("explain", *words, "--graph", graph, "--json").stdout)
        assert one["explanation"]["true_class"] == known
    metrics = json.loads(run("explain", *words, "--measure", "--methods", "capsules", "--json").stdout)
    assert metrics["classes_right"] is not None


def test_explain_skips_invalid_molecules_and_keeps_rows_without_a_label(
    small_hgcn: Path, tmp_path: Path
) -> None:
    table = write(tmp_path / "new.csv", ["smiles,active", "CCO,1", "CCN,", "C1CC,0"])
    words = ("explain", small_hgcn, table, "--label", "active", "--device", "cpu")
    refused = run(*words, "--bad", "refuse")
    assert refused.exit_code == 2
    assert "line 4" in refused.stderr
    for option in ((), ("--bad", "skip")):
        skipped = run(*words, *option, "--json")
        assert json.loads(skipped.stdout)["graphs"] == 2
        assert skipped.stderr.splitlines() == ["1 row holds no valid molecule and was left out: line 4."]


def test_predict_leaves_out_labels_that_are_no_classes_of_the_model(small_hgcn: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "new.csv", ["smiles,active", "CCO,1", "CCN,maybe", "CCCO,1", "CN,7", "CO,maybe"])
    words = ("predict", small_hgcn, table, "--label", "active", "--device", "cpu")
    shown = run(*words)
    assert (
        "3 graphs have labels that are no class of the model and not counted in any figure: 'maybe' (2), '7' (1). "
        "The model has '0', '1'." in shown.stderr
    )
    assert "of 2 graphs with a predicted class" in shown.stdout
    summary = json.loads(run(*words, "--json").stdout)["summary"]
    assert summary["accuracies"]["unknown"]["graphs"] == 2
    assert summary["other_labels"] == {"maybe": 2, "7": 1}


def test_edge_lists_with_missing_labels(tmp_path: Path) -> None:
    edges = [f"g{n},{k},{k + 1}" for n in range(20) for k in range(3 + n % 2 * 3)]
    write(tmp_path / "edges.csv", ["graph,source,target", *edges])
    write(
        tmp_path / "graphs.csv",
        ["graph,label", *(f"g{n},{'' if n > 17 else 'ab'[n % 2]}" for n in range(20))],
    )
    model, out = tmp_path / "m.safetensors", tmp_path / "out.csv"
    small = ("--epochs", 2, "--model", "gin", "--device", "cpu", "--out", model)
    refused = run("train", tmp_path, *small)
    assert refused.exit_code == 2
    assert "graphs.csv, line 20: expected a label in column 'label'" in refused.stderr
    trained = run("train", tmp_path, "--bad", "skip", *small)
    assert trained.exit_code == 0, trained.output
    assert trained.stderr.splitlines()[0] == "2 rows without a label were left out: lines 20, 21."
    predicted = run("predict", model, tmp_path, "--out", out, "--device", "cpu")
    assert predicted.exit_code == 0, predicted.output
    rows = rows_of(out)
    assert [row["true_class"] for row in rows[-3:]] == ["b", "", ""]
    assert all(row["class"] for row in rows)
    assert len(graphcaps.load(model).predict(tmp_path)) == 20
