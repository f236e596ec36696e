"""The configuration of a run: which preset the data set takes, why, and which options replace its values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import graphcaps
from graphcaps.cli.run_options import configure, describe_classes, describe_preset
from graphcaps.config import CommitteeConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, GraphcapsError
from graphcaps.estimator.parameters import run_config
from graphcaps.presets import load_preset
from tests.cli.training import invoke

SMALL = ("--epochs", 1, "--device", "cpu")


@pytest.fixture
def store() -> GraphStore:
    return replace(planted_parts(num_graphs=30), name="my graphs")


def write_proteins(folder: Path) -> Path:
    """A user's own ``proteins.csv``: 30 small molecules of two classes."""
    rows = [f"{'C' * (2 + number)}{'O' if number % 2 else 'N'},{number % 2}" for number in range(30)]
    path = folder / "proteins.csv"
    path.write_text("\n".join(["smiles,enzyme", *rows]) + "\n", "utf-8")
    return path


def test_configuration_by_data_set_and_options(store: GraphStore) -> None:
    mutag = store.with_catalogue_name("MUTAG")
    assert configure(mutag).source == "paper/MUTAG"
    assert configure(graphcaps.load_dataset("planted-parts-hard")).source == "planted-parts"
    config = configure(store, epochs=7, learning_rate=0.5)
    assert (config.source, config.dataset, config.training.epochs, config.training.learning_rate) == (
        "default",
        "my graphs",
        7,
        0.5,
    )
    assert "batch_size" not in configure(store, batch_size=8).by_data
    assert configure(store, parts="blocks").model_arguments["parts"] == "blocks"
    for wrong in ({"parts": "bricks"}, {"parts": "blocks", "model": "gin"}):
        with pytest.raises(ArgumentError, match="'--parts' must be blocks, with the model hgcn"):
            configure(store, **wrong)
    gin = configure(mutag, model="gin")
    assert (gin.model, gin.model_arguments) == ("gin", {"hidden": 128})  # the width is the capsule dimension
    assert configure(mutag, model="hgcn").model_arguments == configure(mutag).model_arguments
    with pytest.raises(ArgumentError, match="'model' must name a model"):
        configure(mutag, model="ginn")


def test_settings_replace_values_of_the_preset(store: GraphStore) -> None:
    settings = ["context=gin", "context_layers=3", "num_capsules=[8, 4]", "model.dropout=0.2"]
    settings += ["features.edge_labels=messages", "training.weight_decay=0", "training.batch_size = 8"]
    config = configure(store, settings=settings)
    assert config.model_arguments | {"context": "gin", "context_layers": 3} == config.model_arguments
    assert config.model_arguments["num_capsules"] == (8, 4)
    assert (config.features.edge_labels, config.training.weight_decay) == ("messages", 0.0)
    assert config.training.batch_size == 8
    assert config.source == "default"
    preset = load_preset("default")
    assert set(preset.by_data) - set(config.by_data) == {"dropout", "batch_size"}
    assert configure(store, settings=["training.epochs=5"], epochs=9).training.epochs == 9
    assert configure(store, model="wl-forest", settings=["trees=7"]).model_arguments == {"trees": 7}


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        (["context"], {}, r"options: '--set' must be NAME=VALUE, such as context=gin, got 'context'"),
        (["contxt=gin"], {}, r"'--set' must name an option of the model 'hgcn', such as context, .*'contxt'"),
        (
            ["data.x=1"],
            {},
            r"'--set' must name an option of the model 'hgcn', features.NAME or training.NAME",
        ),
        (["training.epoch=1"], {}, r"--set: unknown key 'epoch' in \[training\].*'epochs'"),
        (["training.epochs=many"], {}, r"--set, \[training\] epochs: expected a whole number, found 'many'"),
        (["training.epochs=1"], {"model": "wl"}, r"'--set' must name an option of the model 'wl', got"),
    ],
)
def test_wrong_settings_are_refused(
    store: GraphStore, settings: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(GraphcapsError, match=message):
        configure(store, settings=settings, **options)


def test_settings_of_the_model_reach_training(tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    words = ("train", "planted-parts", *SMALL, "--set", "capsule_dim=8", "--set", "num_capsules=2")
    context = ("--set", "context=gated", "--set", "context_jumping=true")
    result = invoke(*words, *context, "--out", out)
    assert result.exit_code == 0, result.output
    stored = graphcaps.load(out)
    assert stored.config.model_arguments["context"] == "gated"
    assert stored.model.layers[0].context.jump is not None
    for option, sentence in (
        ("context=gcn", "'context' must be one of none, residual, gated, gin, got 'gcn'"),
        ("context=2", "'context' must be a string, got 2"),
    ):
        refused = invoke(*words, "--set", option, "--out", tmp_path / "other.safetensors")
        assert (refused.exit_code, sentence in refused.stderr) == (2, True), refused.stderr
    both = invoke(*words, *context, "--parts", "blocks", "--out", tmp_path / "other.safetensors")
    assert (both.exit_code, "must be 'none' beside parts='blocks'" in both.stderr) == (2, True), both.stderr


@pytest.mark.parametrize("name", ["proteins", "PROTEINS", "MUTAG", "planted-parts", "planted-parts-easy"])
def test_a_name_alone_takes_no_preset_of_the_catalogue(store: GraphStore, name: str) -> None:
    named = replace(store, name=name)
    assert configure(named).source == "default"
    assert configure(named).dataset == name
    assert configure(named[range(5)]).source == "default"


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ((4, 2), "2 classes (a: 4, b: 2)"),
        ((1,) * 60, "60 classes of 1 graph each"),
        ((2,) * 60, "60 classes of 2 graphs each"),
        ((1, *(4,) * 59), "60 classes of 1 to 4 graphs"),
    ],
)
def test_classes_and_their_graphs(counts: tuple[int, ...], sentence: str) -> None:
    graphs = planted_parts(num_graphs=sum(counts))
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    names = ("a", "b") if len(counts) == 2 else tuple(map(str, range(len(counts))))
    assert describe_classes(replace(graphs, y=y, class_names=names)) == sentence


