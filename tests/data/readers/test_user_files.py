"""Detection of the format of user files, and options that do not apply to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphcaps.data.datasets.loading import load_dataset
from graphcaps.errors import ArgumentError, DataError
from tests.data.readers.test_edge_lists import EDGES
from tests.data.readers.test_networks import triangle, write


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "own"
    path.mkdir()
    (path / "edges.csv").write_text(EDGES)
    return path


def test_options_that_do_not_apply_are_rejected(folder, tmp_path):
    net = write(tmp_path / "n.json", triangle())
    with pytest.raises(
        ArgumentError, match=r"'smiles' must be omitted for a file of networks \('.*/n.json'\), got 'x'"
    ):
        load_dataset(net, smiles="x")
    with pytest.raises(
        ArgumentError, match=r"'smiles' must be omitted for an edge list \('.*/own'\), got 's'"
    ):
        load_dataset(folder, smiles="s")
    with pytest.raises(ArgumentError, match="'lable' must be one of the options label, split"):
        load_dataset(folder, lable="s")
    with pytest.raises(ArgumentError, match="'label' must be omitted for 'planted-parts'"):
        load_dataset("planted-parts", label="x")
    with pytest.raises(DataError, match=r"none.csv: file not found"):
        load_dataset("none.csv")
    with pytest.raises(DataError, match="a table of graphs with a column 'kind', found none"):
        load_dataset(folder, label="kind")


def test_the_name_of_a_folder_in_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert len(load_dataset("own")) == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.csv", {}),
        ("a.csv", {"smiles": "root:secret"}),
        ("a.json", {}),
        ("a.graphml", {}),
        ("a.gexf", {}),
        ("folder", {}),
        ("networks", {}),
        ("networks/inner", {}),
    ],
)
def test_errors_do_not_quote_a_linked_file(tmp_path, name, options):
    (tmp_path / "passwords").write_text("root:secret\nuser:secret\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "edges.csv").symlink_to(tmp_path / "passwords")
    (tmp_path / "networks" / "inner").mkdir(parents=True)
    (tmp_path / "networks" / "inner" / "net.json").symlink_to(tmp_path / "passwords")
    if not (tmp_path / name).is_dir():
        (tmp_path / name).symlink_to(tmp_path / "passwords")
    with pytest.raises(DataError) as caught:
        load_dataset(tmp_path / name, **options)
    message = str(caught.value)
    assert "found other content in a linked file." in message
    assert "secret" not in message


def test_errors_do_not_quote_a_graph_of_a_linked_file(tmp_path):
    """The error is that of a graph, which is named beside its file or without it."""
    graph = {"nodes": [{"id": "root"}], "links": [{"source": "root", "target": "secret"}]}
    labelled = {"nodes": [{"id": "root", "label": ["x", {"secret": 1}]}], "links": []}
    for number, graphs in enumerate(([graph, graph], [labelled, labelled])):
        (tmp_path / "outside.json").write_text(json.dumps(graphs))
        folder = tmp_path / f"networks{number}"
        folder.mkdir()
        (folder / "net.json").symlink_to(tmp_path / "outside.json")
        with pytest.raises(DataError, match="found other content in a linked file") as caught:
            load_dataset(folder)
        assert "secret" not in str(caught.value)


def test_errors_name_the_file_of_a_folder_as_the_user_would(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("nets", "nets/inner", "tables", "labels"):
        Path(folder).mkdir()
    Path("nets/inner/a.json").write_text('{"nothing": 1}')
    Path("tables/edges.csv").write_text("smiles\nC\n")
    write(tmp_path / "labels" / "n.json", triangle())
    Path("labels/labels.csv").write_text("file,label\nother.json,1\n")
    for given, message in (
        (
            "nets",
            "nets/inner/a.json: expected a graph with lists of 'nodes' and 'links', found an object with",
        ),
        ("nets/inner/a.json", "nets/inner/a.json: expected a graph with lists"),
        ("tables/", "tables/edges.csv, line 1: expected a column 'graph', found the columns 'smiles'."),
        ("labels", "labels/labels.csv: expected a row for the file 'n.json', found none."),
    ):
        with pytest.raises(DataError) as caught:
            load_dataset(given)
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ((), "an empty folder."),
        ((".hidden",), "an empty folder."),
        (("a.csv",), "1 .csv file. Name the file itself: own/a.csv."),
        (("a.csv", "b.csv"), "2 .csv files. Name one file, such as own/a.csv."),
        (
            ("a.txt", "b.zip", "c"),
            "3 files (1 .txt, 1 .zip, 1 without suffix). Name the file itself: own/b.zip.",
        ),
        (("inner/a.csv",), "1 folder without any of these."),
        (("a.py", "b/c/d.csv", "c/a"), "1 .py file and 2 folders without any of these."),
    ],
)
def test_a_folder_without_graphs_says_what_it_may_hold_and_what_it_holds(tmp_path, monkeypatch, files, found):
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir()
    for file in files:
        path = Path("own") / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    for given in ("own", "own/", Path("own")):
        with pytest.raises(DataError) as caught:
            load_dataset(given, label="kind")
        assert str(caught.value) == (
            "own: expected a folder with a TU data set (NAME_A.txt), an edge list (edges.csv) or networks "
            f"(.graphml, .gexf, .json), found {found}"
        )
