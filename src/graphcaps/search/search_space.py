"""The search space: which options a search varies, and the values of each."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from graphcaps._io.close_names import close_names
from graphcaps._io.read_limit import read_toml
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.errors import ArgumentError, DataError, GraphcapsError
from graphcaps.models.builder import complete_tuples, model_factory
from graphcaps.models.lookup import find_graph_model
from graphcaps.registry import Choices, Interval
from graphcaps.training.replica_settings import REPLICA_SETTINGS

__all__ = [
    "Domain",
    "SearchSpace",
    "Value",
    "check_space",
    "contains",
    "default_space",
    "is_whole",
    "read_space",
    "rounded",
    "space_from_dict",
]

Value = bool | int | float | str | tuple[int, ...]
"""A value of an option."""
Domain = Choices | Interval
"""The values of an option."""

_SECTIONS = {"training": TrainConfig, "features": FeatureConfig}
_FIXED = {
    "training.epochs": "set it with --epochs, since trials are compared after equal numbers of epochs",
    "training.precision": "set it in the preset, since it changes no result that a validation loss could rank",
}
_INTERVAL_KEYS = ("low", "high", "log")
_MAX_BYTES = 1 << 20
_DIGITS = 4
"""Significant digits of numbers that are drawn from an interval."""

_TRAINING: dict[str, Domain] = {
    "training.learning_rate": Interval(3e-4, 1e-2, log=True),
    "training.halve_every": Interval(20, 200, log=True),
    "training.weight_decay": Interval(1e-5, 1e-2, log=True),
}
_RECONSTRUCTION: dict[str, Domain] = {"training.reconstruction_weight": Interval(0.01, 1.0, log=True)}


@dataclass(frozen=True)
class SearchSpace:
    """Options and their values.

    Args:
        options (dict): :class:`~graphcaps.registry.Choices` or :class:`~graphcaps.registry.Interval` of each option, by
            names such as ``"training.learning_rate"`` and ``"model.dropout"``.
        source (str): Where the space comes from, for messages. (default: "default")
    """

    options: Mapping[str, Domain]
    source: str = "default"

    def numbers(self, model: str) -> tuple[str, ...]:
        """Options that are one number per replica: trials that differ only in them are trained together."""
        per_replica = {f"training.{name}" for name in REPLICA_SETTINGS}
        per_replica |= {f"model.{name}" for name in find_graph_model(model).replica_options}
        return tuple(name for name in self.options if name in per_replica)

    def shapes(self, model: str) -> tuple[str, ...]:
        """The other options. They change the shapes of tensors, the batches or the features."""
        numbers = self.numbers(model)
        return tuple(name for name in self.options if name not in numbers)

    def configure(self, config: RunConfig, values: Mapping[str, Value]) -> RunConfig:
        """The configuration with the values of a trial.

        Raises:
            GraphcapsError: If a value has another type than the option, or is out of its range.
        """
        changed = config.as_dict()
        names = set()
        for name, value in values.items():
            section, _, key = name.partition(".")
            changed[section][key] = list(value) if isinstance(value, tuple) else value
            names.add(key)
        changed["by_data"] = [name for name in config.by_data if name not in names]
        return RunConfig.from_dict(changed)

    def values_of(self, config: RunConfig) -> dict[str, Value] | None:
        """The values that a resolved configuration has for all options; ``None`` if one is not in the space."""
        if self.outside(config):
            return None
        return {name: _value_of(config, name) for name in self.options}

    def outside(self, config: RunConfig) -> dict[str, Any]:
        """The values of a resolved configuration that are not in the space, by option."""
        values = {name: _value_of(config, name) for name in self.options}
        return {name: value for name, value in values.items() if not contains(self.options[name], value)}

    def as_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary that :func:`space_from_dict` reads, by sections."""
        sections: dict[str, Any] = {}
        for name, domain in self.options.items():
            section, _, key = name.partition(".")
            if isinstance(domain, Choices):
                written: Any = [list(value) if isinstance(value, tuple) else value for value in domain.values]
            else:
                written = {"low": domain.low, "high": domain.high} | ({"log": True} if domain.log else {})
            sections.setdefault(section, {})[key] = written
        return sections

    def check(self, config: RunConfig, num_classes: int) -> None:
        """Rejects values that the configuration or the model refuses, alone or in pairs.

        Args:
            config (RunConfig): The resolved configuration that trials change.
            num_classes (int): Number of classes.

        Raises:
            DataError: If the space is empty, or a value or a combination of values is refused; with the reason.
        """
        if not self.options:
            raise DataError(self.source, "the search space has no options")
        ends = {name: _ends(domain) for name, domain in self.options.items()}
        for name, values in ends.items():
            for value in values:
                self._try(config, {name: value}, num_classes)
        for one, other in itertools.combinations(ends, 2):
            if not one.startswith("training.") and not other.startswith("training."):
                for pair in itertools.product(ends[one], ends[other]):
                    self._try(config, dict(zip((one, other), pair, strict=True)), num_classes)

    def refusal(self, config: RunConfig, values: Mapping[str, Value], num_classes: int) -> str | None:
        """Why the configuration or the model refuses the values; ``None`` if they do not.

        Args:
            config (RunConfig): The resolved configuration that the values change.
            values (mapping): Values of some options.
            num_classes (int): Number of classes.
        """
        try:
            model_factory(self.configure(config, values), 8, num_classes)(())
        except GraphcapsError as error:
            shown = ", ".join(f"{name} = {_shown(value)}" for name, value in values.items())
            word = "is" if len(values) == 1 else "are"
            return f"{shown} {word} refused: {error}".removesuffix(".")
        return None

    def _try(self, config: RunConfig, values: Mapping[str, Value], num_classes: int) -> None:
        refusal = self.refusal(config, values, num_classes)
        if refusal is not None:
            raise DataError(self.source, refusal)


