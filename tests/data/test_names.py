"""Names that UTF-8 cannot hold are escaped when graphs are read, so that no finished training is lost to them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.data import load_dataset
from graphcaps.data.readers.user_files import read_user_file

HALF = "\ud800"  # half of a surrogate pair; JSON can write it, UTF-8 cannot


def _networks(path: Path) -> Path:
    graphs = []
    for number in range(20):
        nodes = [{"id": node, "label": f"n{HALF}"} for node in range(3 + number % 2)]
        links = [{"source": node, "target": node + 1} for node in range(len(nodes) - 1)]
        name = f"odd{HALF}" if number % 2 else "even"
        graphs.append({"nodes": nodes, "links": links, "graph": {"label": name, "id": f"{number}{HALF}"}})
    path.write_text(json.dumps(graphs))
    return path


def test_names_in_json_are_escaped(tmp_path: Path) -> None:
    read = read_user_file(_networks(tmp_path / "graphs.json"))
    store = read.store
    assert set(store.class_names) == {"even", "odd\\ud800"}
    written = (store.name, *store.class_names, *store.label_names.values(), *read.metadata.ids)
    assert json.loads(json.dumps(written, ensure_ascii=False).encode("utf-8")) == list(written)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_file_name_of_other_bytes_is_escaped(tmp_path: Path) -> None:
    path = _networks(tmp_path / os.fsdecode(b"graphs\xff.json"))
    assert load_dataset(path).name == "graphs\\udcff"


def test_files_are_written_whatever_the_text(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", json.dumps({"name": HALF}, ensure_ascii=False))
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"name": HALF}
    (tmp_path / "b").write_bytes(encode_checked("a test", 1, {"name": HALF}, {}))
    assert read_checked(tmp_path / "b", "a test", 1).content["name"] == HALF


def test_a_training_with_such_names_is_written(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from graphcaps.cli.main import app
    from graphcaps.inference.model_file import load

    path = _networks(tmp_path / os.fsdecode(b"graphs\xff.json"))
    out = tmp_path / "model.safetensors"
    done = CliRunner().invoke(app, ["train", str(path), "--out", str(out), "--epochs", "1", "--no-baseline"])
    assert done.exit_code == 0, done.output
    assert "odd\\ud800" in load(out).class_names
