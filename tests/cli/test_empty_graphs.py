"""The whole command line on a data set in which some graphs have no nodes, as in TU's Fingerprint."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import graphcaps
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.inference.applicability import NO_NODES
from tests.cli.training import PRESET, invoke

NOTE = (
    "4 of 28 graphs have no nodes (graphs 1, 5, 27, 28): training leaves them out, and their prediction is the most "
    "frequent class of the training graphs."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip with 24 planted graphs and four without nodes, made by hand; and a model trained on it."""
    folder = tmp_path_factory.mktemp("finger")
    write_tu(planted_parts(num_graphs=24), folder / "PLAIN")
    indicator = [int(line) for line in (folder / "PLAIN" / "PLAIN_graph_indicator.txt").read_text().split()]
    # Graphs 1 and 5 have no nodes, and so have two more at the end, which only the labels show.
    shifted = [number + 1 + (number > 3) for number in indicator]
    labels = (folder / "PLAIN" / "PLAIN_graph_labels.txt").read_text().split()
    files = {
        "A": (folder / "PLAIN" / "PLAIN_A.txt").read_text(),
        "graph_indicator": "".join(f"{number}\n" for number in shifted),
        "graph_labels": "\n".join(["2", *labels[:3], "2", *labels[3:], "2", "2"]) + "\n",
    }
    with zipfile.ZipFile(folder / "FINGER.zip", "w") as archive:
        for table, text in files.items():
            archive.writestr(f"FINGER_{table}.txt", text)
    (folder / "small.toml").write_text(PRESET.format(epochs=2))
    result = run(folder, "train", "--preset", folder / "small.toml", "--out", folder / "model.safetensors")
    assert NOTE in result.stderr
    return folder


def run(folder: Path, verb: str, *words: object, code: int = 0) -> Any:
    first = (folder / "model.safetensors",) if verb in ("predict", "explain") else ()
    result = invoke(*verb.split(), *first, folder / "FINGER.zip", *words)
    assert result.exit_code == code, result.output
    return result


def test_they_are_counted_and_named(folder: Path) -> None:
    info = json.loads(run(folder, "data info", "--json").stdout)
    assert (info["graphs"], info["graphs_without_nodes"], info["min_nodes"]) == (28, 4, 0)
    assert "graphs without nodes" in run(folder, "data info").stdout
    check = json.loads(run(folder, "data check", "--json").stdout)
    (finding,) = [one for one in check["findings"] if one["kind"] == "no-nodes"]
    assert finding["graphs"] == [0, 4, 26, 27]
    assert "4 graphs of 28 without nodes" in run(folder, "data check").stdout


def test_converted_and_read_again(folder: Path, tmp_path: Path) -> None:
    assert invoke("data", "convert", folder / "FINGER.zip", tmp_path / "COPY.zip").exit_code == 0
    copy, source = (graphcaps.load_dataset(path) for path in (tmp_path / "COPY.zip", folder / "FINGER.zip"))
    assert copy.sizes.tolist() == source.sizes.tolist()
    assert copy.y.tolist() == source.y.tolist()


def test_the_model_file_names_them(folder: Path) -> None:
    model = graphcaps.load(folder / "model.safetensors")
    assert model.training["notes"] == [NOTE]
    assert model.class_prior.tolist() == [8 / 28, 8 / 28, 12 / 28]


def test_evaluate_names_them(folder: Path) -> None:
    words = ("--preset", folder / "small.toml", "--folds", 3, "--no-baseline", "--device", "cpu")
    result = run(folder, "evaluate", *words)
    assert NOTE in " ".join(result.stdout.split())
    assert json.loads(run(folder, "evaluate", *words, "--json").stdout)[0]["notes"] == [NOTE]


def test_predict_names_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    result = run(folder, "predict", "--device", "cpu", "--out", out)
    assert f"Graph 1: {NO_NODES}." in result.stderr
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    assert len(rows) == 28
    for row in (rows[0], rows[4], rows[26], rows[27]):
        assert row["class"] == "2"
        assert float(row["probability"]) == pytest.approx(12 / 28)
        assert float(row["length[2]"]) == 0
        assert row["out_of_distribution"] == NO_NODES
        assert row["error"] == ""
    assert rows[1]["out_of_distribution"] != NO_NODES


def test_explain_says_so_instead_of_drawing(folder: Path, tmp_path: Path) -> None:
    result = run(folder, "explain", "--graph", 5, "--device", "cpu")
    assert "The graph has no nodes: its capsules are zero" in " ".join(result.stdout.split())
    assert "capsule 1" not in result.stdout
    picture = tmp_path / "picture.svg"
    refused = run(folder, "explain", "--graph", 5, "--draw", picture, "--device", "cpu", code=2)
    assert "'--draw' must be used with a graph that has nodes, got graph 5 without nodes." in refused.stderr
    assert not picture.exists()
    summary = run(folder, "explain", "--out", tmp_path / "report", "--device", "cpu")
    assert "28 graphs" in summary.stdout
    assert (tmp_path / "report" / "index.html").exists()
