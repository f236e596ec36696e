"""The model file: same scores bit for bit after loading, no code execution, one message per kind of damage."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import time
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import graphcaps
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.model_file import FORMAT, FORMAT_VERSION, load
from graphcaps.inference.probabilities import Calibration
from graphcaps.training.final_training import train_final
from tests.small_models import (
    HGCN_SMALL,
    companion_model,
    labelled,
    labelled_model,
    planted,
    small_committee,
    small_model,
    train_small,
)

VARIANTS = {
    "released": ("hgcn", HGCN_SMALL),
    "paper": ("hgcn", HGCN_SMALL | {"formulation": "paper"}),
    "trunk": ("hgcn", HGCN_SMALL | {"trunk": "gin", "trunk_layers": 2}),
    "separate": ("hgcn", HGCN_SMALL | {"factor_squash": "separate", "dropout": 0.3}),
    "two levels": ("hgcn", HGCN_SMALL | {"num_capsules": (5, 3), "routing_iterations": 2}),
    "ablated": ("hgcn", HGCN_SMALL | {"disentangle": False, "reconstruction": False, "residual": False}),
    "gin": ("gin", {"hidden": 8, "num_layers": 2}),
}


@cache
def saved() -> bytes:
    """The bytes of a small model file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        small_model().save(Path(folder) / "m.safetensors")
        return (Path(folder) / "m.safetensors").read_bytes()


def error_of(path: Path) -> str:
    """The error message of loading a file, without the path."""
    with pytest.raises(DataError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}")
    assert "\n" not in message
    return message.removeprefix(f"{path}").removeprefix(": ")


def rewritten(tmp_path: Path, tensors=None, **changes) -> Path:
    """A model file with changed header entries (``...`` removes one) or tensors and a valid checksum."""
    source = tmp_path / "source.safetensors"
    source.write_bytes(saved())
    read = read_checked(source, FORMAT, FORMAT_VERSION)
    content = {
        key: value for key, value in read.content.items() if key not in ("format", "version", "sha256")
    }
    content = {key: value for key, value in (content | changes).items() if value is not Ellipsis}
    path = tmp_path / "made.safetensors"
    path.write_bytes(encode_checked(FORMAT, FORMAT_VERSION, content, tensors or read.tensors))
    return path


def entry(tmp_path: Path, name: str):
    source = tmp_path / "source.safetensors"
    source.write_bytes(saved())
    return read_checked(source, FORMAT, FORMAT_VERSION).content[name]


# ---------------------------------------------------------------------- round trip
@pytest.mark.filterwarnings("ignore::graphcaps.data.features.truncate.TruncationWarning")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_loaded_model_gives_the_same_scores_bit_for_bit(tmp_path, variant):
    name, arguments = VARIANTS[variant]
    model = train_small(planted(), name, arguments, max_nodes=30 if variant == "gin" else None)
    path = tmp_path / "m.safetensors"
    model.save(path)
    back = graphcaps.load(str(path))
    assert torch.equal(back.scores(planted()), model.scores(planted()))
    assert back.predict(planted()).tolist() == model.predict(planted()).tolist()
    for entry in ("recipe", "class_names", "training", "versions"):
        assert getattr(back, entry) == getattr(model, entry)
    assert back.config.features == model.config.features
    assert back.config.training == model.config.training
    assert not back.model.training