def default_space(config: RunConfig) -> SearchSpace:
    """Numbers of the training, and the options that the model declares as searched.

    An option whose values the model refuses beside the other values of ``config`` is left out, such as a context beside
    a trunk. The values of ``config`` are in the space: bounds are widened and choices extended where necessary.

    Args:
        config (RunConfig): Resolved configuration of a network.
    """
    kind = find_graph_model(config.model)
    options = dict(_TRAINING)
    if "reconstruction" in kind.options() and config.model_arguments.get("reconstruction", True):
        options |= _RECONSTRUCTION
    for name, domain in kind.searched.items():
        space = SearchSpace({f"model.{name}": domain})
        try:
            for value in _ends(domain):
                model_factory(space.configure(config, {f"model.{name}": value}), 8, 2)(())
        except GraphcapsError:
            continue
        options[f"model.{name}"] = domain
    widened = {name: _widened(domain, _value_of(config, name)) for name, domain in options.items()}
    return SearchSpace({name: domain for name, domain in widened.items() if domain is not None})


def read_space(path: str | Path, model: str) -> SearchSpace:
    """Reads a TOML file with a table per section; docs/tune.md describes it.

    Args:
        path (str or Path): The file.
        model (str): Name of the model, whose options ``[model]`` may name.

    Raises:
        DataError: If the file cannot be read, an option is unknown, or its values are none, reversed or of the wrong
            type.
    """
    path = Path(path)
    text = read_toml(path, _MAX_BYTES)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"invalid TOML: {error}") from error
    return space_from_dict(values, model, str(path))


def space_from_dict(values: Mapping[str, Any], model: str, source: str = "space") -> SearchSpace:
    """A search space from a dictionary by sections, as a TOML file gives it.

    Args:
        values (mapping): ``{"training": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}, "model": …}``.
        model (str): Name of the model.
        source (str): Name of the space in messages. (default: "space")

    Raises:
        DataError: As in :func:`read_space`.
    """
    kind = find_graph_model(model)
    names = {section: [entry.name for entry in fields(cls)] for section, cls in _SECTIONS.items()}
    names["model"] = list(kind.options())
    options: dict[str, Domain] = {}
    for section, table in values.items():
        if section not in names:
            hint = _near(section, names)
            raise DataError(source, f"unknown table [{section}]", fix=hint or f"Known: {', '.join(names)}.")
        if not isinstance(table, Mapping):
            raise DataError(source, f"a table [{section}]", repr(table)[:60])
        for key, written in table.items():
            name = f"{section}.{key}"
            if key not in names[section]:
                hint = _near(key, names[section]) or _near_elsewhere(key, names)
                raise DataError(
                    source, f"unknown option '{key}' in [{section}]", fix=hint or "See docs/presets.md."
                )
            if name in _FIXED:
                raise DataError(source, f"{name} cannot be searched: {_FIXED[name]}")
            if section == "model" and key in kind.loss_weights:
                reason = "trials are compared by validation losses that contain the term it weighs"
                raise DataError(source, f"{name} cannot be searched: {reason}", fix="Set it with --set.")
            options[name] = _domain(f"{source}, [{section}] {key}", written)
    if not options:
        raise DataError(source, "the search space has no options", fix="docs/tune.md has an example.")
    return SearchSpace(options, source)


