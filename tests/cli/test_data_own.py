"""People's own files under ``graphcaps data``: options for columns, notes, and what is wrong in one sentence."""

from __future__ import annotations

import json

import networkx as nx
import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app

pytest.importorskip("rdkit.Chem")
pytestmark = pytest.mark.usefixtures("isolated_folders")


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.fixture
def molecules(tmp_path):
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
    assert "reading 1 row holds no valid molecule and was skipped: line 3." in lines
    told = json.loads(run("info", molecules, *columns, "--json").stdout)
    assert told["skipped"] == [{"line": 3, "text": "C(C", "reason": "invalid SMILES syntax"}]
    checked = json.loads(run("check", molecules, *columns, "--json").stdout)
    assert checked["reading"] == ["1 row holds no valid molecule and was skipped: line 3."]
    assert (checked["duplicates"]["graphs"], checked["ceiling"]) == (2, 0.6667)


def test_a_table_becomes_a_tu_folder(molecules, tmp_path):
    result = run(
        "convert", molecules, tmp_path / "OUT.zip", "--smiles", "mol", "--label", "active", "--bad", "skip"
    )
    assert result.exit_code == 0, result.output
    assert "1 row holds no valid molecule and was skipped: line 3." in result.stderr
    again = json.loads(run("info", tmp_path / "OUT.zip", "--json").stdout)
    assert (again["graphs"], again["class_names"]) == (3, ["no", "yes"])
    assert again["edge_labels"]["distinct"] == [2]


def test_a_folder_of_networks(tmp_path):
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
    told = json.loads(run("info", tmp_path / "nets", "--json").stdout)
    assert set(told["label_names"].values()) == {"red", "blue"}


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
def test_what_is_wrong_ends_with_2_and_one_sentence(molecules, verb, options, message):
    result = run(verb, molecules, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"graphcaps: {message}")
    assert result.stderr.count("\n") == 1


def test_columns_mean_nothing_for_a_named_set():
    result = run("info", "planted-parts", "--smiles", "x")
    assert result.exit_code == 2
    assert "'smiles' must be omitted for 'planted-parts'" in result.stderr
