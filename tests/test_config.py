"""RunConfig: reading, checks of keys and values, writing, and model construction."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest
import torch

from graphcaps.config import CommitteeConfig, FeatureConfig, RunConfig, TrainConfig
from graphcaps.data import FeatureRecipe
from graphcaps.errors import ArgumentError, DataError, GraphcapsError
from graphcaps.models.builder import model_factory
from graphcaps.presets import list_presets, load_preset
from graphcaps.training.auto_config import resolve_config
from tests.small_models import planted

FULL = """
dataset = "OWN"
[features]
attributes = false
labels = false
degree = false
degree_onehot = 12
propagation = 0
max_nodes = 50
[model]
name = "gin"
hidden = 16
[training]
epochs = 9
batch_size = 5
learning_rate = 0.5
weight_decay = 0
halve_every = 4
reconstruction_weight = 1
"""


def test_an_empty_file_gives_the_defaults():
    config = RunConfig.from_toml("")
    assert config == RunConfig(source="configuration")
    assert (config.model, config.model_arguments) == ("hgcn", {})
    assert config.training == TrainConfig(200, 32, 0.001, 0.0001, 500, 0.1)
    assert config.features == FeatureConfig(True, True, True, 100, 3, None)


def test_every_value_is_read():
    config = RunConfig.from_toml(FULL, "own.toml")
    assert config == RunConfig(
        "OWN",
        "gin",
        {"hidden": 16},
        FeatureConfig(False, False, False, 12, 0, 50),
        TrainConfig(9, 5, 0.5, 0.0, 4, 1.0),
        "own.toml",
    )


@pytest.mark.parametrize(
    "text", ["", FULL, "[model]\nnum_capsules = [4, 2]", "[features]\ndegree_onehot = false"]
)
def test_a_configuration_survives_json(text):
    config = RunConfig.from_toml(text, "own.toml")
    written = json.loads(json.dumps(config.as_dict()))
    assert RunConfig.from_dict(written) == config
    assert written["source"] == "own.toml"


def test_as_dict_returns_a_copy():
    config = RunConfig(model_arguments={"num_capsules": (4, 2)})
    plain = config.as_dict()
    assert plain["model"] == {"name": "hgcn", "num_capsules": [4, 2]}
    plain["model"]["num_capsules"].append(1)
    assert config.model_arguments == {"num_capsules": (4, 2)}


def test_a_single_number_is_a_tuple_of_one():
    config = RunConfig.from_toml("[model]\nnum_capsules = 4")
    arguments = resolve_config(config, planted()).model_arguments
    assert arguments == {"num_capsules": (4,)}
    one, other = (
        model_factory(each, 5, 2)(()) for each in (config, replace(config, model_arguments=arguments))
    )
    assert {n: v.shape for n, v in one.state_dict().items()} == {
        n: v.shape for n, v in other.state_dict().items()
    }


def test_false_is_read_as_none():
    features = RunConfig.from_toml("[features]\ndegree_onehot = false\nmax_nodes = false").features
    assert (features.degree_onehot, features.max_nodes) == (None, None)
    assert RunConfig.from_dict({"features": {"max_nodes": None}}).features.max_nodes is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datset = 'x'", "own: unknown key 'datset'. Did you mean 'dataset'?"),
        ("[train]\nepochs = 1", "own: unknown key 'train'. Did you mean 'training'?"),
        (
            "zzz = 1",
            "own: unknown key 'zzz'. Known keys: dataset, by_data, model, features, training, committee, "
            "source.",
        ),
        ("[training]\nepoch = 1", "own: unknown key 'epoch' in [training]. Did you mean 'epochs'?"),
        ("[features]\nlabel = true", "own: unknown key 'label' in [features]. Did you mean 'labels'?"),
        ("training = 3", "own: expected a table [training], found 3."),
        ("by_data = [[1]]", "own, by_data: expected a list of names, found [[1]]."),
        ("model = 'hgcn'", "own: expected a table [model], found 'hgcn'."),
        ("dataset = 3", "own, dataset: expected a string, found 3."),
        ("[model]\nname = 3", "own, [model] name: expected a string, found 3."),
        ("[training]\nepochs = 1.5", "own, [training] epochs: expected a whole number, found 1.5."),
        ("[training]\nepochs = true", "own, [training] epochs: expected a whole number, found true."),
        ("[training]\nlearning_rate = '1'", "own, [training] learning_rate: expected a number, found '1'."),
        ("[training]\nlearning_rate = true", "own, [training] learning_rate: expected a number, found true."),
        ("[features]\nlabels = 1", "own, [features] labels: expected true or false, found 1."),
        ("[features]\nmax_nodes = true", "own, [features] max_nodes: expected a whole number, found true."),
        (
            "[features]\npropagation = false",
            "own, [features] propagation: expected a whole number, found false.",
        ),
        ("[training\n", "own: invalid TOML: "),
        ("committee = 5", "own: expected a table [committee], found 5."),
        ("[committee]\nmember = 5", "own: unknown key 'member' in [committee]. Did you mean 'members'?"),
        ("[committee]\nmembers = '5'", "own, [committee] members: expected a whole number, found '5'."),
        ("[committee]\ncompanion = 3", "own, [committee] companion: expected a string, found 3."),
    ],
)
def test_invalid_toml_is_refused(text, message):
    with pytest.raises(DataError, match=re.escape(message)):
        RunConfig.from_toml(text, "own")


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("training", "epochs", 0, "training: 'epochs' must be at least 1, got 0."),
        ("training", "batch_size", -1, "must be at least 1, got -1."),
        ("training", "halve_every", 0, "must be at least 1, got 0."),
        ("training", "learning_rate", 0, "'learning_rate' must be above 0 and finite, got 0."),
        ("training", "learning_rate", "nan", "must be above 0 and finite, got nan."),
        ("training", "learning_rate", "inf", "must be above 0 and finite, got inf."),
        ("training", "weight_decay", -0.1, "'weight_decay' must be at least 0 and finite, got -0.1."),
        ("training", "weight_decay", "inf", "must be at least 0 and finite, got inf."),
        ("training", "reconstruction_weight", "nan", "must be at least 0 and finite, got nan."),
        ("features", "propagation", -1, "features: 'propagation' must be at least 0, got -1."),
        ("features", "degree_onehot", -1, "'degree_onehot' must be at least 0, got -1."),
        (
            "features",
            "propagation",
            10**9 + 1,
            "'propagation' must be at most 1,000,000,000, got 1000000001.",
        ),
        (
            "training",
            "epochs",
            "0x" + "f" * 5000,
            "'epochs' must be at most 1,000,000,000, got a number of more than 300 digits.",
        ),
        ("training", "learning_rate", "1e7", "'learning_rate' must be at most 1,000,000, got 10000000.0."),
        (
            "training",
            "weight_decay",
            10**400,
            "'weight_decay' must be at most 1,000,000, got a number of more than 300 digits.",
        ),
        ("training", "learning_rate", "1e30", "'learning_rate' must be at most 1,000,000, got 1e+30."),
        ("training", "epochs", 10**30, "'epochs' must be at most 1,000,000,000, got 1e+30."),
        ("features", "max_nodes", 0, "'max_nodes' must be at least 1, got 0."),
    ],
)
def test_a_value_out_of_range_is_refused(section, name, value, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        RunConfig.from_toml(f"[{section}]\n{name} = {value}")


def test_the_learning_rate_is_halved():
    training = TrainConfig(learning_rate=0.8, halve_every=3)
    assert [training.learning_rate_at(epoch) for epoch in range(8)] == pytest.approx(
        [0.8] * 3 + [0.4] * 3 + [0.2] * 2
    )


def test_with_training_changes_only_given_values():
    config = RunConfig.from_toml(FULL)
    changed = config.with_training(epochs=3, batch_size=None)
    assert (changed.training.epochs, changed.training.batch_size) == (3, 5)
    assert (changed.model_arguments, changed.features) == (config.model_arguments, config.features)
    assert config.training.epochs == 9
    with pytest.raises(ArgumentError, match="'epochs' must be at least 1"):
        config.with_training(epochs=0)


# ---------------------------------------------------------------------- the model
def test_the_model_is_built_with_the_arguments():
    config = RunConfig.from_toml(
        "[model]\ncapsule_dim = 8\nnum_capsules = [4, 3]\nnum_factors = 2\ndropout = 0"
    )
    model = model_factory(config, 5, 2)((6,))
    assert [layer.num_capsules for layer in model.layers] == [4, 3, 2]
    assert all(parameter.shape[0] == 6 for parameter in model.parameters())
    lists = RunConfig(model_arguments={"capsule_dim": 8, "num_capsules": [4], "residual_nodes": None})
    assert isinstance(model_factory(lists, 5, 2)(()), torch.nn.Module)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 'hgnc'", "'model' must name a model, got 'hgnc'. Did you mean hgcn"),
        ("capsules = 3", "model 'hgcn': 'capsules' must be one of capsule_dim, num_capsules, "),
        ("lead = [2]", "'lead' must be one of "),
        ("in_channels = 2", "'in_channels' must be one of "),
        ("capsule_dim = '64'", "model 'hgcn': 'capsule_dim' must be a whole number, got '64'."),
        ("capsule_dim = 1.5", "'capsule_dim' must be a whole number, got 1.5."),
        ("num_capsules = '8'", "'num_capsules' must be whole numbers, got '8'."),
        ("num_capsules = true", "'num_capsules' must be whole numbers, got True."),
        ("num_capsules = [[3]]", "'num_capsules' must be whole numbers, got ([3],)."),
        ("dropout = 'x'", "'dropout' must be a number, got 'x'."),
        ("residual = 'no'", "'residual' must be true or false, got 'no'."),
        ("residual_nodes = 'a'", "'residual_nodes' must be a whole number, got 'a'."),
        ("formulation = 3", "'formulation' must be a string, got 3."),
        ("num_capsules = [0]", "'num_capsules' must be at least 1, got 0."),
        (
            "capsule_dim = 1000001",
            "model 'hgcn': 'capsule_dim' must be at most 1,000,000, got a larger number.",
        ),
        ("num_capsules = [4, 10000000]", "'num_capsules' must be at most 1,000,000, got a larger number."),
        ("name = 'gin'\nhidden = 0", "GIN: 'hidden' must be at least 1, got 0."),
        ("trunk = 'xx'", "must be one of gin, gine, sage, gat or a module, got 'xx'."),
    ],
)
def test_an_invalid_model_argument_is_refused(text, message):
    with pytest.raises(GraphcapsError, match=re.escape(message)):
        model_factory(RunConfig.from_toml(f"[model]\n{text}"), 5, 2)(())


def test_a_recipe_takes_all_features_but_the_limit_of_nodes():
    features = RunConfig.from_toml(FULL).features
    assert features.max_nodes is not None
    recipe = FeatureRecipe.from_config(features)
    taken = {name: getattr(recipe, name) for name in asdict(features) if name != "max_nodes"}
    assert taken | {"max_nodes": features.max_nodes} == asdict(features)
    assert not recipe.is_fitted


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 20_000], ids=["digits", "brackets"])
def test_toml_that_python_cannot_parse_is_refused(value):
    with pytest.raises(DataError, match="own: invalid TOML: "):
        RunConfig.from_toml(f"[training]\nepochs = {value}", "own")


def test_whole_numbers_are_read_as_floats():
    training = RunConfig.from_toml("[training]\nlearning_rate = 1\nweight_decay = 0").training
    assert (type(training.learning_rate), type(training.weight_decay)) == (float, float)


@pytest.mark.parametrize("name", list_presets())
def test_a_configuration_survives_toml(name):
    config = load_preset(name)
    text = config.to_toml("First line\n\nthird line")
    assert text.startswith("# First line\n#\n# third line\n\n")
    assert RunConfig.from_toml(text, config.source) == config


def test_text_is_quoted_in_toml():
    config = RunConfig(dataset='a "b"\\c', model_arguments={"trunk": None, "num_capsules": (4, 2)})
    again = RunConfig.from_toml(config.to_toml(), "defaults")
    assert again == replace(config, model_arguments={"num_capsules": (4, 2)})
    assert again.to_toml() == config.to_toml()


# ---------------------------------------------------------------------- committees
def test_a_committee_is_read_and_written():
    config = RunConfig.from_toml('[committee]\nmembers = 3\ncompanion = "wl-forest"', "own")
    assert config.committee == CommitteeConfig(3, "wl-forest")
    assert config.as_dict()["committee"] == {"members": 3, "companion": "wl-forest"}
    assert RunConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    assert RunConfig.from_toml(config.to_toml(), "own") == config
    alone = config.with_committee(companion="none")
    assert alone.committee == CommitteeConfig(3)
    assert RunConfig.from_toml(alone.to_toml(), "own") == alone
    assert config.of_one_model() == replace(config, committee=CommitteeConfig())
    for text in ("companion = false", "companion = 'none'"):
        assert RunConfig.from_toml(f"[committee]\n{text}").committee == CommitteeConfig()


def test_the_configuration_of_a_single_model_has_no_section():
    config = load_preset("default")
    assert config.committee == CommitteeConfig()
    assert [*config.as_dict()] == ["dataset", "model", "features", "training", "source", "by_data"]
    assert "committee" not in config.to_toml()


def test_values_that_are_given_replace_those_of_the_committee():
    config = RunConfig(committee=CommitteeConfig(5, "wl-forest"))
    assert config.with_committee() == config
    assert config.with_committee(members=2).committee == CommitteeConfig(2, "wl-forest")
    assert config.with_committee(companion="wl").committee == CommitteeConfig(5, "wl")
    assert config.with_committee(members=1, companion="none") == RunConfig()


def test_a_committee_of_one_data_set():
    text = "[committee]\nmembers = 3\n[by_dataset.DD.committee]\nmembers = 2"
    assert RunConfig.from_toml(text).committee.members == 3
    assert RunConfig.from_toml(text, datasets=["DD"]).committee.members == 2


@pytest.mark.parametrize(
    ("members", "words"), [(0, "be at least 1, got 0"), (1001, "be at most 1,000, got 1001")]
)
def test_a_wrong_number_of_members_is_refused(members, words):
    with pytest.raises(ArgumentError, match=re.escape(f"committee: 'members' must {words}.")):
        RunConfig.from_toml(f"[committee]\nmembers = {members}")
