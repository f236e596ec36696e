"""Search spaces: the default one, files, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from graphcaps.config import CommitteeConfig, RunConfig
from graphcaps.errors import DataError
from graphcaps.models.lookup import is_classical, model_names
from graphcaps.presets import list_presets, load_preset
from graphcaps.registry import Choices, Interval
from graphcaps.search import SearchSpace, default_space, read_space, space_from_dict
from graphcaps.training.auto_config import resolve_config
from tests.small_models import planted

SMALL = RunConfig(model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2})


def test_the_default_space_has_numbers_of_the_training_and_searched_options() -> None:
    config = resolve_config(load_preset("default"), planted())
    space = default_space(config)
    assert space.options["training.learning_rate"] == Interval(3e-4, 1e-2, log=True)
    assert space.options["model.num_capsules"] == Choices(((5,), (10,), (20,), (10, 5)))
    assert space.numbers("hgcn") == (
        *("training.learning_rate", "training.halve_every", "training.weight_decay"),
        *("training.reconstruction_weight", "model.dropout", "model.upper_margin", "model.lower_margin"),
    )
    assert space.shapes("hgcn") == (
        *("model.capsule_dim", "model.num_capsules", "model.num_factors"),
        *("model.routing_iterations", "model.context"),
    )
    # The configuration itself is one of the trials.
    values = space.values_of(config)
    assert values is not None
    assert space.configure(config, values) == config.with_model(
        upper_margin=0.9, lower_margin=0.1, context="none"
    )


@pytest.mark.parametrize("model", ["gin", "mincut", "capsgnn", "diffpool"])
def test_every_network_has_a_default_space(model: str) -> None:
    assert model in model_names()
    space = default_space(RunConfig(model=model))
    assert "training.learning_rate" in space.options
    assert "model.dropout" in space.numbers(model)
    assert ("training.reconstruction_weight" in space.options) == (model == "capsgnn")


def test_options_that_the_configuration_excludes_are_left_out() -> None:
    assert "model.context" not in default_space(SMALL.with_model(parts="blocks")).options


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(
        "[training]\nlearning_rate = { low = 1e-4, high = 1e-2, log = true }\nbatch_size = [16, 32]\n"
        "[model]\nnum_capsules = [[4], [8, 4]]\nrouting_iterations = { low = 1, high = 3 }\n"
    )
    space = read_space(path, "hgcn")
    assert space.options == {
        "training.learning_rate": Interval(1e-4, 1e-2, log=True),
        "training.batch_size": Choices((16, 32)),
        "model.num_capsules": Choices(((4,), (8, 4))),
        "model.routing_iterations": Interval(1, 3),
    }
    assert space_from_dict(space.as_dict(), "hgcn").options == space.options
    assert space.shapes("hgcn")[0] == "training.batch_size"
    config = space.configure(SMALL, {"training.batch_size": 32, "model.num_capsules": (8, 4)})
    assert (config.training.batch_size, config.model_arguments["num_capsules"]) == (32, (8, 4))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "space: the search space has no options"),
        ({"training": {}}, "the search space has no options"),
        ({"trainig": {"learning_rate": [1]}}, r"unknown table \[trainig\]. Did you mean 'training'?"),
        ({"training": 3}, r"space: expected a table \[training\], found 3"),
        ({"training": {"learning_rat": [1]}}, "unknown option 'learning_rat'.*Did you mean 'learning_rate'"),
        ({"model": {"learning_rate": [1]}}, r"Did you mean 'learning_rate' in \[training\]"),
        ({"training": {"epochs": [10, 20]}}, "training.epochs cannot be searched: set it with --epochs"),
        ({"model": {"dropout": []}}, r"\[model\] dropout: expected at least one value, found an empty list"),
        ({"model": {"dropout": [0.1, 0.1]}}, "expected different values"),
        ({"model": {"dropout": 0.1}}, "expected a list of values, or { low = …, high = … }"),
        ({"model": {"dropout": {"low": 0.1}}}, "a finite number under 'high', found none"),
        ({"model": {"dropout": {"low": 0.5, "high": 0.1}}}, "'low' below 'high', 0.1, found 0.5"),
        ({"model": {"dropout": {"low": 0.0, "high": 0.5, "log": True}}}, "'low' above 0 on a logarithmic"),
        ({"model": {"dropout": {"low": 0.0, "high": 0.5, "logs": True}}}, "unknown key 'logs'.*'log'"),
        ({"model": {"dropout": {"low": float("nan"), "high": 0.5}}}, "a finite number under 'low'"),
    ],
)
def test_a_wrong_space_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        space_from_dict(values, "hgcn")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model.dropout": Interval(0.0, 1.5)}, "model.dropout = 1.5 is refused"),
        ({"training.learning_rate": Choices((0.0, 0.1))}, "training.learning_rate = 0.0 is refused"),
        ({"model.num_factors": Choices((2, 3))}, "model.num_factors = 3 is refused"),
        ({"model.capsule_dim": Choices(("wide",))}, "model.capsule_dim = 'wide' is refused"),
        (
            {"model.capsule_dim": Choices((8, 12)), "model.num_factors": Choices((2, 8))},
            "model.capsule_dim = 12, model.num_factors = 8 are refused",
        ),
        (
            {"model.upper_margin": Interval(0.3, 0.9), "model.lower_margin": Interval(0.1, 0.4)},
            "model.upper_margin = 0.3, model.lower_margin = 0.4 are refused",
        ),
    ],
)
def test_values_that_the_model_refuses_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        SearchSpace(options, "mine.toml").check(SMALL, 2)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"= 3", b"[model]\ndropout = [[[1]]]"])
def test_files_that_are_no_spaces_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "space.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"space\.toml"):
        read_space(path, "hgcn").check(SMALL, 2)
    with pytest.raises(DataError, match="file not found"):
        read_space(tmp_path / "none.toml", "hgcn")


def test_the_start_is_in_the_default_space_of_every_preset() -> None:
    store = planted()
    configs = [load_preset(name) for name in list_presets()] + [
        RunConfig(model=name) for name in model_names()
    ]
    networks = [resolve_config(config, store) for config in configs if not is_classical(config.model)]
    assert len(networks) > 30
    for config in networks:
        values = default_space(config).values_of(config)
        assert values is not None, config.source
        assert values["training.halve_every"] == config.training.halve_every


def test_trials_keep_the_committee_of_the_configuration() -> None:
    config = resolve_config(load_preset("best"), planted())
    trial = default_space(config).configure(config, {"training.learning_rate": 0.01})
    assert (trial.committee, trial.training.learning_rate) == (CommitteeConfig(5, "wl-forest"), 0.01)
    assert RunConfig.from_toml(trial.to_toml()).committee == trial.committee


def test_a_value_without_a_place_on_a_logarithmic_scale_is_a_choice() -> None:
    config = SMALL.with_training(weight_decay=0.0, halve_every=500)
    space = default_space(config)
    assert space.options["training.halve_every"] == Interval(20, 500, log=True)
    assert space.options["training.weight_decay"] == Choices((0.0, 1e-5, 0.0003162, 1e-2))
    space.check(config, 2)


def test_values_of_the_start_outside_a_space_are_named() -> None:
    space = space_from_dict({"training": {"halve_every": [20]}, "model": {"dropout": [0.1, 0.5]}}, "hgcn")
    config = SMALL.with_training(halve_every=500).with_model(dropout=0.5)
    assert space.outside(config) == {"training.halve_every": 500}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"training": {"halve_every": {"low": 20.0, "high": 200.0}}}, r"halve_every = 20\.0 is refused"),
        ({"training": {"batch_size": [16.5, 32]}}, r"batch_size = 16\.5 is refused: .*a whole number"),
        ({"training": {"batch_size": ["a"]}}, "batch_size = 'a' is refused: .*a whole number, found 'a'"),
        ({"features": {"propagation": [1.5]}}, r"propagation = 1\.5 is refused"),
        ({"model": {"capsule_dim": {"low": 8.0, "high": 16.0}}}, r"capsule_dim = 8\.0 is refused"),
    ],
)
def test_values_of_another_type_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        space_from_dict(values, "hgcn").check(SMALL, 2)
    assert ".." not in str(caught.value)


def test_false_turns_a_setting_off() -> None:
    values = {"features": {"edge_labels": [False, "counts"]}, "training": {"batches_per_epoch": [False, 2]}}
    space = space_from_dict(values, "hgcn")
    space.check(SMALL, 2)
    config = SMALL.with_features(edge_labels="counts").with_training(batches_per_epoch=2)
    off = space.configure(config, {"features.edge_labels": False, "training.batches_per_epoch": False})
    assert off.features.edge_labels is None
    assert off.training.batches_per_epoch is None
    assert space.values_of(off) == {"features.edge_labels": False, "training.batches_per_epoch": False}


@pytest.mark.parametrize(
    ("model", "weight"), [("gmn", "divergence_weight"), ("mincut", "cut_weight"), ("diffpool", "link_weight")]
)
def test_weights_of_loss_terms_are_not_searched(model: str, weight: str) -> None:
    assert f"model.{weight}" not in default_space(RunConfig(model=model)).options
    with pytest.raises(DataError, match=rf"model\.{weight} cannot be searched: .*Set it with --set"):
        space_from_dict({"model": {weight: [0.1, 1.0]}}, model)
