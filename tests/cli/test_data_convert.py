"""``graphcaps data convert``: written files equal the data set; refused targets are not changed."""

from __future__ import annotations

import json
import os

import pytest
import torch
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.readers.tu import read_tu


@pytest.fixture(autouse=True)
def in_output_folder(isolated_folders, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "convert", *map(str, arguments)])


@pytest.mark.parametrize("target", ["parts", "parts.zip", "Parts.ZIP"])
def test_a_converted_set_is_read_back(target):
    result = convert("planted-parts", target)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{target}: 360 graphs, ")
    written, store = read_tu(target), load_dataset("planted-parts")
    assert written.name == target.partition(".")[0]
    assert written.class_names == store.class_names
    assert torch.equal(written.y, store.y)
    assert torch.equal(written.neighbours, store.neighbours)
    assert torch.equal(written.truth["part"], store.truth["part"])
    assert os.listdir(".") == [target]


def test_json_lists_the_files(shared_data):
    result = convert("mutag", "MUTAG", "--root", shared_data, "--json")
    content = json.loads(result.stdout)
    assert content["source"] == str(shared_data / "MUTAG.zip")
    assert (content["name"], content["target"], content["graphs"]) == ("MUTAG", "MUTAG", 188)
    assert (content["nodes"], content["edges"]) == (3371, 3721)
    assert content["files"] == [
        *("MUTAG/MUTAG_A.txt", "MUTAG/MUTAG_edge_labels.txt", "MUTAG/MUTAG_graph_indicator.txt"),
        *("MUTAG/MUTAG_graph_labels.txt", "MUTAG/MUTAG_node_labels.txt", "MUTAG/README.txt"),
    ]
    assert content["bytes"] == sum(os.path.getsize(file) for file in content["files"])


@pytest.mark.parametrize("target", ["parts", "parts.zip"])
def test_an_existing_target_needs_overwrite(target):
    convert("planted-parts-hard", target)
    before = read_tu(target).num_nodes
    result = convert("planted-parts", target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"graphcaps: data convert: TARGET must not exist yet, got '{target}'. Replace it with --overwrite.\n"
    )
    assert read_tu(target).num_nodes == before
    assert convert("planted-parts", target, "--overwrite").exit_code == 0
    assert read_tu(target).num_nodes < before


def test_a_set_is_replaced_by_itself():
    convert("planted-parts", "parts.zip")
    first = os.stat("parts.zip").st_size
    assert convert("./parts.zip", "parts.zip", "--overwrite").exit_code == 0
    assert abs(os.stat("parts.zip").st_size - first) < 50  # the name of the source in the README


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("planted-parts", "no/parts.zip"), "no/parts.zip: folder no does not exist. Create it first."),
        (("planted-parts", "no/parts"), "no/parts: folder no does not exist. Create it first."),
        (("planted-parts", ".parts"), "write_tu: 'name' must be a valid file name that does not start with a dot, got"),
        (("planted-parts", ".zip"), "write_tu: 'name' must be a valid file name that does not start with a dot"),
        (("MUTAGG", "x.zip"), "There is no file or folder 'MUTAGG' here, and no data set of this name in "),
        (("no/such.zip", "x.zip"), "no/such.zip: file or folder not found."),
    ],
)  # fmt: skip
def test_invalid_arguments_end_with_2_and_write_nothing(arguments, message):
    result = convert(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"graphcaps: {message}")
    assert result.stderr.count("\n") == 1
    assert os.listdir(".") == []


def test_a_folder_with_other_files_is_not_replaced():
    os.mkdir("thesis")
    with open("thesis/chapter.tex", "w") as file:
        file.write("years")
    result = convert("planted-parts", "thesis", "--overwrite")
    assert result.exit_code == 2
    assert "got 'thesis' with 'chapter.tex' in it." in result.stderr
    assert os.listdir("thesis") == ["chapter.tex"]


def test_help_has_an_example():
    assert "Example: graphcaps data convert planted-parts parts.zip" in convert("--help").stdout
