"""Detection of the format of user files, and options that do not apply to it."""

from __future__ import annotations

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
        ArgumentError, match=r"'smiles' must be omitted for a file of networks \('n.json'\), got 'x'"
    ):
        load_dataset(net, smiles="x")
    with pytest.raises(ArgumentError, match="'smiles' must be omitted for an edge list \\('own'\\), got 's'"):
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
    ],
)
def test_errors_do_not_quote_a_linked_file(tmp_path, name, options):
    (tmp_path / "passwords").write_text("root:secret\nuser:secret\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "edges.csv").symlink_to(tmp_path / "passwords")
    if name != "folder":
        (tmp_path / name).symlink_to(tmp_path / "passwords")
    with pytest.raises(DataError) as caught:
        load_dataset(tmp_path / name, **options)
    message = str(caught.value)
    assert "found other content in a linked file." in message
    assert "secret" not in message
