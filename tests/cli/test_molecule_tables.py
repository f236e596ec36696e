"""``predict`` and ``explain`` on tables of molecules: invalid rows, and graphs selected by id."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from graphcaps import HGCNClassifier
from graphcaps.cli.main import app
from graphcaps.explanation.report.report_data import read_block

pytest.importorskip("rdkit", reason="molecules need the extra chem")
pytestmark = pytest.mark.usefixtures("isolated_folders")

TEXTS = ("CCO", "C1CC", "CC(=O)O", "", "CCS", "OCCC")
REASON = "it is not a valid SMILES: invalid SMILES syntax"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["CCO", "CCN", "CCCO", "c1ccccc1", "c1ccccc1O", "Cc1ccccc1N"] * 2
    classifier = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=2, device="cpu", random_state=0
    )
    classifier.fit(texts, ["yes" if "c" in text else "no" for text in texts])
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    classifier.save(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "new.csv", [f"N{i:03d},{text},no" for i, text in enumerate(TEXTS, 1)])


def write_table(path: Path, lines: list[str], heading: str = "id,smiles,kind") -> Path:
    path.write_text("\n".join([heading, *lines]) + "\n", "utf-8")
    return path


def run(verb: str, *words: object) -> Result:
    return CliRunner().invoke(app, [verb, *map(str, words), "--device", "cpu"], env={"COLUMNS": "160"})


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


# ---------------------------------------------------------------------- predict
def test_an_invalid_row_keeps_its_number(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    result = run("predict", model, table, "--label", "kind", "--out", out)
    assert result.exit_code == 0, result.output
    rows = rows_of(out)
    assert [row["graph"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert [row["id"] for row in rows] == [f"N{i:03d}" for i in range(1, 7)]
    assert [bool(row["class"]) for row in rows] == [True, False, True, False, True, True]
    assert rows[1]["error"] == REASON
    assert rows[3]["error"].endswith("the entry is empty")
    assert {key for key, value in rows[1].items() if value} == {"graph", "id", "error"}
    assert [row["true_class"] for row in rows] == ["no", "", "no", "", "no", "no"]
    assert "4 of 6 graphs" in result.stdout
    assert result.stderr.startswith(
        f"graphcaps: warning: 2 of 6 graphs could not be predicted. Graph 2 (N002): {REASON}."
    )
    assert "left out" not in result.stderr
    # Each row has the prediction of its own molecule.
    alone = write_table(tmp_path / "alone.csv", ["x,OCCC"], "id,smiles")
    assert run("predict", model, alone, "--out", tmp_path / "alone.out.csv").exit_code == 0
    (one,) = rows_of(tmp_path / "alone.out.csv")
    assert float(one["probability"]) == pytest.approx(float(rows[5]["probability"]), rel=1e-5)
    summary = json.loads(run("predict", model, table, "--json").stdout)["summary"]
    assert (summary["graphs"], summary["predicted"], summary["failed"]) == (6, 4, 2)


@pytest.mark.parametrize("unseen", ["refuse", "ignore"])
def test_unseen_elements_and_bonds_are_predicted_with_a_note(model: Path, table: Path, unseen: str) -> None:
    result = run("predict", model, table, "--unseen", unseen)
    assert result.exit_code == 0, result.output
    sentence = (
        "2 of 6 molecules have values that no training molecule has, read as 'other'. "
        "Molecule 3 (N003): bond type double on 1 bond."
    )
    assert sentence in result.stderr.splitlines()
    assert "4 of 6 graphs" in result.stdout
    assert json.loads(run("predict", model, table, "--json").stdout)["notes"] == [sentence]
    explained = run("explain", model, table, "--graph", "N005")
    assert explained.exit_code == 0, explained.output
    expected = "1 of 1 molecules has values that no training molecule has, read as 'other'. "
    assert f"{expected}Molecule 5 (N005): element S on 1 atom." in explained.stderr


def test_the_option_bad_refuses_or_skips_invalid_rows(model: Path, table: Path, tmp_path: Path) -> None:
    refused = run("predict", model, table, "--bad", "refuse", "--out", tmp_path / "out.csv")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "new.csv, line 3: expected a molecule in SMILES" in refused.stderr
    assert not (tmp_path / "out.csv").exists()
    assert run("predict", model, table, "--bad", "skip", "--out", tmp_path / "out.csv").exit_code == 0
    rows = rows_of(tmp_path / "out.csv")
    assert [(row["graph"], row["id"]) for row in rows] == [
        ("1", "N001"), ("2", "N003"), ("3", "N005"), ("4", "N006"),
    ]  # fmt: skip


def test_a_table_without_a_valid_molecule_ends_with_2(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "none.csv", ["a,C1CC", "b,x"], "id,smiles")
    result = run("predict", model, table)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "at least one molecule in SMILES" in result.stderr


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_a_table_without_a_valid_molecule_gets_a_row_with_the_reason_of_each(
    model: Path, tmp_path: Path, suffix: str
) -> None:
    table, out = write_table(tmp_path / "none.csv", ["a,C1CC", "b,x"], "id,smiles"), tmp_path / f"out{suffix}"
    result = run("predict", model, table, "--out", out)
    assert result.exit_code == 2
    assert "predicted  0 of 2 graphs" in result.stdout
    assert result.stderr.splitlines()[-1] == (
        f"graphcaps: {table}: expected at least one molecule in SMILES, found none (graph 1: {REASON}). "
        f"{out} has the reason for each row."
    )
    text = out.read_text("utf-8")
    rows: list[dict[str, Any]]
    if suffix == ".csv":
        rows = [{**row} for row in rows_of(out)]
    else:
        rows = json.loads(text)["predictions"] if suffix == ".json" else [*map(json.loads, text.splitlines())]
    assert [(row["id"], row["class"] or "", row["error"]) for row in rows] == [
        ("a", "", REASON),
        ("b", "", REASON),
    ]
    summary = json.loads(Path(f"{out}.config.json").read_text("utf-8"))["summary"]
    assert (summary["graphs"], summary["failed"]) == (2, 2)


def test_json_of_a_table_without_a_valid_molecule_has_its_rows(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "none.csv", ["a,C1CC"], "id,smiles")
    result = run("predict", model, table, "--json")
    assert result.exit_code == 2
    assert [row["error"] for row in json.loads(result.stdout)["predictions"]] == [REASON]
    for words in (("--bad", "skip"), ("--bad", "refuse")):
        assert run("predict", model, table, "--json", *words).stdout == ""
    assert run("explain", model, table, "--graph", "1").exit_code == 2


def test_ids_are_shown_unless_they_are_line_numbers(model: Path, table: Path, tmp_path: Path) -> None:
    lines = run("predict", model, table).stdout.splitlines()
    assert lines[0].split() == ["graph", "id", "class", "probability", "used", "in", "error"]
    assert lines[1].split()[:2] == ["1", "N001"]
    unnamed = write_table(tmp_path / "lines.csv", ["CCO", "C1CC"], "smiles")
    result = run("predict", model, unnamed)
    assert result.stdout.splitlines()[0].split() == ["graph", "class", "probability", "used", "in", "error"]
    assert f"Graph 2: {REASON}." in result.stderr


def test_the_warning_on_out_of_distribution_graphs_has_singular_and_plural(
    model: Path, tmp_path: Path
) -> None:
    one = write_table(tmp_path / "one.csv", ["big," + "C" * 300, "small,CCO"], "id,smiles")
    assert "1 of 2 graphs is out of distribution. Graph 1 (big): " in run("predict", model, one).stderr
    two = write_table(tmp_path / "two.csv", ["a," + "C" * 300, "b," + "C" * 400], "id,smiles")
    assert "2 of 2 graphs are out of distribution." in run("predict", model, two).stderr


# ---------------------------------------------------------------------- explain
def test_a_graph_is_selected_by_id_or_row(model: Path, table: Path) -> None:
    for graph in ("N003", "3", " N003 "):
        result = run("explain", model, table, "--graph", graph)
        assert result.exit_code == 0, result.output
        assert "graph      3 (N003) of new: 4 nodes" in result.stdout
    explanation = json.loads(run("explain", model, table, "--graph", "N003", "--json").stdout)["explanation"]
    assert (explanation["graph"], explanation["id"], explanation["num_nodes"]) == (3, "N003", 4)
    skipped = run("explain", model, table, "--graph", "2", "--bad", "skip")
    assert "graph      2 (N003) of new" in skipped.stdout


def test_a_number_that_is_also_an_id_is_noted_and_both_can_be_named(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "ids.csv", ["2,CCO", "1,COC", "3,CCCC", "id:9,CCN"], "id,smiles")

    def explained(name: str) -> tuple[int, str]:
        result = run("explain", model, table, "--graph", name, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["explanation"]["graph"], result.stderr

    number, errors = explained("2")
    assert number == 2
    assert errors == ("--graph 2 is graph 2, whose id is 1; --graph id:2 explains graph 1, whose id is 2.\n")
    assert explained("id:2") == (1, "")
    assert explained("3") == (3, "")  # also its id
    assert explained("id:9") == explained("id: id:9") == (4, "")
    result = run("explain", model, table, "--graph", "id:8")
    assert "'--graph' must be a number from 1 to 4 or an id, such as 2, got 'id:8'." in result.stderr


def test_the_option_id_names_the_column_of_ids(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", ["7,CCO", "9,CCCO", "9,CC"], "code,smiles")
    result = run("explain", model, table, "--id", "code", "--graph", "7")
    assert "graph      1 (7) of t: 3 nodes" in result.stdout  # no seventh graph: it is an id
    assert (
        "graph      3 (9) of t: 2 nodes"
        in run("explain", model, table, "--id", "code", "--graph", "3").stdout
    )
    twice = run("explain", model, table, "--id", "code", "--graph", "9")
    assert (twice.exit_code, twice.stdout) == (2, "")
    assert "'--graph' must name one graph, got '9', the id of 2, such as 2 (9)." in twice.stderr


def test_a_table_with_invalid_rows_is_explained_without_them(model: Path, tmp_path: Path) -> None:
    """As predict reads it; the page names the rows, and messages count them."""
    table = write_table(tmp_path / "new.csv", [f"{text},no" for text in TEXTS], "smiles,kind")
    result = run("explain", model, table, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    assert "2 rows hold no valid molecule and were left out: lines 3, 5." in result.stderr
    assert "Molecule 3: bond type double on 1 bond." in result.stderr
    (block,) = re.findall(r'id="data">([^<]*)<', (tmp_path / "report" / "index.html").read_text("utf-8"))
    assert read_block(block)[0]["ids"] == ["row 1", "row 3", "row 5", "row 6"]
    refused = run("explain", model, table, "--bad", "refuse")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_row_without_an_id_is_named_by_its_line(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", ["a,CCO", ",CCCO"], "code,smiles")
    result = run("predict", model, table, "--id", "code", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert [row["id"] for row in rows_of(tmp_path / "out.csv")] == ["a", "line 3"]
    assert (
        "1 of 2 rows has no entry in column 'code'; a row without one is named by its line." in result.stderr
    )


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("nix", "'--graph' must be a number from 1 to 6 or an id, such as N001, got 'nix'."),
        ("7", "'--graph' must be a number from 1 to 6 or an id, such as N001, got 7."),
        ("2", "new.csv, line 3: expected a molecule in SMILES, found 'C1CC': invalid SMILES syntax"),
    ],
)
def test_invalid_graphs_end_with_2_and_one_sentence(
    model: Path, table: Path, graph: str, message: str
) -> None:
    result = run("explain", model, table, "--graph", graph)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_line_numbers_are_not_ids(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "lines.csv", ["CCO", "CCCO"], "smiles")
    result = run("explain", model, table, "--graph", "3")  # line 3 is the second graph
    assert result.exit_code == 2
    assert "must be a number from 1 to 2, got 3." in result.stderr


def test_a_molecule_is_drawn_as_pdf(model: Path, table: Path, tmp_path: Path) -> None:
    path: Any = tmp_path / "why.pdf"
    assert run("explain", model, table, "--graph", "N003", "--draw", path).exit_code == 0
    assert path.read_bytes().startswith(b"%PDF")
