"""Presets: each builds its model, and those of the paper have the values of its supplement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graphcaps
from graphcaps.config import RunConfig
from graphcaps.data.datasets.catalogue import CATALOGUE
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.errors import ArgumentError, DataError
from graphcaps.models.builder import model_factory, recipe_arguments
from graphcaps.presets import list_presets, load_preset
from graphcaps.reproduction.published import hyperparameters, paper_datasets

FOLDER = Path(graphcaps.__file__).parent / "presets"
FILES = sorted(FOLDER.rglob("*.toml"))
OF_OWN_GRAPHS = ("default", "molecules")
PAPER = sorted(paper_datasets())
ALL = "paper, default, molecules, planted-parts, planted-parts-blocks, planted-parts-gin"


def preset_name(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


def test_list_presets_names_every_file():
    assert list_presets() == tuple(sorted(map(preset_name, FILES)))
    assert {name.removeprefix("paper/") for name in list_presets()} == {
        *PAPER,
        "default",
        "molecules",
        "planted-parts",
        "planted-parts-blocks",
        "planted-parts-gin",
    }


def dataset_name(path: Path) -> str:
    """A data set for a preset; those for graphs of any data set are tried on MUTAG."""
    return "MUTAG" if path.stem in OF_OWN_GRAPHS else path.stem.removesuffix("-gin").removesuffix("-blocks")


@pytest.mark.parametrize("path", FILES, ids=preset_name)
def test_every_file_builds_its_model(path):
    config = load_preset(preset_name(path))
    assert config == RunConfig.from_toml(path.read_text("utf-8"), preset_name(path))
    assert config.source == preset_name(path)
    assert config.dataset == ("" if path.stem in OF_OWN_GRAPHS else dataset_name(path))
    FeatureRecipe(**recipe_arguments(config.features))
    model = model_factory(config, 7, CATALOGUE[dataset_name(path)].classes)(())
    assert model.num_classes == CATALOGUE[dataset_name(path)].classes
    assert RunConfig.from_dict(config.as_dict()) == config


@pytest.mark.parametrize("path", FILES, ids=preset_name)
def test_the_first_line_is_the_command(path):
    first = path.read_text("utf-8").splitlines()[0]
    preset = preset_name(path).partition("/")[0]
    dataset = "molecules.csv" if preset == "molecules" else dataset_name(path)
    assert first == f"# graphcaps evaluate {dataset} --preset {preset}"


@pytest.mark.parametrize("path", FILES, ids=preset_name)
@pytest.mark.parametrize("section", ["features", "model", "training", ""])
def test_an_unknown_key_is_named(path, section):
    text = path.read_text("utf-8")
    text = (
        text.replace(f"[{section}]\n", f"[{section}]\nkapsules = 3\n") if section else f"kapsules = 3\n{text}"
    )
    with pytest.raises((ArgumentError, DataError), match="'kapsules'"):
        model_factory(RunConfig.from_toml(text), 7, 2)


@pytest.mark.parametrize("dataset", PAPER)
def test_values_of_the_supplement(dataset):
    config, published = load_preset("paper", dataset), hyperparameters(dataset)
    assert config.model == "hgcn"
    assert config.model_arguments == {
        "formulation": "released",
        "capsule_dim": published.capsule_dim,
        "num_capsules": (published.num_capsules,),
        "num_factors": published.num_factors,
        "routing_iterations": published.routing_iterations,
        "dropout": published.dropout,
        "residual_nodes": config.model_arguments["residual_nodes"],
    }
    training = config.training
    assert training.epochs == published.epochs
    assert training.batch_size == published.batch_size
    assert training.learning_rate == published.learning_rate
    assert training.weight_decay == published.weight_decay
    assert training.halve_every == published.halve_every
    assert training.reconstruction_weight == published.reconstruction_weight


@pytest.mark.parametrize("dataset", PAPER)
def test_features_of_the_released_program(dataset):
    features = load_preset("paper", dataset).features
    large = dataset in ("DD", "REDDIT-BINARY")
    assert (features.attributes, features.labels, features.degree) == (True, True, True)
    assert features.degree_onehot == (10 if large else 100)
    assert features.propagation == (1 if dataset == "DD" else 3)
    assert features.max_nodes == (1000 if large else None)


@pytest.mark.parametrize(
    "dataset", [pytest.param(n, marks=pytest.mark.slow) if n == "COLLAB" else n for n in PAPER]
)
def test_residual_nodes_are_the_largest_graph(dataset, shared_data):
    config = load_preset("paper", dataset)
    largest = int(load_dataset(dataset, shared_data).sizes.max())
    assert config.model_arguments["residual_nodes"] == min(largest, config.features.max_nodes or largest)


@pytest.mark.parametrize(
    ("preset", "dataset", "name"),
    [
        ("paper", "mutag", "paper/MUTAG"),
        ("Paper", "D&D", "paper/DD"),
        ("paper", "imdb_binary", "paper/IMDB-BINARY"),
        ("paper", "data/MUTAG.zip", "paper/MUTAG"),
        ("paper", Path("data/PTC_MR"), "paper/PTC_MR"),
        ("paper/nci1", None, "paper/NCI1"),
        ("planted-parts", None, "planted-parts"),
        ("planted-parts", "planted-parts-hard", "planted-parts"),
        ("planted_parts_hard", None, "planted-parts"),
    ],
)
def test_preset_names(preset, dataset, name):
    assert load_preset(preset, dataset).source == name


@pytest.mark.parametrize(
    ("preset", "dataset", "message"),
    [
        (
            "papr",
            None,
            f"'preset' must be one of {ALL}, got 'papr'. Did you mean 'paper'?",
        ),
        (
            "planted",
            None,
            "got 'planted'. Did you mean 'planted-parts'?",
        ),
        (
            "zzz",
            None,
            f"'preset' must be one of {ALL}, got 'zzz'.",
        ),
        (
            "MUTAG",
            None,
            f"'preset' must be one of {ALL}, got 'MUTAG'.",
        ),
        (
            "paper",
            None,
            "'dataset' must be named for the preset 'paper', got none. The presets 'paper' are for COLLAB",
        ),
        ("paper", "MUTAGG", "'dataset' must be a data set of the paper, got 'MUTAGG'. Did you mean MUTAG?"),
        ("paper", "own", "'dataset' must be a data set of the paper, got 'own'. It has COLLAB, DD,"),
        ("paper", "planted-parts-hard", "got 'planted-parts-hard'. Use the preset 'planted-parts'."),
    ],
)
def test_unknown_names_are_refused_with_suggestions(preset, dataset, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        load_preset(preset, dataset)


# ---------------------------------------------------------------------- user files
def test_a_user_file(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text('dataset = "mine"\n[model]\nnum_capsules = [5, 3]\n[training]\nepochs = 7\n')
    config = load_preset(str(path))
    assert (config.dataset, config.training.epochs, config.source) == ("mine", 7, str(path))
    assert config.model_arguments == {"num_capsules": (5, 3)}
    monkeypatch.chdir(tmp_path)
    assert load_preset("mine.toml", "anything").training.epochs == 7
    assert load_preset(Path("mine.toml")).training.epochs == 7
    path.rename(tmp_path / "mine")
    assert load_preset("./mine").training.epochs == 7


def test_an_invalid_user_file_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    with pytest.raises(DataError, match=r"mine.toml: file not found"):
        load_preset(path)
    path.mkdir()
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)\."):
        load_preset(path)
    path.rmdir()
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="expected a TOML file in UTF-8"):
        load_preset(path)
    path.write_text("[training\n")
    with pytest.raises(DataError, match=r"mine.toml: invalid TOML: .*line 1"):
        load_preset(path)
    path.write_text("[training]\nepoch = 3\n")
    with pytest.raises(
        DataError, match=r"mine.toml: unknown key 'epoch' in \[training\]. Did you mean 'epochs'\?"
    ):
        load_preset(path)


def test_an_unknown_home_folder_is_refused():
    with pytest.raises(ArgumentError, match="load_preset: 'preset' must be in a known home folder"):
        load_preset("~no-such-user/own.toml")
