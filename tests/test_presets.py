"""Presets: each builds its model, and those of the paper have the values of its supplement."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import graphcaps
from graphcaps.config import CommitteeConfig, RunConfig
from graphcaps.data.datasets.catalogue import CATALOGUE
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.errors import ArgumentError, DataError
from graphcaps.models import is_classical
from graphcaps.models.builder import build_classical, model_factory
from graphcaps.presets import describe_presets, is_published, list_presets, load_preset, published_models
from graphcaps.reproduction.published import hyperparameters, paper_datasets

FOLDER = Path(graphcaps.__file__).parent / "presets"
FILES = sorted(FOLDER.rglob("*.toml"))
PUBLISHED = sorted(FOLDER.glob("published/*.toml"))
OF_OWN_GRAPHS = ("best", "best-molecules", "default", "molecules")
PAPER = sorted(paper_datasets())
ALL = (
    "paper, published, best, best-molecules, default, molecules, planted-parts, planted-parts-blocks, "
    "planted-parts-gin"
)


def preset_name(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


def test_list_presets_names_every_file():
    assert list_presets() == tuple(sorted(map(preset_name, FILES)))
    assert {name.removeprefix("paper/") for name in list_presets() if not is_published(name)} == {
        *PAPER,
        "best",
        "best-molecules",
        "default",
        "molecules",
        "planted-parts",
        "planted-parts-blocks",
        "planted-parts-gin",
    }


def dataset_name(path: Path) -> str:
    """A data set for a preset; those for graphs of any data set are tried on MUTAG."""
    if is_published(preset_name(path)) or path.stem in OF_OWN_GRAPHS:
        return "MUTAG"
    return path.stem.removesuffix("-gin").removesuffix("-blocks")


def build(config: RunConfig, classes: int) -> None:
    """Builds the features and the model of a configuration, which rejects unknown and invalid options."""
    if is_classical(config.model):
        assert build_classical(config, classes).num_classes == classes
        return
    FeatureRecipe.from_config(config.features)
    assert model_factory(config, 7, classes)(()).num_classes == classes


@pytest.mark.parametrize("path", FILES, ids=preset_name)
def test_every_file_builds_its_model(path):
    config = load_preset(preset_name(path))
    assert config == RunConfig.from_toml(path.read_text("utf-8"), preset_name(path))
    assert config.source == preset_name(path)
    of_any = path.stem in OF_OWN_GRAPHS or path in PUBLISHED
    assert config.dataset == ("" if of_any else dataset_name(path))
    build(config, CATALOGUE[dataset_name(path)].classes)
    assert RunConfig.from_dict(config.as_dict()) == config


@pytest.mark.parametrize("path", FILES, ids=preset_name)
def test_the_first_line_is_the_command(path):
    first = path.read_text("utf-8").splitlines()[0]
    preset = preset_name(path).partition("/")[0]
    dataset = "molecules.csv" if preset.endswith("molecules") else dataset_name(path)
    if path in PUBLISHED:
        dataset = f"DATA --model {path.stem}"
    assert first == f"# graphcaps evaluate {dataset} --preset {preset}"


@pytest.mark.parametrize("path", FILES, ids=preset_name)
@pytest.mark.parametrize("section", ["features", "model", "training", "committee", ""])
def test_an_unknown_key_is_named(path, section):
    text = path.read_text("utf-8")
    if section and f"[{section}]\n" not in text:
        pytest.skip("the file has no such section")
    text = (
        text.replace(f"[{section}]\n", f"[{section}]\nkapsules = 3\n") if section else f"kapsules = 3\n{text}"
    )
    with pytest.raises((ArgumentError, DataError), match="'kapsules'"):
        build(RunConfig.from_toml(text), 2)


@pytest.mark.parametrize(("name", "base"), [("best", "default"), ("best-molecules", "molecules")])
def test_best_adds_a_committee_and_a_companion(name, base):
    config = load_preset(name)
    assert config.committee == CommitteeConfig(5, "wl-forest")
    assert replace(config.of_one_model(), source=base) == load_preset(base)


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
    "dataset", [pytest.param(n, marks=pytest.mark.exhaustive) if n == "COLLAB" else n for n in PAPER]
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
            f"'preset' must be one of {ALL}, got 'zzz'. 'graphcaps info --presets' lists all presets; the path of your "
            "own preset ends in .toml.",
        ),
        (
            "nope",
            None,
            "got 'nope'. 'graphcaps info --presets' lists all presets; the path of your own preset",
        ),
        *(
            (
                given,
                None,
                f"'preset' must be the name of a preset or the path of a TOML file, got '{given}'. "
                "'graphcaps info --presets' lists all presets; the path of your own preset ends in .toml.",
            )
            for given in ("ok.csv", "no/such", "no/such.csv")
        ),
        (
            "MUTAG",
            None,
            f"'preset' must be one of {ALL}, got 'MUTAG'.",
        ),
        (
            "paper",
            None,
            "'dataset' must be a data set of the paper, named as in the catalogue, for the preset 'paper', got none. "
            "It has COLLAB, DD,",
        ),
        ("paper", "MUTAGG", "'dataset' must be a data set of the paper, got 'MUTAGG'. Did you mean MUTAG?"),
        ("paper", "own", "'dataset' must be a data set of the paper, got 'own'. It has COLLAB, DD,"),
        ("paper", "planted-parts-hard", "got 'planted-parts-hard'. Use the preset 'planted-parts'."),
    ],
)
def test_unknown_names_are_refused_with_suggestions(preset, dataset, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        load_preset(preset, dataset)


# ---------------------------------------------------------------------- published settings of other models
@pytest.mark.parametrize("path", PUBLISHED, ids=preset_name)
def test_published_files_build_their_model_for_every_data_set(path):
    tables = tomllib.loads(path.read_text("utf-8")).get("by_dataset", {})
    assert set(tables) <= set(PAPER)
    for dataset in PAPER:
        config = load_preset("published", dataset, path.stem)
        assert (config.model, config.dataset) == (path.stem, dataset)
        assert config.source == preset_name(path) + (f", {dataset}" if dataset in tables else "")
        build(config, CATALOGUE[dataset].classes)
        assert RunConfig.from_dict(config.as_dict()) == config
        for section, values in tables.get(dataset, {}).items():
            used = {"features": config.features, "training": config.training}.get(section)
            used = config.model_arguments if used is None else asdict(used)
            assert {name: used[name] for name in values} == {
                name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
            }


@pytest.mark.parametrize("model", ["asap", "haarpool"])
def test_attributes_of_enzymes_are_standardised_where_a_network_does_not_normalise_its_input(model):
    assert load_preset("published", "ENZYMES", model).features.standardise
    assert not load_preset("published", "PROTEINS", model).features.standardise


def test_published_settings_by_model_and_data_set():
    general, dd = load_preset("published", model="gcn"), load_preset("published", "D&D", "gcn")
    assert (general.source, general.dataset, general.features.degree_onehot) == ("published/gcn", "", 100)
    assert (dd.source, dd.dataset, dd.features.degree_onehot) == ("published/gcn, DD", "DD", 10)
    assert replace(dd, source="", dataset="", features=general.features) == replace(general, source="")
    assert load_preset("published/gcn", "data/DD.zip") == dd
    own = load_preset("Published", "mine", "gcn")
    assert own == replace(general, dataset="mine")
    for model in (None, "hgcn"):
        assert load_preset("published", "MUTAG", model) == load_preset("paper", "MUTAG")
    assert published_models() == tuple(sorted(["hgcn", *(path.stem for path in PUBLISHED)]))


@pytest.mark.parametrize(
    ("preset", "model", "message"),
    [
        ("published", "gcns", "'model' must be one with published settings ("),
        ("published", "gcns", "), got 'gcns'. Did you mean 'gcn'?"),
        ("published", "majority", "got 'majority'. Leave the preset out, or write one (docs/presets.md)."),
        ("published", "hgcn", "'dataset' must be a data set of the paper, named as in the catalogue, for"),
        ("paper", "gcn", "'model' must be left out unless the preset is 'published', got 'gcn'."),
        ("published/gcn", "gin", "'model' must be left out unless the preset is 'published', got 'gin'."),
    ],
)
def test_models_without_published_settings_are_refused(preset, model, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        load_preset(preset, model=model)


def test_describe_presets():
    listed = {preset.name: preset for preset in describe_presets()}
    assert tuple(listed) == list_presets()
    gcn = listed["published/gcn"]
    assert (gcn.model, gcn.dataset, gcn.by_dataset) == ("gcn", "", ("DD", "REDDIT-BINARY"))
    assert (listed["paper/DD"].dataset, listed["default"].dataset) == ("DD", "")
    assert listed["best"].committee == CommitteeConfig(5, "wl-forest")
    assert listed["default"].committee == CommitteeConfig()


# ---------------------------------------------------------------------- user files
def test_values_by_data_set_of_a_user_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'by_data = ["batch_size"]\n[model]\nname = "gin"\nhidden = 8\n[by_dataset.DD.training]\nbatch_size = 5\n'
        "[by_dataset.DD.model]\nhidden = 4\n[by_dataset.mutag.features]\nmax_nodes = 9\n"
    )
    general, dd = load_preset(path), load_preset(path, "dd")
    assert (general.by_data, general.model_arguments, general.source) == (
        ("batch_size",),
        {"hidden": 8},
        str(path),
    )
    assert (dd.by_data, dd.model_arguments, dd.training.batch_size) == ((), {"hidden": 4}, 5)
    assert dd.source == f"{path}, DD"
    assert load_preset(path, "mutag").features.max_nodes == 9
    assert load_preset(path, "other") == general


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("by_dataset = 3", r"mine.toml: expected tables \[by_dataset.NAME.training\], found 3\."),
        ("[by_dataset]\nDD = 3", r"mine.toml, by_dataset.DD: expected a table, found 3\."),
        ("[by_dataset.DD]\ntraining = 3", r"by_dataset.DD: expected a table \[training\], found 3\."),
        (
            "[by_dataset.DD.trainings]\nepochs = 3",
            r"by_dataset.DD: unknown key 'trainings'. Did you mean 'training'",
        ),
        (
            "[by_dataset.DD]\nby_data = ['batch_size']",
            r"by_dataset.DD: unknown key 'by_data'. Known keys: model, features, training, committee\.",
        ),
        (
            "[by_dataset.DD.training]\nepoch = 3",
            r"mine.toml, by_dataset.DD: unknown key 'epoch' in \[training\]. Did you mean 'epochs'\?",
        ),
        (
            "[by_dataset.DD.training]\nepochs = 1.5",
            r"by_dataset.DD, \[training\] epochs: expected a whole number, found 1.5\.",
        ),
    ],
)
def test_invalid_values_by_data_set_are_refused(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    for dataset in (None, "DD"):
        with pytest.raises(DataError, match=message):
            load_preset(path, dataset)


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