def test_weights_in_double_precision_stay_so(tmp_path):
    model = train_small(planted())
    model.model.double()
    model.save(tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    assert back.dtype == torch.float64
    assert torch.equal(back.scores(planted()), model.scores(planted()))


def test_a_file_saved_again_has_the_same_bytes(tmp_path):
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    model = labelled_model()
    model.save(paths[0])
    model.save(paths[1])
    load(paths[0]).save(paths[2])
    first = paths[0].read_bytes()
    assert all(path.read_bytes() == first for path in paths)


def test_every_argument_of_the_model_is_written(tmp_path):
    model = entry(tmp_path, "config")["model"]
    assert model["formulation"] == "released"
    assert (model["routing_iterations"], model["num_capsules"], model["trunk"]) == (3, [4], None)
    assert "lead" not in model


def test_loading_draws_no_random_numbers(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(saved())
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    load(path)
    assert torch.equal(torch.rand(1), expected)


def test_names_of_classes_may_hold_anything(tmp_path):
    names = ('"quoted", with comma', "0" * 64, "Größe\n☃ \\u0000")
    model = replace(small_model(), class_names=names, training={"sha256": "0" * 64})
    model.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").class_names == names


# ---------------------------------------------------------------------- saving
def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        small_model().save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_values_that_cannot_be_saved_are_rejected(tmp_path):
    path = tmp_path / "m.safetensors"
    model = small_model()
    config = replace(model.config, model_arguments=HGCN_SMALL | {"trunk": torch.nn.Identity()})
    with pytest.raises(
        ArgumentError,
        match=r"'trunk' must be a number, a string, .* to be saved, got Identity",
    ):
        replace(model, config=config).save(path)
    config = replace(model.config, model_arguments=HGCN_SMALL | {"capsule_dim": 16})
    with pytest.raises(ArgumentError, match="'config' must match the model, with the shape "):
        replace(model, config=config).save(path)
    for value in (float("nan"), {1, 2}):
        with pytest.raises(ArgumentError, match="'training' must hold JSON values"):
            replace(model, training={"loss": value}).save(path)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------- other kinds of files
class Trap:
    """Leaves a mark where a pickle of it is opened."""

    def __reduce__(self):
        return (os.mkdir, ("opened",))


def test_other_kinds_of_files_are_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("m.safetensors")
    assert error_of(path) == "file not found."
    assert error_of(tmp_path) == "expected a file written by graphcaps, found a folder."
    path.write_bytes(b"")
    assert error_of(path) == "expected a file written by graphcaps, found an empty file."
    path.write_text("# a note about models\n")
    assert error_of(path) == "expected a file written by graphcaps, found text."
    torch.save({"weight": torch.zeros(2), "trap": Trap()}, path)
    assert "found a zip archive (torch.save and data sets use this format)." in error_of(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MUTAG/MUTAG_A.txt", "1, 2\n")
    assert "found a zip archive" in error_of(path)
    path.write_bytes(pickle.dumps(Trap()))
    assert "found a pickle, which could run code and is not opened." in error_of(path)
    save_file({"weight": torch.zeros(2)}, path)
    assert "found a safetensors file of another program." in error_of(path)
    path.write_bytes(random.Random(0).randbytes(500))
    assert "found an unknown format." in error_of(path)
    assert not Path("opened").exists()


def test_a_newer_format_is_rejected(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(encode_checked(FORMAT, 7, {"versions": {"graphcaps": "9.0"}}, {}))
    assert error_of(path) == (
        "expected format 1 of 'graphcaps model', found the newer format 7, written by graphcaps 9.0. "
        "Update graphcaps to read it."
    )
    path.write_bytes(encode_checked("graphcaps checkpoint", 1, {}, {}))
    assert "expected a file of the format 'graphcaps model', found 'graphcaps checkpoint'." in error_of(path)


def test_a_pickle_is_never_opened(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("loading opened a pickle")

    path = tmp_path / "m.safetensors"
    path.write_bytes(saved())
    for owner, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")):
        monkeypatch.setattr(owner, name, fail)
    load(path)


# ---------------------------------------------------------------------- modified and truncated files
def test_a_truncated_file_is_rejected_with_both_sizes(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(saved()[:-1])
    size = len(saved())
    assert error_of(path) == (
        f"expected {size:,} bytes, found {size - 1:,}: the file is truncated. Copy or save it again."
    )
    path.write_bytes(saved() + b"\n")
    assert error_of(path) == f"expected {size:,} bytes, found {size + 1:,}: data was appended to the file."


def test_a_modified_weight_and_a_modified_header_are_rejected(tmp_path):
    path = tmp_path / "m.safetensors"
    expected = (
        "checksum mismatch: the file was changed or damaged after it was written. Copy or save it again."
    )
    data = bytearray(saved())
    data[-1] ^= 1
    path.write_bytes(data)
    assert error_of(path) == expected
    renamed = saved().replace(b"ring-star", b"ring-rats")
    assert renamed != saved()
    path.write_bytes(renamed)
    assert error_of(path) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_modified_byte_is_rejected(tmp_path, data):
    length = int.from_bytes(saved()[:8], "little")
    inside = st.one_of(
        st.integers(0, 7), st.integers(8, 7 + length), st.integers(8 + length, len(saved()) - 1)
    )
    offset, change = data.draw(inside), data.draw(st.integers(1, 255))
    changed = bytearray(saved())
    changed[offset] ^= change
    path = tmp_path / "m.safetensors"
    path.write_bytes(changed)
    error_of(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_any_truncation_is_rejected(tmp_path, share):
    path = tmp_path / "m.safetensors"
    path.write_bytes(saved()[: int(share * len(saved()))])
    error_of(path)


# ---------------------------------------------------------------------- valid checksum, invalid contents
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"training": ...}, "expected an object under 'training' in the header, found no such entry."),
        ({"in_channels": "8"}, "expected an integer under 'in_channels' in the header, found '8'."),
        ({"in_channels": True}, "expected an integer under 'in_channels' in the header, found True."),
        ({"num_classes": 0}, "expected at least 1 under 'num_classes' in the header, found 0."),
        ({"calibration": 3}, "expected an object or null under 'calibration' in the header, found 3."),
        ({"calibration": {"t": 2}}, "'t' must be one of method, graphs, temperature, curves, metrics"),
        ({"profile": []}, "expected an object or null under 'profile' in the header, found []."),
        ({"profile": {"quantiles": {}}}, "be the output of TrainingProfile.to_dict"),
        ({"extra": 1}, "found 'extra'."),
        ({"class_names": ["a", "b", 3]}, "expected strings as class names"),
        ({"class_names": ["a", "b"]}, "'class_names' must be 3 different names"),
        ({"recipe": {"attributes": 3}}, "'attributes' must be true or false"),
        ({"recipe": {"codes": 3}}, "'codes' must be one of"),
        ({"recipe": {}}, "'recipe' must be fitted"),
        ({"in_channels": 10**12}, "expected the shape [1000000000000, "),
    ],
)
def test_invalid_headers_are_rejected(tmp_path, changes, expected):
    assert expected in error_of(rewritten(tmp_path, **changes))


@pytest.mark.parametrize(
    ("section", "changes", "expected"),
    [
        (
            "model",
            {"name": "os.system"},
            "expected a model of 'graphcaps info --models', found 'os.system'.",
        ),
        ("model", {"depth": 3}, "'depth' must be one of capsule_dim"),
        ("model", {"capsule_dim": "big"}, "expected a valid model, found"),
        ("model", {"capsule_dim": None}, "expected a valid model, found"),
        ("model", {"capsule_dim": 10**6}, "expected the shape "),
        ("model", {"capsule_dim": 10**30}, "expected "),
        ("model", {"formulation": "exact"}, "'formulation' must be 'released' or 'paper'"),
        ("model", {"trunk": "os"}, "'kind' must be one of gin, gine, sage, gat"),
        ("training", {"epochs": 0}, "'epochs' must be at least 1"),
        ("training", {"speed": 1}, "'speed'"),
        ("features", {"max_nodes": 0}, "'max_nodes' must be at least 1, got 0."),
    ],
)
def test_invalid_configurations_are_rejected(tmp_path, section, changes, expected):
    config = entry(tmp_path, "config")
    config[section] |= changes
    assert expected in error_of(rewritten(tmp_path, config=config))


def test_tensors_that_do_not_match_the_model_are_rejected(tmp_path):
    state = small_model().model.state_dict()
    name = next(key for key, value in state.items() if value.is_floating_point() and value.dim() > 1)
    missing = {key: value for key, value in state.items() if key != name}
    assert f"expected a tensor '{name}', found no such tensor." in error_of(
        rewritten(tmp_path, tensors=missing)
    )
    more = state | {"other": torch.zeros(1)}
    assert "found an additional tensor 'other'." in error_of(rewritten(tmp_path, tensors=more))
    shape = state | {name: state[name][..., :-1]}
    assert f"expected the shape {list(state[name].shape)} for '{name}', found" in error_of(
        rewritten(tmp_path, tensors=shape)
    )
    kind = state | {name: state[name].half()}
    assert f"expected the type float32 for '{name}', found float16." in error_of(
        rewritten(tmp_path, tensors=kind)
    )
    for number in (float("nan"), float("inf")):
        broken = {key: value.clone() for key, value in state.items()}
        broken[name].view(-1)[0] = number
        assert f"expected finite numbers in '{name}', found NaN or infinity." in error_of(
            rewritten(tmp_path, tensors=broken)
        )


# ---------------------------------------------------------------------- the format itself
def test_the_file_is_plain_safetensors_with_a_json_header(tmp_path):
    from safetensors import safe_open

    path = tmp_path / "m.safetensors"
    labelled_model().save(path)
    with safe_open(path, "pt") as file:
        content = json.loads(file.metadata()["graphcaps"])
        names = set(file.keys())
    assert names == set(labelled_model().model.state_dict())
    assert (content["format"], content["version"]) == ("graphcaps model", 1)
    assert content["class_names"] == list(labelled().class_names)
    assert content["recipe"]["label_values"] == [[0, 1, 2, 3]]


def test_the_checksum_is_computed_with_zeros_in_its_field(tmp_path):
    import hashlib

    path = tmp_path / "m.safetensors"
    path.write_bytes(saved())
    digest = read_checked(path, FORMAT, FORMAT_VERSION).content["sha256"]
    plain = saved().replace(digest.encode(), b"0" * 64, 1)
    assert hashlib.sha256(io.BytesIO(plain).read()).hexdigest() == digest


# ---------------------------------------------------------------------- calibration and profile
def test_calibration_and_profile_are_kept(tmp_path):
    model = replace(
        labelled_model(),
        calibration=Calibration("temperature", 40, 0.4, metrics={"before": {"ece": 0.2}}),
        profile=TrainingProfile.from_store(labelled()),
    )
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.calibration == model.calibration
    assert again.profile == model.profile
    np.testing.assert_array_equal(again.predict_proba(labelled()), model.predict_proba(labelled()))
    assert not np.allclose(again.predict_proba(labelled()), labelled_model().predict_proba(labelled()))


def test_calibration_and_profile_are_optional(tmp_path):
    path = tmp_path / "m.safetensors"
    labelled_model().save(path)
    file = read_checked(path, FORMAT, FORMAT_VERSION)
    left_out = ("format", "version", "sha256", "calibration", "profile")
    header = {name: value for name, value in file.content.items() if name not in left_out}
    path.write_bytes(encode_checked(FORMAT, FORMAT_VERSION, header, file.tensors))
    model = load(path)
    assert model.calibration is None
    np.testing.assert_array_equal(model.predict_proba(labelled()), labelled_model().predict_proba(labelled()))
    with pytest.raises(ArgumentError, match="'profile' must be stored with the model"):
        model.out_of_distribution(labelled())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trunk": "gin", "trunk_layers": 10**6}, "a model of many more layers"),
        ({"num_capsules": [2] * 300_000}, "a model of many more layers"),
        ({"context": "gin", "context_layers": 10**6}, "a model of many more layers"),
        ({"routing_iterations": 10**6}, "'routing_iterations' must be at most 1000"),
    ],
)
def test_a_structure_that_the_tensors_do_not_have_is_refused_before_it_is_built(tmp_path, changes, expected):
    config = entry(tmp_path, "config")
    config["model"] |= changes
    start = time.process_time()
    message = error_of(rewritten(tmp_path, config=config))
    assert expected in message
    assert len(message) < 400
    assert time.process_time() - start < 30  # building took minutes


# ---------------------------------------------------------------------- committees
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("missing", "expected a committee of 3 members, found no tensors of member 2."),
        ("incomplete", "of member 3, found no such tensor."),
        ("shape", "of member 2, found [3]."),
        (
            "additional",
            "expected the tensors of 3 members, found an additional tensor 'members.4.layers.0.weight'.",
        ),
        ("bare", "expected the tensors of 3 members, found an additional tensor 'layers.0.weight'."),
        ("type", "'others' must have weights of the type of 'model', got float32, float64"),
        ("count", "expected 2 to 1,000 members of the committee in the header, found 1."),
        (
            "entry",
            "expected 'members' and 'disagreement' under 'committee' in the header, found ['members'].",
        ),
    ],
)
def test_committees_with_members_that_do_not_match_are_rejected(tmp_path, change, expected):
    path = tmp_path / "c.safetensors"
    small_committee().save(path)
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    tensors, skipped = dict(read.tensors), ("format", "version", "sha256")
    header = {name: value for name, value in read.content.items() if name not in skipped}
    second, third = ([name for name in tensors if name.startswith(f"members.{k}.")] for k in (2, 3))
    weight = "members.2.layers.0.weight"
    assert weight in tensors
    if change == "missing":
        tensors = {name: value for name, value in tensors.items() if name not in second}
    elif change == "incomplete":
        del tensors[third[0]]
    elif change == "shape":
        tensors[weight] = torch.zeros(3)
    elif change == "additional":
        tensors["members.4.layers.0.weight"] = tensors[weight].clone()
    elif change == "bare":
        tensors["layers.0.weight"] = tensors[weight].clone()
    elif change == "type":
        tensors |= {name: tensors[name].double() for name in third if tensors[name].is_floating_point()}
    elif change == "count":
        header["committee"] = {"members": 1, "disagreement": None}
    else:
        header["committee"] = {"members": 3}
    path.write_bytes(encode_checked(FORMAT, FORMAT_VERSION, header, tensors))
    assert expected in error_of(path)