def test_the_reason_for_the_preset(store: GraphStore) -> None:
    def reason(store: GraphStore, preset: str | None = None) -> str:
        return describe_preset(store, configure(store, preset=preset), preset)

    other, proteins = "not loaded from the catalogue; --preset paper", replace(store, name="proteins")
    assert reason(store) == "preset: default (for your own graphs)"
    assert reason(proteins) == f"preset: default ({other} takes that of PROTEINS)"
    assert reason(proteins, "paper") == "preset: paper/PROTEINS (--preset)"
    assert reason(proteins.with_catalogue_name("PROTEINS")) == (
        "preset: paper/PROTEINS (PROTEINS of the catalogue)"
    )
    planted = replace(store, name="planted-parts")
    assert (
        reason(planted)
        == f"preset: default ({other.replace('paper', 'planted-parts')} takes that of planted-parts)"
    )


def test_published_settings_of_a_model(store: GraphStore) -> None:
    dd = replace(store, name="DD")
    known = configure(dd.with_catalogue_name("DD"), preset="published", model="gcn", epochs=3)
    assert (known.source, known.dataset, known.model) == ("published/gcn, DD", "DD", "gcn")
    assert (known.features.degree_onehot, known.training.epochs, known.training.batch_size) == (10, 3, 128)
    own = configure(dd, preset="published", model="gcn")  # a name alone is not the data set
    assert (own.source, own.dataset, own.features.degree_onehot) == ("published/gcn", "DD", 100)
    assert configure(store, preset="published/gcn") == configure(store, preset="published", model="gcn")
    assert describe_preset(store, own, "published") == "preset: published/gcn (--preset)"
    mutag = replace(store, name="MUTAG").with_catalogue_name("MUTAG")
    assert configure(mutag, preset="published", model="hgcn") == configure(mutag)
    for wrong, message in (
        ("ginn", "'model' must name a model"),
        ("majority", "one with published settings"),
    ):
        with pytest.raises(ArgumentError, match=message):
            configure(store, preset="published", model=wrong)


# ---------------------------------------------------------------------- on the command line and in Python
@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_published_settings_on_the_command_line(tmp_path: Path, verb: str) -> None:
    write_tu(planted_parts(num_graphs=12), tmp_path / "DD.zip")
    words = (verb, "DD", "--root", tmp_path, "--preset", "published", *SMALL)
    words += ("--out", tmp_path / "out.safetensors") if verb == "train" else ("--folds", 3)
    refused = invoke(*words, "--model", "majority")
    assert refused.exit_code == 2
    assert "'--model' must be one with published settings (" in refused.stderr
    done = invoke(*words, "--model", "gcn")
    assert done.exit_code == 0, done.output
    assert "gcn, preset: published/gcn, DD (--preset)." in done.stderr


