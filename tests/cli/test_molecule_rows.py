"""Tables of new molecules: rows that are none keep their place, and graphs are called by their ids."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from graphcaps import HGCNClassifier
from graphcaps.cli.main import app

pytest.importorskip("rdkit", reason="molecules need the extra chem")
pytestmark = pytest.mark.usefixtures("isolated_folders")

TEXTS = ("CCO", "C1CC", "CC(=O)O", "", "CCS", "OCCC")
REASON = "it is not a valid SMILES: invalid SMILES syntax"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["CCO", "CCN", "CCCO", "c1ccccc1", "c1ccccc1O", "Cc1ccccc1N"] * 2
    found = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=2, device="cpu", random_state=0
    )
    found.fit(texts, ["yes" if "c" in text else "no" for text in texts])
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    found.save(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path / "new.csv", [f"N{i:03d},{text},no" for i, text in enumerate(TEXTS, 1)])


def written(path: Path, lines: list[str], heading: str = "id,smiles,kind") -> Path:
    path.write_text("\n".join([heading, *lines]) + "\n", "utf-8")
    return path


def run(verb: str, *words: object) -> Result:
    return CliRunner().invoke(app, [verb, *map(str, words), "--device", "cpu"], env={"COLUMNS": "160"})


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


# ---------------------------------------------------------------------- predict
def test_a_row_that_is_no_molecule_keeps_its_place(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    done = run("predict", model, table, "--label", "kind", "--out", out)
    assert done.exit_code == 0, done.output
    rows = rows_of(out)
    assert [row["graph"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert [row["id"] for row in rows] == [f"N{i:03d}" for i in range(1, 7)]
    assert [bool(row["class"]) for row in rows] == [True, False, True, False, False, True]
    assert rows[1]["error"] == REASON
    assert rows[3]["error"].endswith("the entry is empty")
    assert rows[4]["error"] == "element S, on 1 atom, not seen in training"
    assert {key for key, value in rows[1].items() if value} == {"graph", "id", "error"}
    assert [row["true_class"] for row in rows] == ["no", "", "no", "", "no", "no"]
    assert "3 of 6 graphs" in done.stdout
    assert done.stderr.startswith(
        f"graphcaps: warning: 3 of 6 graphs could not be predicted. Graph 2 (N002): {REASON}."
    )
    assert "left out" not in done.stderr
    # What is predicted belongs to its row.
    alone = written(tmp_path / "alone.csv", ["x,OCCC"], "id,smiles")
    assert run("predict", model, alone, "--out", tmp_path / "alone.out.csv").exit_code == 0
    (one,) = rows_of(tmp_path / "alone.out.csv")
    assert float(one["probability"]) == pytest.approx(float(rows[5]["probability"]), rel=1e-5)
    summary = json.loads(run("predict", model, table, "--json").stdout)["summary"]
    assert (summary["graphs"], summary["predicted"], summary["failed"]) == (6, 3, 3)


def test_labels_read_as_zeros_are_told_of_the_right_row(model: Path, table: Path) -> None:
    done = run("predict", model, table, "--unseen", "ignore")
    assert done.exit_code == 0, done.output
    assert "Graph 5 (N005): element S, on 1 atom" in done.stderr
    assert "4 of 6 graphs" in done.stdout


def test_bad_rows_are_refused_or_left_out_where_that_is_asked_for(
    model: Path, table: Path, tmp_path: Path
) -> None:
    refused = run("predict", model, table, "--bad", "refuse", "--out", tmp_path / "out.csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "new.csv, line 3: expected a molecule in SMILES" in refused.stderr
    assert not (tmp_path / "out.csv").exists()
    assert run("predict", model, table, "--bad", "skip", "--out", tmp_path / "out.csv").exit_code == 0
    rows = rows_of(tmp_path / "out.csv")
    assert [(row["graph"], row["id"]) for row in rows] == [
        ("1", "N001"), ("2", "N003"), ("3", "N005"), ("4", "N006"),
    ]  # fmt: skip


def test_no_molecule_at_all_ends_with_2(model: Path, tmp_path: Path) -> None:
    table = written(tmp_path / "none.csv", ["a,C1CC", "b,x"], "id,smiles")
    done = run("predict", model, table)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "at least one molecule in SMILES" in done.stderr
    table = written(tmp_path / "strange.csv", ["a,C1CC", "b,S"], "id,smiles")
    done = run("predict", model, table)
    assert done.exit_code == 2
    assert f"none (graph 1 (a): {REASON})" in done.stderr


def test_ids_are_shown_where_they_are_names(model: Path, table: Path, tmp_path: Path) -> None:
    shown = run("predict", model, table).stdout.splitlines()
    assert shown[0].split() == ["graph", "id", "class", "probability", "error"]
    assert shown[1].split()[:2] == ["1", "N001"]
    lines = written(tmp_path / "lines.csv", ["CCO", "C1CC"], "smiles")
    done = run("predict", model, lines)
    assert done.stdout.splitlines()[0].split() == ["graph", "class", "probability", "error"]
    assert f"Graph 2: {REASON}." in done.stderr


def test_one_stranger_is_and_two_are(model: Path, tmp_path: Path) -> None:
    one = written(tmp_path / "one.csv", ["big," + "C" * 300, "small,CCO"], "id,smiles")
    assert "1 of 2 graphs is out of distribution. Graph 1 (big): " in run("predict", model, one).stderr
    two = written(tmp_path / "two.csv", ["a," + "C" * 300, "b," + "C" * 400], "id,smiles")
    assert "2 of 2 graphs are out of distribution." in run("predict", model, two).stderr


# ---------------------------------------------------------------------- explain
def test_a_graph_is_explained_by_its_id_or_its_row(model: Path, table: Path) -> None:
    for asked in ("N003", "3", " N003 "):
        shown = run("explain", model, table, "--graph", asked)
        assert shown.exit_code == 0, shown.output
        assert "graph      3 (N003) of new: 4 nodes" in shown.stdout
    found = json.loads(run("explain", model, table, "--graph", "N003", "--json").stdout)["explanation"]
    assert (found["graph"], found["id"], found["num_nodes"]) == (3, "N003", 4)
    left = run("explain", model, table, "--graph", "2", "--bad", "skip")
    assert "graph      2 (N003) of new" in left.stdout


def test_the_column_of_ids_can_be_named(model: Path, tmp_path: Path) -> None:
    table = written(tmp_path / "t.csv", ["7,CCO", "9,CCCO", "9,CC"], "code,smiles")
    shown = run("explain", model, table, "--id", "code", "--graph", "7")
    assert "graph      1 (7) of t: 3 nodes" in shown.stdout  # no seventh graph: it is an id
    assert (
        "graph      3 (9) of t: 2 nodes"
        in run("explain", model, table, "--id", "code", "--graph", "3").stdout
    )
    twice = run("explain", model, table, "--id", "code", "--graph", "9")
    assert (twice.exit_code, twice.stdout) == (2, "")
    assert "'--graph' must name one graph, got '9', the id of 2, such as 2 (9)." in twice.stderr


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("nix", "'--graph' must be a number from 1 to 6 or an id, such as N001, got 'nix'."),
        ("7", "'--graph' must be a number from 1 to 6 or an id, such as N001, got 7."),
        ("2", "new.csv, line 3: expected a molecule in SMILES, found 'C1CC': invalid SMILES syntax"),
        ("N005", "found graph 5 (N005): element S, on 1 atom, not seen in training."),
    ],
)
def test_what_cannot_be_explained_is_told_in_a_sentence(
    model: Path, table: Path, asked: str, told: str
) -> None:
    shown = run("explain", model, table, "--graph", asked)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert told in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_lines_are_no_ids(model: Path, tmp_path: Path) -> None:
    table = written(tmp_path / "lines.csv", ["CCO", "CCCO"], "smiles")
    shown = run("explain", model, table, "--graph", "3")  # line 3 is the second graph
    assert shown.exit_code == 2
    assert "must be a number from 1 to 2, got 3." in shown.stderr


def test_a_pdf_of_a_molecule_shows_its_parts(model: Path, table: Path, tmp_path: Path) -> None:
    path: Any = tmp_path / "why.pdf"
    assert run("explain", model, table, "--graph", "N003", "--draw", path).exit_code == 0
    assert path.read_bytes().startswith(b"%PDF")
