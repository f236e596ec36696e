"""``graphcaps data info``, ``list`` and ``cache``: statistics of the data sets, user files, errors and the cache."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.data.datasets.catalogue import CATALOGUE

KEYS = {
    *("name", "graphs", "classes", "class_names", "class_counts", "avg_nodes", "avg_edges", "min_nodes"),
    *(
        "max_nodes",
        "avg_degree",
        "isolated_nodes",
        "graphs_without_edges",
        "graphs_without_nodes",
        "node_labels",
        "node_attributes",
    ),
    *("edge_labels", "edge_attributes", "edge_weights", "edges_removed", "source", "seconds", "from_cache"),
    "featurizer",
}
# Table of data sets in the paper: graphs, classes, mean nodes and edges per graph.
PAPER = {
    "MUTAG": (188, 2, 17.93, 19.79),
    "PTC_MR": (344, 2, 14.29, 14.69),
    "ENZYMES": (600, 6, 32.63, 62.14),
    "PROTEINS": (1113, 2, 39.06, 72.82),
    "NCI1": (4110, 2, 29.87, 32.30),
    "NCI109": (4127, 2, 29.68, 32.13),
    "DD": (1178, 2, 284.32, 715.66),
    "COLLAB": (5000, 3, 74.49, 2457.78),
    "IMDB-BINARY": (1000, 2, 19.77, 96.53),
    "IMDB-MULTI": (1500, 3, 13.00, 65.94),
    "REDDIT-BINARY": (2000, 2, 429.63, 497.75),
}
REMOVED = {
    "COLLAB": {"self_loops": 2837},
    "IMDB-BINARY": {"repeated": 193_062},
    "IMDB-MULTI": {"repeated": 197_806},
}


pytestmark = pytest.mark.usefixtures("isolated_folders")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def info(*arguments: object) -> dict:
    result = run("info", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.exhaustive) if n == "COLLAB" else n for n in PAPER]
)
def test_statistics_equal_those_of_the_paper(name, shared_data):
    shown = info(name, "--root", shared_data, "--no-cache")
    assert set(shown) == KEYS
    assert (shown["graphs"], shown["classes"], shown["avg_nodes"], shown["avg_edges"]) == PAPER[name]
    assert (shown["graphs"], shown["classes"]) == (CATALOGUE[name].graphs, CATALOGUE[name].classes)
    assert sum(shown["class_counts"]) == shown["graphs"]
    changed = ("self_loops", "repeated", "one_way", "conflicting_labels")
    assert {key: shown["edges_removed"][key] for key in changed} == dict.fromkeys(changed, 0) | REMOVED.get(
        name, {}
    )
    node_labels = shown["node_labels"]["distinct"][0] if shown["node_labels"] else 0
    attributes = f", {shown['node_attributes']} attribute" if shown["node_attributes"] else ""
    assert CATALOGUE[name].nodes.startswith(f"{node_labels} labels{attributes}" if node_labels else "none")


def test_the_second_call_reads_the_cache(shared_data):
    first, second = info("MUTAG", "--root", shared_data), info("mutag", "--root", shared_data)
    assert (first.pop("from_cache"), second.pop("from_cache")) == (False, True)
    assert first.pop("seconds") >= 0 <= second.pop("seconds")
    assert first == second
    assert first["node_labels"] == {"columns": 1, "distinct": [7], "min": [0], "max": [6]}


def test_no_cache_writes_no_cache_file(shared_data, tmp_path):
    info("MUTAG", "--root", shared_data, "--no-cache")
    assert not (tmp_path / "cache").exists()


def test_info_of_an_embedded_set():
    shown = info("planted-parts")
    assert set(shown) == KEYS
    assert (shown["name"], shown["graphs"], shown["source"]) == ("planted-parts", 360, None)


def test_repeated_edges_are_reported(shared_data):
    result = run("info", "IMDB-BINARY", "--root", shared_data)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "every row of the edge file appears twice: 193,062 repeated rows merged." in text
    assert "graphs 1,000" in text


def test_an_invalid_file_ends_with_2(tmp_path):
    folder = tmp_path / "OWN"
    folder.mkdir()
    (folder / "OWN_A.txt").write_text("1, 2\n2, x\n")
    (folder / "OWN_graph_indicator.txt").write_text("1\n1\n")
    (folder / "OWN_graph_labels.txt").write_text("1\n")
    result = run("info", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"graphcaps: {folder}/OWN_A.txt, line 2: expected ")
    assert result.stderr.count("\n") == 1


def test_an_unknown_name_ends_with_2():
    result = run("info", "MUTAGG")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Did you mean MUTAG?" in result.stderr


def test_list_shows_available_sets(tmp_path):
    (tmp_path / "MUTAG.zip").write_bytes(b"")
    shown = {entry["name"]: entry for entry in json.loads(run("list", "--root", tmp_path, "--json").stdout)}
    assert list(shown) == list(CATALOGUE)
    assert (shown["MUTAG"]["here"], shown["MUTAG"]["path"]) == (True, str(tmp_path / "MUTAG.zip"))
    assert (shown["DD"]["here"], shown["DD"]["path"]) == (False, None)
    assert shown["planted-parts"]["embedded"]
    assert (shown["benzene"]["embedded"], shown["benzene"]["extra"]) == (True, "chem")
    lines = run("list", "--root", tmp_path).stdout.splitlines()
    available = {line.split()[0]: line.split()[3] for line in lines if line.startswith(("MUTAG", "DD"))}
    assert (available["MUTAG"], available["DD"]) == ("yes", "no")


def test_cache_lists_and_clears(tmp_path, shared_data):
    info("MUTAG", "--root", shared_data)
    shown = json.loads(run("cache", "--json").stdout)
    assert (Path(shown["folder"]), shown["files"], shown["cleared"]) == (tmp_path / "cache", 1, False)
    assert "1 file, " in run("cache").stdout
    assert "1 file, " in run("cache", "--clear").stdout
    assert json.loads(run("cache", "--json").stdout)["files"] == 0
    assert not info("MUTAG", "--root", shared_data)["from_cache"]


def test_brackets_in_a_path_are_no_markup(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # wide enough for the path
    copied = tmp_path / "[b]x[/red]" / "parts.zip"
    copied.parent.mkdir(parents=True)
    assert run("convert", "planted-parts", copied).exit_code == 0
    for arguments in (("info", copied), ("check", copied), ("list", "--root", copied.parent)):
        result = run(*arguments)
        assert result.exit_code == 0, result.exception
    assert str(copied) in run("info", copied).stdout


# ---------------------------------------------------------------------- user files
@pytest.fixture
def molecules(tmp_path, monkeypatch):
    pytest.importorskip("rdkit.Chem")
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "mols.csv"
    path.write_text("mol;active;part\nCCO;no;train\nC(C;yes;train\nOCC;yes;test\nc1ccccc1;no;test\n")
    return path


def test_info_and_check_of_molecules(molecules):
    columns = ("--smiles", "mol", "--label", "active", "--bad", "skip")
    shown = run("info", molecules, *columns, "--split", "part")
    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "classes 2: no (2), yes (1)" in lines
    assert "split train (1), test (2)" in lines
    assert "reading 1 row holds no valid molecule and was left out: line 3." in lines
    content = json.loads(run("info", molecules, *columns, "--json").stdout)
    reason = {"reason": "invalid SMILES syntax", "kind": "molecule"}
    assert content["skipped"] == [{"line": 3, "text": "C(C"} | reason]
    checked = json.loads(run("check", molecules, *columns, "--json").stdout)
    assert checked["reading"] == [
        "1 row holds no valid molecule and was left out: line 3.",
        "1 molecule is in more than one row (1 further row), with different labels; all rows are kept. "
        "--duplicates first keeps one row of each, --duplicates drop-contradicting leaves those out.",
    ]
    assert (checked["duplicates"]["graphs"], checked["ceiling"]) == (2, 0.6667)


def test_a_table_is_converted_to_a_tu_folder(molecules, tmp_path):
    result = run(
        "convert", molecules, tmp_path / "OUT.zip", "--smiles", "mol", "--label", "active", "--bad", "skip"
    )
    assert result.exit_code == 0, result.output
    assert "1 row holds no valid molecule and was left out: line 3." in result.stderr
    again = json.loads(run("info", tmp_path / "OUT.zip", "--json").stdout)
    assert (again["graphs"], again["class_names"]) == (3, ["no", "yes"])
    assert again["featurizer"] == "standard"
    assert again["edge_labels"]["distinct"] == [2, 2, 2, 1]


def test_info_of_a_folder_of_networks(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    for kind in ("good", "bad"):
        (tmp_path / "nets" / kind).mkdir(parents=True)
        for size in (3, 4):
            graph = nx.cycle_graph(size)
            nx.set_node_attributes(graph, "red" if kind == "good" else "blue", "label")
            nx.write_graphml(graph, tmp_path / "nets" / kind / f"{size}.graphml")
    shown = run("info", tmp_path / "nets")
    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "classes 2: bad (2), good (2)" in lines
    assert "on nodes 2 labels" in lines
    content = json.loads(run("info", tmp_path / "nets", "--json").stdout)
    assert set(content["label_names"].values()) == {"red", "blue"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            (),
            "mols.csv, line 1: expected a column 'smiles', found the columns 'mol', 'active', 'part'. Name the",
        ),
        (("--smiles", "mol"), "mols.csv, line 3: expected a molecule in SMILES, found 'C(C': invalid SMILES"),
        (("--smiles", "mol", "--label", "y"), "mols.csv, line 1: expected a column 'y', found the columns"),
    ],
)
@pytest.mark.parametrize("verb", ["info", "check"])
def test_invalid_tables_end_with_2_and_one_sentence(molecules, verb, options, message):
    result = run(verb, molecules, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"graphcaps: {molecules.parent}/{message}")
    assert result.stderr.count("\n") == 1


def test_column_options_are_refused_for_a_named_set():
    result = run("info", "planted-parts", "--smiles", "x")
    assert result.exit_code == 2
    assert "'--smiles' must be omitted for 'planted-parts'" in result.stderr