@pytest.mark.parametrize("change", ["shape", "incomplete"])
def test_a_damaged_forest_of_a_committee_is_named(tmp_path, change):
    path = tmp_path / "f.safetensors"
    config = RunConfig(model="wl-forest", model_arguments={"trees": 2})
    train_final(planted(), config, members=2).model.save(path)
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    tensors, skipped = dict(read.tensors), ("format", "version", "sha256")
    header = {name: value for name, value in read.content.items() if name not in skipped}
    feature = tensors.pop("members.2.feature")
    if change == "shape":
        tensors["members.2.feature"] = feature[:-1].clone()
    path.write_bytes(encode_checked(FORMAT, FORMAT_VERSION, header, tensors))
    assert "expected the arrays of member 2, found others (WLForest: '" in error_of(path)


def test_a_single_model_has_no_entry_of_a_committee(tmp_path):
    path = tmp_path / "m.safetensors"
    small_model().save(path)
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    assert "committee" not in read.content
    assert not [name for name in read.tensors if name.startswith("members.")]


# ---------------------------------------------------------------------- companions
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("missing", "expected the arrays of companion 2, 'features-trees', found none."),
        ("incomplete", "expected the arrays of companion 1, 'wl-forest', found others (WLForest: '"),
        ("shape", "expected the arrays of companion 1, 'wl-forest', found others (WLForest: 'value' must be"),
        ("additional", "expected the tensors of 2 companions, found an additional tensor 'companions.3.x'."),
        ("stray", "an additional tensor 'companions.1."),
        ("weights", "'weights' must be at least two numbers from 0 to 1 that add up to 1"),
        ("fewer weights", "have a weight for the network and each of 2 companions"),
        ("network", "expected a classical model as companion 1, found 'gin'."),
        ("unknown", "expected a classical model as companion 1, found 'wl-forrest'."),
        ("entry", "expected 'models' and 'mixture' under 'companion' in the header, found ['models']."),
        ("none", "expected 1 to 100 companions in the header, found 0."),
        ("fields", "expected config, recipe, calibration of companion 2 in the header, found {'config'"),
        ("calibration", "expected an object or null as the calibration of companion 1, found 3."),
    ],
)
def test_companions_that_do_not_match_are_rejected(tmp_path, change, expected):
    path = tmp_path / "c.safetensors"
    companion_model().save(path)
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    tensors, skipped = dict(read.tensors), ("format", "version", "sha256")
    header = {name: value for name, value in read.content.items() if name not in skipped}
    first, second = ([name for name in tensors if name.startswith(f"companions.{k}.")] for k in (1, 2))
    entry = header["companion"]
    if change == "missing":
        tensors = {name: value for name, value in tensors.items() if name not in second}
    elif change == "incomplete":
        del tensors[first[0]]
    elif change == "shape":
        name = next(name for name in first if name.endswith("value"))
        tensors[name] = tensors[name][:3].clone()
    elif change == "additional":
        tensors["companions.3.x"] = torch.zeros(1)
    elif change == "stray":
        del header["companion"]
    elif change == "weights":
        entry["mixture"]["weights"] = [0.5, 0.5, 0.5]
    elif change == "fewer weights":
        entry["mixture"]["weights"] = [0.5, 0.5]
    elif change in ("network", "unknown"):
        entry["models"][0]["config"]["model"] = {"name": "gin" if change == "network" else "wl-forrest"}
    elif change == "entry":
        del entry["mixture"]
    elif change == "none":
        entry["models"] = []
    elif change == "fields":
        del entry["models"][1]["recipe"]
    else:
        entry["models"][0]["calibration"] = 3
    path.write_bytes(encode_checked(FORMAT, FORMAT_VERSION, header, tensors))
    assert expected in error_of(path)


def test_a_model_alone_has_no_entry_of_companions(tmp_path):
    path = tmp_path / "m.safetensors"
    small_model().save(path)
    read = read_checked(path, FORMAT, FORMAT_VERSION)
    assert "companion" not in read.content
    assert not [name for name in read.tensors if name.startswith("companions.")]
