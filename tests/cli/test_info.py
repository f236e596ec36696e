"""``graphcaps info``: model, expected input and training data of a model file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from graphcaps.cli.main import app
from graphcaps.models import model_names
from graphcaps.presets import list_presets
from tests.small_models import bonded_model, labelled_model, planted, small_model, train_small


def run(*arguments: object):
    return CliRunner().invoke(app, ["info", *map(str, arguments)], env={"COLUMNS": "200"})


def single_spaced(text: str) -> str:
    return " ".join(text.split())


def test_text_describes_model_input_and_training(tmp_path):
    path = tmp_path / "m.safetensors"
    model = labelled_model()
    replace(model, training=model.training | {"notes": ["One thing.", "Another."], "empty": None}).save(path)
    result = run(path)
    assert result.exit_code == 0, result.output
    text = single_spaced(result.stdout)
    for sentence in (
        "hgcn, released formulation, ",
        "classes 3: ring-star, ring-clique, ring-ladder",
        "scores lengths of class capsules",
        "probabilities not calibrated",
        "capsule_dim 8, num_capsules (4)",
        "node labels 4 values: 0 to 3",
        "node attributes 2",
        "input columns 18 (attributes, labels, degree, one-hot degree up to 4, propagated 1 times)",
        "max. nodes no limit",
        "data set labelled",
        "graphs 30, 34.4 nodes each, at most 37",
        "ring-star (10), ring-clique (10), ring-ladder (10)",
        "epochs 2",
        "notes One thing. Another.",
        "learning rate 0.01",
        "torch-geometric",
    ):
        assert sentence in text, sentence
    assert "empty" not in text


def test_json_has_all_sections(tmp_path):
    path = tmp_path / "m.safetensors"
    small_model().save(path)
    content = json.loads(run(path, "--json").stdout)
    data = path.read_bytes()
    assert content["file"] == {
        "path": str(path),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "format_version": 1,
    }
    assert content["expects"]["node_labels"] == []
    assert content["training"]["graphs"] == 30
    assert set(content) == {
        *("file", "model", "class_names", "expects", "calibration", "profile", "training", "config"),
        *("versions", "recorded_graphs"),
    }


def test_class_names_are_not_markup(tmp_path):
    path = tmp_path / "m.safetensors"
    model = train_small(planted(), "gin", max_nodes=30)
    replace(model, class_names=("[red]a[/red]", "b\nc", "[/]")).save(path)
    result = run(path)
    assert result.exit_code == 0, result.output
    text = single_spaced(result.stdout)
    assert "3: [red]a[/red], b c, [/]" in text
    assert "scores logits" in text
    assert "max. nodes 30; of larger graphs the nodes of highest degree are used" in text


@pytest.mark.parametrize("content", [None, b"", b"some text", b"PK\x03\x04rest"])
def test_an_invalid_file_ends_with_2_and_one_sentence(tmp_path, content):
    path = tmp_path / "m.safetensors"
    if content is not None:
        path.write_bytes(content)
    result = run(path)
    assert (result.exit_code, result.stdout) == (2, "")
    problem = "file not found." if content is None else "expected a file written by graphcaps, found "
    assert result.stderr.startswith(f"graphcaps: {path}: {problem}")
    assert result.stderr.count("\n") == 1


def test_help_has_an_example():
    assert "graphcaps info mutag.safetensors" in single_spaced(run("--help").stdout)


def test_models_are_listed():
    result = run("--models")
    assert result.exit_code == 0, result.output
    assert re.search(r"hgcn +graphcaps +Classifies graphs with a hierarchy of capsules\.", result.stdout)
    listed = json.loads(run("--models", "--json").stdout)
    assert [model["name"] for model in listed] == model_names()
    assert all(model["summary"] and model["reference"] and not model["problem"] for model in listed)


def test_presets_are_listed():
    text = single_spaced(run("--presets").stdout)
    for row in (
        "best hgcn × 5 with wl-forest any",
        "default hgcn any",
        "paper/DD hgcn DD",
        "published/gcn gcn any; other values for DD, REDDIT-BINARY",
    ):
        assert row in text, row
    listed = json.loads(run("--presets", "--json").stdout)
    assert tuple(preset["name"] for preset in listed) == list_presets()
    best, default = listed[0], listed[2]
    expected = {"name": "best", "model": "hgcn", "dataset": "", "by_dataset": []}
    assert best == expected | {"committee": {"members": 5, "companion": "wl-forest"}}
    assert default == expected | {"name": "default", "committee": {"members": 1, "companion": None}}


@pytest.mark.parametrize("arguments", [(), ("m.safetensors", "--models"), ("--models", "--presets")])
def test_one_file_or_one_list(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr == (
        "graphcaps: Name one model file, or use --models or --presets alone. See: graphcaps info --help\n"
    )


def test_edge_labels_of_a_model_that_reads_them(tmp_path):
    path = tmp_path / "model.safetensors"
    bonded_model().save(path)
    text = single_spaced(run(path).stdout)
    assert "edge labels 3 values, 2 values; in the messages" in text
    assert "edge_kinds" not in text