def test_a_file_of_ones_own_named_as_a_data_set_of_the_paper(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path, out = write_proteins(tmp_path), tmp_path / "model.safetensors"
    trained = invoke("train", path, "--label", "enzyme", *SMALL, "--out", out)
    assert trained.exit_code == 0, trained.output
    own = "preset: molecules (read from SMILES)"
    assert f"30 graphs of proteins, 2 classes (0: 15, 1: 15), hgcn, {own}." in trained.stderr
    config = graphcaps.load(out).config
    assert (config.source, config.model_arguments["num_capsules"]) == ("molecules", (10,))
    assert config.model_arguments["residual_nodes"] is None

    words = ("evaluate", path, "--label", "enzyme", "--folds", 3, "--no-baseline", *SMALL)
    evaluated = invoke(*words, "--json")
    assert evaluated.exit_code == 0, evaluated.output
    assert f", 1 to test), hgcn, {own}." in evaluated.stderr
    assert json.loads(evaluated.stdout)[0]["config"]["source"] == "molecules"
    stated = invoke(*words, "--preset", "paper", "--json")
    assert "preset: paper/PROTEINS (--preset)." in stated.stderr
    assert json.loads(stated.stdout)[0]["config"]["source"] == "paper/PROTEINS"

    checked = invoke("data", "check", path, "--label", "enzyme", "--json")
    assert json.loads(checked.stdout)["forecast"]["preset"] == "molecules"


def test_a_data_set_by_name_and_by_path(tmp_path: Path) -> None:
    write_tu(planted_parts(num_graphs=30), tmp_path / "MUTAG.zip")
    words = ("train", *SMALL, "--overwrite", "--out", tmp_path / "model.safetensors")
    for source, preset in (
        (("MUTAG", "--root", tmp_path), "paper/MUTAG (MUTAG of the catalogue)"),
        (("mutag", "--root", tmp_path), "paper/MUTAG (MUTAG of the catalogue)"),
        (
            (tmp_path / "MUTAG.zip",),
            "default (not loaded from the catalogue; --preset paper takes that of MUTAG)",
        ),
        ((tmp_path / "MUTAG.zip", "--preset", "paper"), "paper/MUTAG (--preset)"),
    ):
        result = invoke(*words, *source)
        assert result.exit_code == 0, result.output
        assert f", hgcn, preset: {preset}." in result.stderr


def test_molecules_take_their_preset(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    store = graphcaps.load_dataset(write_proteins(tmp_path), label="enzyme")
    config = configure(store)
    assert (config.source, config.dataset) == ("molecules", "proteins")
    assert describe_preset(store, config) == "preset: molecules (read from SMILES)"
    assert (config.features.edge_labels, config.training.weight_decay) == ("messages", 0.001)
    assert configure(store, preset="default").features.edge_labels is None
    parts = configure(store, parts="blocks").model_arguments
    assert (parts["parts"], parts.get("context", "none")) == ("blocks", "none")


def test_best_is_that_of_the_graphs(tmp_path: Path, store: GraphStore) -> None:
    pytest.importorskip("rdkit")
    molecules = graphcaps.load_dataset(write_proteins(tmp_path), label="enzyme")
    for graphs, base in ((molecules, "molecules"), (store, "default")):
        config = configure(graphs, preset="best")
        assert config.source == ("best" if graphs is store else "best-molecules")
        expected = replace(load_preset(base), dataset=graphs.name)
        assert replace(config.of_one_model(), source=base) == expected
        fitted = run_config(graphcaps.HGCNClassifier(preset="best").get_params(), graphs)
        assert (fitted.committee, fitted.source) == (config.committee, config.source)
        assert fitted.features == config.features
    kept = configure(store, preset="best", model="gin", ensemble=2)
    assert (kept.model, kept.committee) == ("gin", CommitteeConfig(2, "wl-forest"))
    assert configure(store, preset="best", companion="none").committee == CommitteeConfig(5)
    with pytest.raises(ArgumentError, match="'--preset' must be of the model 'wl', or be left out"):
        configure(store, preset="best", model="wl")


def test_the_classifier_takes_the_presets_too(tmp_path: Path, store: GraphStore) -> None:
    pytest.importorskip("rdkit")
    molecules = graphcaps.load_dataset(write_proteins(tmp_path), label="enzyme")
    for graphs, preset in ((molecules, "molecules"), (store, "default")):
        fitted = graphcaps.HGCNClassifier(epochs=1, num_capsules=4, device="cpu").fit(graphs)
        config, expected = fitted.model_.config, load_preset(preset)
        assert config.source == f"{preset}, changed by arguments"
        assert config.features.edge_labels == expected.features.edge_labels
        assert config.model_arguments["num_capsules"] == (4,)
        assert config.model_arguments.get("context") == expected.model_arguments.get("context")
        assert config.training.learning_rate == expected.training.learning_rate
        assert config.training.weight_decay == expected.training.weight_decay
    assert fitted.model_.model.edge_kinds == ()
    parts = graphcaps.HGCNClassifier(epochs=1, parts="blocks", batch_size=32, device="cpu").fit(molecules)
    assert parts.model_.config.model_arguments.get("context", "none") == "none"
    assert parts.model_.config.training.batch_size == 32
    assert parts.model_.model.edge_kinds != ()
