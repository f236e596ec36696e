"""The model file: one ``.safetensors`` file with the weights and a JSON header.

This module reads, writes and checks the file of a :class:`graphcaps.inference.fitted_model.FittedModel`. Loading runs
no code from the file: the model class is looked up in the registry, its arguments are plain values, and the tensors
must have the names, types and shapes of that model. The tensors of a classical model are its fitted arrays, which the
model checks itself. The names of a committee's tensors begin with ``members.1.``, ``members.2.`` and so on, and the
header says how many members there are. The names of the arrays of companions begin with ``companions.1.`` and so on;
the header has their configurations and the weights. Three further tensors hold hashes of the training, validation and
test graphs (:class:`graphcaps.inference.split_hashes.SplitHashes`). The header of a model with capsules has the mean
routing coefficients of each member; files of earlier versions have none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.config import MAX_MEMBERS, RunConfig
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.errors import ArgumentError, DataError, GraphcapsError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.disagreement import DisagreementProfile
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.mixture import Mixture
from graphcaps.inference.probabilities import Calibration
from graphcaps.inference.split_hashes import SplitHashes
from graphcaps.models.builder import build_classical, model_factory
from graphcaps.models.classical import ClassicalModel
from graphcaps.models.lookup import find_model, is_classical, is_model
from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.graph_model import GraphModel, ModelFactory
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.initialise import forked_generator

__all__ = ["FORMAT", "FORMAT_VERSION", "load", "write_model_file"]

FORMAT = "graphcaps model"
"""Format tag in the header."""
FORMAT_VERSION = 1
"""Version of the format."""

_REQUIRED = {
    "in_channels": int,
    "num_classes": int,
    "class_names": list,
    "config": dict,
    "recipe": dict,
    "training": dict,
    "versions": dict,
}
_OPTIONAL = ("calibration", "profile", "committee", "companion", "mean_coefficients")  # an object or null
_SPLIT_PREFIX = "split_hashes."  # of the tensors that are not the model's
_MEMBER_PREFIX = "members."  # of the tensors of a committee, and the number of the member, from 1 on
_COMPANION_PREFIX = "companions."  # of the arrays of companions, and the number of the companion, from 1 on
_MAX_COMPANIONS = 100
_COMPANION_ENTRIES = ("config", "recipe", "calibration")
_SLACK = 64  # parameters that a model may register beyond four per tensor, such as ones that it replaces
_TYPE_NAMES = {int: "an integer", list: "a list", dict: "an object"}


def write_model_file(path: str | Path, fitted: FittedModel) -> None:
    """Writes a model file atomically; reading it gives the same weights bit for bit.

    Every argument of the model is written with its value, so that later changes of a default do not affect the file.

    Raises:
        ArgumentError: If the configuration does not match the model, or a value cannot be written as JSON.
        DataError: If the file cannot be written.
    """
    config = _with_defaults(fitted.config)
    states = [_checked_tensors(member, config) for member in fitted.members]
    tensors = _join_numbered(_MEMBER_PREFIX, states) if fitted.is_committee else states[0]
    companions = [(each, _with_defaults(each.config)) for each in fitted.companions]
    arrays = [_checked_tensors(each.model, complete) for each, complete in companions]
    tensors = tensors | _join_numbered(_COMPANION_PREFIX, arrays)
    if fitted.split_hashes is not None:
        hashes = fitted.split_hashes.to_tensors()
        tensors = tensors | {f"{_SPLIT_PREFIX}{name}": value for name, value in hashes.items()}
    header = {
        "in_channels": fitted.recipe.num_columns,
        "num_classes": fitted.model.num_classes,
        "class_names": list(fitted.class_names),
        "config": config.as_dict(),
        "recipe": fitted.recipe.to_dict(),
        "calibration": None if fitted.calibration is None else fitted.calibration.to_dict(),
        "profile": None if fitted.profile is None else fitted.profile.to_dict(),
        "training": fitted.training,
        "versions": fitted.versions,
    }
    if fitted.is_committee:
        profile = fitted.disagreement_profile
        header["committee"] = {
            "members": len(fitted.members),
            "disagreement": None if profile is None else profile.to_dict(),
        }
    means = [member.mean_coefficients for member in _with_capsules(*fitted.members)]
    if means and None not in means:
        header["mean_coefficients"] = {
            "members": [[level.tolist() for level in levels or ()] for levels in means]
        }
    if fitted.mixture is not None:
        header["companion"] = {
            "models": [
                {
                    "config": complete.as_dict(),
                    "recipe": each.recipe.to_dict(),
                    "calibration": None if each.calibration is None else each.calibration.to_dict(),
                }
                for each, complete in companions
            ],
            "mixture": fitted.mixture.to_dict(),
        }
    try:
        data = encode_checked(FORMAT, FORMAT_VERSION, header, tensors)
    except (TypeError, ValueError, UnicodeError) as error:
        raise ArgumentError("FittedModel.save", "training", "hold JSON values", str(error)) from error
    write_atomically(path, data)


def load(path: str | Path) -> FittedModel:
    """Reads a model file; the model predicts on new graphs without further input.

    Args:
        path (str or Path): A file written by ``FittedModel.save`` or ``graphcaps train``.

    Raises:
        ArgumentError: If the path is of another type.
        DataError: If the file is missing, of another kind, truncated, modified, of a newer version, or not valid.

    Example:
        >>> model = graphcaps.load("mutag.safetensors")                  # doctest: +SKIP
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError("load", "path", "be text or a path", repr(path)[:60])
    path = Path(path)
    file = read_checked(path, FORMAT, FORMAT_VERSION)
    # The checksum is valid: errors below were in the file when it was written.
    _check_header(path, file.content)
    try:
        return _fitted_model(path, file.content, file.tensors)
    except DataError:
        raise
    except (GraphcapsError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise DataError(path, "a valid model", f"'{' '.join(str(error).split())}'") from error


def _fitted_model(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> FittedModel:
    config = RunConfig.from_dict(header["config"], str(path))
    if not is_model(config.model):
        fix = "Update graphcaps, or install the package of this model, to read it."
        raise DataError(path, "a model of 'graphcaps info --models'", f"'{config.model}'", fix=fix)
    _check_plain(config)
    hashes = {name: value for name, value in tensors.items() if name.startswith(_SPLIT_PREFIX)}
    tensors = {name: value for name, value in tensors.items() if name not in hashes}
    if problem := _non_finite(tensors):
        raise DataError(path, *problem)
    recipe = FeatureRecipe.from_dict(header["recipe"])
    calibration, profile = header.get("calibration"), header.get("profile")
    companions, tensors = _companions(path, header, tensors)
    committee = header.get("committee")
    count = 1 if committee is None else _num_members(path, committee)
    members = [
        _member(path, header, config, recipe, own, number if count > 1 else None)
        for number, own in enumerate(_split_members(path, tensors, count), 1)
    ]
    _set_means(path, header.get("mean_coefficients"), members)
    companion = header.get("companion")
    disagreement = None if committee is None else committee["disagreement"]
    return FittedModel(
        model=members[0],
        config=config,
        recipe=recipe,
        class_names=tuple(header["class_names"]),
        training=header["training"],
        versions=header["versions"],
        calibration=None if calibration is None else Calibration.from_dict(calibration),
        profile=None if profile is None else TrainingProfile.from_dict(profile),
        split_hashes=SplitHashes.from_tensors(
            {name.removeprefix(_SPLIT_PREFIX): value for name, value in hashes.items()}
        )
        if hashes
        else None,
        others=tuple(members[1:]),
        disagreement_profile=None if disagreement is None else DisagreementProfile.from_dict(disagreement),
        companions=companions,
        mixture=None if companion is None else Mixture.from_dict(companion["mixture"]),
    )


def _companions(
    path: Path, header: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[tuple[FittedModel, ...], dict[str, Tensor]]:
    """The companions that the header describes, and the tensors that are not theirs."""
    entry = header.get("companion")
    if entry is None:
        return (), tensors
    listed = entry.get("models")
    if set(entry) != {"models", "mixture"} or not isinstance(listed, list):
        raise DataError(path, "'models' and 'mixture' under 'companion' in the header", [*entry])
    if not 1 <= len(listed) <= _MAX_COMPANIONS:
        raise DataError(path, f"1 to {_MAX_COMPANIONS} companions in the header", len(listed))
    own = {name: value for name, value in tensors.items() if name.startswith(_COMPANION_PREFIX)}
    rest = {name: value for name, value in tensors.items() if name not in own}
    found = []
    for number, values in enumerate(listed, 1):
        prefix = f"{_COMPANION_PREFIX}{number}."
        state = {name.removeprefix(prefix): own.pop(name) for name in [*own] if name.startswith(prefix)}
        found.append(_companion(path, header, values, state, number))
    if own:
        expected = f"the tensors of {len(listed)} companions"
        raise DataError(path, expected, f"an additional tensor '{next(iter(own))}'")
    return tuple(found), rest


def _companion(
    path: Path, header: dict[str, Any], values: Any, state: dict[str, Tensor], number: int
) -> FittedModel:
    """One companion with its fitted values; ``number`` is named in messages."""
    where = f"companion {number}"
    if not isinstance(values, dict) or set(values) != set(_COMPANION_ENTRIES):
        raise DataError(path, f"{', '.join(_COMPANION_ENTRIES)} of {where} in the header", repr(values)[:60])
    if not isinstance(values["calibration"], dict | None):
        expected = f"an object or null as the calibration of {where}"
        raise DataError(path, expected, repr(values["calibration"])[:60])
    config = RunConfig.from_dict(values["config"], f"{path}, {where}")
    if not is_model(config.model) or not is_classical(config.model):
        fix = "Update graphcaps, or install the package of this model, to read it."
        raise DataError(path, f"a classical model as {where}", f"'{config.model}'", fix=fix)
    if not state:
        raise DataError(path, f"the arrays of {where}, '{config.model}'", "none")
    _check_plain(config)
    model = build_classical(config, header["num_classes"])
    try:
        model.load_state(state)
    except GraphcapsError as error:
        reason = str(error).rstrip(".")
        raise DataError(path, f"the arrays of {where}, '{config.model}'", f"others ({reason})") from error
    calibration = values["calibration"]
    return FittedModel(
        model=model,
        config=config,
        recipe=FeatureRecipe.from_dict(values["recipe"]),
        class_names=tuple(header["class_names"]),
        training={"class_counts": header["training"].get("class_counts")},
        versions=header["versions"],
        calibration=None if calibration is None else Calibration.from_dict(calibration),
    )


def _with_capsules(*members: GraphModel | ClassicalModel) -> list[HGCN]:
    return [member for member in members if isinstance(member, HGCN)]


def _set_means(
    path: Path, entry: dict[str, Any] | None, members: Sequence[GraphModel | ClassicalModel]
) -> None:
    """Sets the mean routing coefficients of each member, if the header has them."""
    if entry is None:
        return
    networks, listed = _with_capsules(*members), entry.get("members")
    if set(entry) != {"members"} or not isinstance(listed, list) or len(listed) != len(networks):
        expected = (
            f"'members' of {len(networks)} models with capsules under 'mean_coefficients' in the header"
        )
        raise DataError(path, expected, repr(entry)[:60])
    for number, (network, levels) in enumerate(zip(networks, listed, strict=True), 1):
        layers = [cast(CapsuleLayer, layer) for layer in network.layers]
        shapes = [(layer.routing_iterations, layer.num_capsules) for layer in layers]
        expected = f"mean coefficients of the shapes {shapes} for member {number}"
        if not isinstance(levels, list) or len(levels) != len(shapes):
            raise DataError(path, expected, repr(levels)[:60])
        means = tuple(torch.as_tensor(level, dtype=torch.float64) for level in levels)
        found = [tuple(mean.shape) for mean in means]
        if found != shapes:
            raise DataError(path, expected, found)
        if not all(bool(((mean >= 0) & (mean <= 1)).all()) for mean in means):
            raise DataError(path, f"mean coefficients from 0 to 1 for member {number}", "other numbers")
        network.mean_coefficients = means


def _num_members(path: Path, committee: dict[str, Any]) -> int:
    """The number of members that the header of a committee states."""
    if set(committee) != {"members", "disagreement"}:
        raise DataError(path, "'members' and 'disagreement' under 'committee' in the header", [*committee])
    count = committee["members"]
    if type(count) is not int or not 2 <= count <= MAX_MEMBERS:
        raise DataError(
            path, f"2 to {MAX_MEMBERS:,} members of the committee in the header", repr(count)[:60]
        )
    return count


def _split_members(path: Path, tensors: dict[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    """The tensors of each of ``count`` members, by their names in a single model."""
    if count == 1:
        return [tensors]
    members: list[dict[str, Tensor]] = [{} for _ in range(count)]
    for name, value in tensors.items():
        number, _, own = name.removeprefix(_MEMBER_PREFIX).partition(".")
        is_member = (
            name.startswith(_MEMBER_PREFIX) and number.isascii() and number.isdigit() and len(number) < 5
        )
        if not (is_member and 1 <= int(number) <= count):
            raise DataError(path, f"the tensors of {count} members", f"an additional tensor '{name}'")
        members[int(number) - 1][own] = value
    for index, state in enumerate(members, 1):
        if not state:
            raise DataError(path, f"a committee of {count} members", f"no tensors of member {index}")
    return members


def _join_numbered(prefix: str, states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of several members or companions, with prefix and number before their names."""
    return {
        f"{prefix}{number}.{name}": value
        for number, state in enumerate(states, 1)
        for name, value in state.items()
    }


def _member(
    path: Path,
    header: dict[str, Any],
    config: RunConfig,
    recipe: FeatureRecipe,
    tensors: dict[str, Tensor],
    number: int | None,
) -> GraphModel | ClassicalModel:
    """One member with its fitted values; ``number`` is named in messages, unless it is the only one."""
    if is_classical(config.model):
        model = build_classical(config, header["num_classes"])
        try:
            model.load_state(tensors)
        except GraphcapsError as error:
            if number is None:
                raise
            raise DataError(path, f"the arrays of member {number}", f"others ({error})") from error
        return model
    sizes = header["in_channels"], header["num_classes"], recipe.edge_kinds
    return _network(path, model_factory(config, *sizes), tensors, number)


def _check_header(path: Path, header: dict[str, Any]) -> None:
    for name, kind in _REQUIRED.items():
        if name not in header or type(header[name]) is not kind:
            value = repr(header[name])[:60] if name in header else "no such entry"
            raise DataError(path, f"{_TYPE_NAMES[kind]} under '{name}' in the header", value)
    for name in header:
        if name not in _REQUIRED and name not in ("format", "version", "sha256", *_OPTIONAL):
            raise DataError(path, f"the header entries {', '.join((*_REQUIRED, *_OPTIONAL))}", f"'{name}'")
    for name in _OPTIONAL:
        if not isinstance(header.get(name), dict | None):
            raise DataError(path, f"an object or null under '{name}' in the header", repr(header[name])[:60])
    if not all(isinstance(name, str) for name in header["class_names"]):
        raise DataError(path, "strings as class names", header["class_names"])
    for name in ("in_channels", "num_classes"):
        if header[name] < 1:
            raise DataError(path, f"at least 1 under '{name}' in the header", header[name])


def _checked_tensors(model: GraphModel | ClassicalModel, config: RunConfig) -> dict[str, Tensor]:
    """The tensors of a model, after the checks that reading them with ``config`` makes.

    Raises:
        ArgumentError: If the configuration does not match the model.
    """
    _check_plain(config)
    if isinstance(model, ClassicalModel):
        tensors = model.state()
        build_classical(config, model.num_classes).load_state(tensors)
        return tensors
    tensors = model.state_dict()
    sizes = model.in_channels, model.num_classes, model.edge_kinds
    mismatch = _state_mismatch(model_factory(config, *sizes), tensors)
    if mismatch is not None:
        raise ArgumentError("FittedModel.save", "config", f"match the model, with {mismatch[0]}", mismatch[1])
    return tensors


def _network(path: Path, factory: ModelFactory, tensors: dict[str, Tensor], number: int | None) -> GraphModel:
    """The network with the weights of a file; ``number`` is that of a member."""
    if problem := _state_mismatch(factory, tensors):
        expected, found = problem
        raise DataError(path, expected if number is None else f"{expected} of member {number}", found)
    with forked_generator():  # initial weights are random and replaced below
        model = factory(())
    model.to(_float_type(tensors))
    model.load_state_dict(tensors)
    return model


def _check_plain(config: RunConfig) -> None:
    """Rejects arguments of the model that a file cannot hold."""
    for name, value in config.model_arguments.items():
        if not _is_plain(value):
            fix = "A model file cannot hold custom modules, because loading runs no code."
            expected = "be a number, a string, a boolean, None or a list of these to be saved"
            raise ArgumentError(f"model '{config.model}'", name, expected, type(value).__name__, fix)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def _with_defaults(config: RunConfig) -> RunConfig:
    """The configuration with every argument of the model written out, except what follows from the recipe."""
    options = find_model(config.model).options().items()
    defaults = {name: option.default for name, option in options if name != "edge_kinds"}
    return replace(config, model_arguments=defaults | config.model_arguments)


def _state_mismatch(factory: ModelFactory, tensors: dict[str, Tensor]) -> tuple[str, str] | None:
    """The first difference between the tensors and the model's, as (expected, found); ``None`` if there is none.

    The model is built on the meta device, so that very large sizes in a file allocate no memory.
    """
    try:
        with torch.device("meta"), _at_most_parameters(_SLACK + 4 * len(tensors)):
            expected = factory(()).state_dict()
    except _TooManyParameters:
        return f"the {len(tensors)} tensors of the file in its model", "a model of many more layers"
    for name in sorted(expected.keys() ^ tensors.keys()):
        if name in expected:
            return f"a tensor '{name}'", "no such tensor"
        return f"the {len(expected)} tensors of the model", f"an additional tensor '{name}'"
    float_type = _float_type(tensors)
    for name, value in expected.items():
        tensor = tensors[name]
        if tensor.shape != value.shape:
            return f"the shape {list(value.shape)} for '{name}'", str(list(tensor.shape))
        dtype = float_type if value.is_floating_point() else value.dtype
        if tensor.dtype != dtype:
            return f"the type {_type_name(dtype)} for '{name}'", _type_name(tensor.dtype)
    return None


class _TooManyParameters(Exception):
    """A model of more parameters than its file can have."""


@contextmanager
def _at_most_parameters(limit: int) -> Iterator[None]:
    """Ends the construction of a model at its first parameter above ``limit``, in this thread.

    A header of a few bytes can ask for a million layers, which take minutes to build and have no tensors.
    """
    count, thread = 0, threading.get_ident()

    def register(*_: object) -> None:
        nonlocal count
        count += threading.get_ident() == thread
        if count > limit:
            raise _TooManyParameters

    hook = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        hook.remove()


def _non_finite(tensors: dict[str, Tensor]) -> tuple[str, str] | None:
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            return f"finite numbers in '{name}'", "NaN or infinity"
    return None


def _float_type(tensors: dict[str, Tensor]) -> torch.dtype:
    """float64 if the first floating-point tensor has that type, else float32."""
    types = [value.dtype for value in tensors.values() if value.is_floating_point()]
    return torch.float64 if types[:1] == [torch.float64] else torch.float32


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