def contains(domain: Domain, value: object) -> bool:
    """Whether a value is in a domain."""
    if isinstance(domain, Choices):
        return any(value == choice and type(value) is type(choice) for choice in domain.values)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and domain.low <= value <= domain.high  # type: ignore[operator]


def is_whole(domain: Interval) -> bool:
    """Whether an interval holds whole numbers."""
    return isinstance(domain.low, int) and isinstance(domain.high, int)


def rounded(domain: Interval, value: float) -> int | float:
    """A drawn number with four significant digits, inside the interval."""
    if is_whole(domain):
        return min(max(round(value), int(domain.low)), int(domain.high))
    return min(max(float(f"{value:.{_DIGITS}g}"), float(domain.low)), float(domain.high))


def _domain(where: str, written: object) -> Domain:
    """The values of an option, from a list or a table."""
    if isinstance(written, list):
        values = [tuple(value) if isinstance(value, list) else value for value in written]
        if not values:
            raise DataError(where, "at least one value", "an empty list")
        if len({repr(value) for value in values}) < len(values):
            raise DataError(where, "different values", "one of them twice")
        if not all(isinstance(value, bool | int | float | str | tuple) for value in values):
            raise DataError(where, "numbers, texts, true or false, or lists of numbers", "something else")
        return Choices(tuple(values))
    if not isinstance(written, Mapping):
        raise DataError(where, "a list of values, or { low = …, high = … }", repr(written)[:60])
    for key in written:
        if key not in _INTERVAL_KEYS:
            hint = _near(key, _INTERVAL_KEYS) or f"Known: {', '.join(_INTERVAL_KEYS)}."
            raise DataError(where, f"unknown key '{key}'", fix=hint)
    low, high, log = written.get("low"), written.get("high"), written.get("log", False)
    for key, bound in (("low", low), ("high", high)):
        is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
        if not is_number or not math.isfinite(bound):  # type: ignore[arg-type]
            raise DataError(where, f"a finite number under '{key}'", "none" if bound is None else repr(bound))
    assert isinstance(low, int | float)
    assert isinstance(high, int | float)
    if not isinstance(log, bool):
        raise DataError(where, "true or false under 'log'", repr(log)[:60])
    if low >= high:
        raise DataError(where, f"'low' below 'high', {high}", f"{low}")
    if log and low <= 0:
        raise DataError(where, "'low' above 0 on a logarithmic scale", f"{low}")
    if isinstance(low, float) or isinstance(high, float):
        low, high = float(low), float(high)
    return Interval(low, high, log)


def _value_of(config: RunConfig, name: str) -> Any:
    """The value of an option in a resolved configuration; ``False`` for a setting that is off, as in TOML."""
    section, _, key = name.partition(".")
    if section == "model":
        kind = find_graph_model(config.model)
        return complete_tuples(kind, config.model_arguments).get(key, kind.options()[key].default)
    value = getattr(config.training if section == "training" else config.features, key)
    return False if value is None else value


def _widened(domain: Domain, value: Any) -> Domain | None:
    """The domain with a value; ``None`` if the value is of another kind than those of the domain."""
    if contains(domain, value):
        return domain
    if isinstance(domain, Choices):
        alike = any(type(value) is type(choice) for choice in domain.values)
        return Choices((value, *domain.values)) if alike else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if domain.log and value <= 0:  # has no place on a logarithmic scale
        middle = rounded(domain, math.sqrt(domain.low * domain.high))
        return Choices((value, domain.low, middle, domain.high))
    return Interval(min(domain.low, value), max(domain.high, value), domain.log)


def _ends(domain: Domain) -> tuple[Any, ...]:
    return domain.values if isinstance(domain, Choices) else (domain.low, domain.high)


def _near(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = close_names(name, known, 1)
    return f"Did you mean '{near[0]}'?" if near else ""


def _near_elsewhere(key: str, known: Mapping[str, Sequence[str]]) -> str:
    """A hint if the option, or a similar one, is in another section."""
    for section, names in known.items():
        near = close_names(key, names, 1)
        if near:
            return f"Did you mean '{near[0]}' in [{section}]?"
    return ""


def _shown(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value)


def check_space(space: object) -> None:
    """Rejects what is not a :class:`SearchSpace`, a dictionary or a path.

    Raises:
        ArgumentError: With what was passed.
    """
    if space is not None and not isinstance(space, SearchSpace | Mapping | str | Path):
        expected = "be a SearchSpace, a dictionary of sections, or the path of a TOML file"
        raise ArgumentError("tune", "space", expected, type(space).__name__)
