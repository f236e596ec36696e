"""``graphcaps data check``: findings as text and as JSON, duplicate groups, and exit code 2 for invalid input."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app


@pytest.fixture(autouse=True)
def wide_terminal(isolated_folders, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def check(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


@pytest.fixture
def dataset(tmp_path):
    """Two isomorphic graphs of different classes, one edge in one direction only, one column constant."""
    folder = tmp_path / "OWN"
    folder.mkdir()
    (folder / "OWN_A.txt").write_text("1, 2\n2, 1\n2, 3\n5, 4\n4, 5\n5, 6\n6, 5\n")
    (folder / "OWN_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n2\n")
    (folder / "OWN_graph_labels.txt").write_text("7\n8\n")
    (folder / "OWN_node_attributes.txt").write_text("0, 1\n" * 3 + "0, 1\n" * 3)
    return folder


def test_findings_are_sentences(dataset):
    result = check(dataset)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert (
        "warning 1 edge of 4 listed in one direction only, read as undirected: if direction has a meaning, it is lost."
        in lines
    )
    assert "warning 2 classes with fewer than 10 graphs, too few for 10 folds: 7 (1), 8 (1)." in lines
    assert (
        "warning 2 of 2 node attribute columns with one value: attribute[0] is 0, attribute[1] is 1." in lines
    )
    assert (
        "note 2 classes: 7 (1), 8 (1). Always predicting the largest class, 7, has an accuracy of 50.0%."
        in lines
    )
    assert lines[-1] == "OWN can be read: 2 graphs; 5 warnings, 1 note."
    assert lines.index(next(line for line in lines if line.startswith("note"))) == 5


def test_a_table_without_labels_names_the_label_option(tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "molecules.csv").write_text("smiles,active\nCCO,1\nCCN,0\n")
    lines = [" ".join(line.split()) for line in check(tmp_path / "molecules.csv").stdout.splitlines()]
    note = "No class labels: the graphs can be predicted, not trained on (name the column with --label)."
    assert f"note {note}" in lines


def test_duplicates_name_the_groups_option(tmp_path):
    from graphcaps.data.datasets.planted_parts import planted_parts
    from graphcaps.data.readers.tu_writer import write_tu

    write_tu(planted_parts(num_graphs=30)[[n // 2 for n in range(60)]], tmp_path / "TWICE")
    text = " ".join(check(tmp_path / "TWICE", "--no-forecast").stdout.split())
    assert "per fold): graphcaps evaluate … --groups copies keeps them together." in text


def test_json_has_all_findings(dataset):
    report = json.loads(check(dataset, "--json").stdout)
    assert (report["name"], report["source"], report["graphs"]) == ("OWN", str(dataset), 2)
    assert (report["warnings"], report["notes"]) == (5, 1)
    conflict = next(entry for entry in report["findings"] if entry["kind"] == "conflicting-duplicates")
    assert set(conflict) == {"kind", "severity", "sentence", "count", "graphs"}
    assert (conflict["severity"], conflict["count"], conflict["graphs"]) == ("warning", 1, [0, 1])
    assert report["duplicates"] == {"graphs": 2, "groups": 1, "unsure_graphs": 0, "unsure_groups": 0}
    assert (report["ceiling"], report["leakage"], report["forecast"]) == (0.5, None, None)


def test_report_of_an_embedded_set():
    report = json.loads(check("planted-parts", "--json").stdout)
    assert (report["source"], report["graphs"], report["warnings"]) == (None, 360, 0)
    assert report["leakage"] == {"folds": 10, "mean": 0.0389, "min": 0.0, "max": 0.1111}
    forecast = report["forecast"]
    assert forecast["bytes"] > 1e5
    assert forecast["seconds_per_epoch"] > 0
    assert forecast["sentence"].startswith(
        "On this computer's CPU, as busy as it is now, a training of 60 epochs"
    )
    assert json.loads(check("planted-parts", "--json", "--no-forecast").stdout)["forecast"] is None


def test_groups_of_copies_are_written(dataset, tmp_path):
    result = check(dataset, "--groups", tmp_path / "groups.csv")
    assert "Groups of duplicates: " in result.stdout
    assert (tmp_path / "groups.csv").read_text() == (
        "graph,id,class,group,size,confirmed\n1,,7,0,2,yes\n2,,8,0,2,yes\n"
    )
    result = check(dataset, "--groups", tmp_path / "no" / "groups.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Create the folder first." in result.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (40, "40 s"), (600, "10 minutes"), (9000, "2.5 hours"), (72000, "20 hours")],
)
def test_durations_have_readable_units(seconds, text):
    from graphcaps.cli.data import _time

    assert _time(seconds) == text


def test_a_name_is_looked_up_under_root(dataset):
    assert "OWN can be read: 2 graphs" in check("OWN", "--root", dataset.parent).stdout


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("OWN_A.txt", "1, 9\n", "OWN/OWN_A.txt, line 1: expected node ids from 1 to 6, found 9."),
        (
            "OWN_A.txt",
            "1, 4\n",
            "OWN/OWN_A.txt, line 1: expected two nodes of one graph, found node 1 of graph 1 and",
        ),
        (
            "OWN_graph_labels.txt",
            "1\n",
            "OWN/OWN_graph_labels.txt, line 2: expected 2 rows, one per graph, found 1.",
        ),
        (
            "OWN_node_attributes.txt",
            "nan\n",
            "OWN/OWN_node_attributes.txt, line 1: expected numbers, found 'nan'",
        ),
        (
            "OWN_class_names.txt",
            "7 a\n",
            "OWN/OWN_class_names.txt, line 1: expected a class, a comma and its name",
        ),
    ],
)
def test_invalid_files_end_with_2(dataset, file, text, message):
    (dataset / file).write_text(text)
    result = check(dataset)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"graphcaps: {dataset.parent}/{message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("MUTAGG", "Did you mean MUTAG?"),
        ("no/such", "graphcaps: no/such: file or folder not found."),
    ],
)
def test_unknown_sources_end_with_2(source, message):
    result = check(source)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_has_an_example():
    assert "Example: graphcaps data check MUTAG" in check("--help").stdout
