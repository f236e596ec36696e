"""What a run is made of, as plain data: read from TOML, checked by name, written beside every result."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, get_args

from graphcaps.errors import ArgumentError, DataError
from graphcaps.types import Precision

__all__ = ["FeatureConfig", "RunConfig", "TrainConfig"]

_MOST = 10**9  # far above any sensible count, far below what overflows
_MOST_RATE = 10**6
_BY_DATA = {
    "batch_size": "training",
    "dropout": "model",
    "residual_nodes": "model",
    "degree_onehot": "features",
}  # and its section


@dataclass(frozen=True)
class FeatureConfig:
    """Input columns, as in :class:`graphcaps.data.FeatureRecipe`, and the cap on a graph's nodes."""

    attributes: bool = True
    labels: bool = True
    degree: bool = True
    degree_onehot: int | None = 100
    propagation: int = 3
    max_nodes: int | None = None
    edge_labels: bool = False

    def __post_init__(self) -> None:
        for name, least in (("degree_onehot", 0), ("propagation", 0), ("max_nodes", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ArgumentError("features", name, f"be at least {least}", value)
            _refuse_above("features", name, value or 0, _MOST)


@dataclass(frozen=True)
class TrainConfig:
    """How long and how fast: Adam with L2 inside the gradient, the rate halved at fixed intervals.

    Args:
        epochs (int): Passes over the training part. (default: 200)
        batch_size (int): Graphs a step; the last, smaller batch of an epoch is used. (default: 32)
        learning_rate (float): Rate at the start. (default: 0.001)
        weight_decay (float): Share of the weights added to their gradient. (default: 0.0001)
        halve_every (int): Epochs after which the rate is halved, again and again. (default: 500)
        reconstruction_weight (float): β, weight of the reconstruction loss, where a model has one. (default: 0.1)
        average_epochs (int): Epochs whose weights are averaged for what is scored and kept, the newest counting
            most (:class:`graphcaps.training.weight_averaging.WeightAverage`); 1 keeps the last ones. (default: 1)
        precision (str): Of products on a GPU: ``"float32"``, ``"tf32"`` or ``"bf16"``; a CPU always takes
            float32. (default: "float32")
    """

    epochs: int = 200
    batch_size: int = 32
    learning_rate: float = 0.001
    weight_decay: float = 0.0001
    halve_every: int = 500
    reconstruction_weight: float = 0.1
    average_epochs: int = 1
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "halve_every", "average_epochs"):
            if getattr(self, name) < 1:
                raise ArgumentError("training", name, "be at least 1", getattr(self, name))
            _refuse_above("training", name, getattr(self, name), _MOST)
        if not 0 < self.learning_rate < math.inf:
            raise ArgumentError("training", "learning_rate", "be above 0 and finite", self.learning_rate)
        for name in ("weight_decay", "reconstruction_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ArgumentError("training", name, "be at least 0 and finite", getattr(self, name))
        for name in ("learning_rate", "weight_decay", "reconstruction_weight"):
            _refuse_above("training", name, getattr(self, name), _MOST_RATE)
            object.__setattr__(self, name, float(getattr(self, name)))

        if self.precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise ArgumentError("training", "precision", f"be one of {known}", repr(self.precision))

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        return float(self.learning_rate * 0.5 ** (epoch // self.halve_every))


@dataclass(frozen=True)
class RunConfig:
    """A model, its input and its training.

    Args:
        dataset (str): What the preset was made for; a name for results.
        model (str): Name in the registry. (default: "hgcn")
        model_arguments (dict): Arguments of the model beside its sizes.
        features (FeatureConfig): Input columns.
        training (TrainConfig): How it is trained.
        source (str): Where the configuration comes from, for results.
        by_data (tuple): Values that the graphs decide, among ``"batch_size"``, ``"dropout"``,
            ``"residual_nodes"`` and ``"degree_onehot"``; :func:`graphcaps.training.auto_config.resolve_config` puts
            numbers in their place.
    """

    dataset: str = ""
    model: str = "hgcn"
    model_arguments: dict[str, Any] = field(default_factory=dict)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    source: str = "defaults"
    by_data: tuple[str, ...] = ()

    def with_training(self, **changes: Any) -> RunConfig:
        """The same run with other training values; ``None`` leaves a value as it is."""
        given, left = self._given(changes)
        return replace(self, training=replace(self.training, **given), by_data=left)

    def with_model(self, **changes: Any) -> RunConfig:
        """The same run with other arguments of the model; ``None`` leaves one as it is."""
        given, left = self._given(changes)
        return replace(self, model_arguments=self.model_arguments | given, by_data=left)

    def _given(self, changes: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Changes that are values, and what is then still left to the graphs."""
        given = {name: value for name, value in changes.items() if value is not None}
        return given, tuple(name for name in self.by_data if name not in given)

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe; :meth:`from_dict` reads it back."""
        plain = asdict(self)
        # As runs were written before there were these choices.
        if not self.features.edge_labels:
            del plain["features"]["edge_labels"]
        if self.training.average_epochs == 1:
            del plain["training"]["average_epochs"]
        del plain["by_data"]
        if self.by_data:
            plain["by_data"] = list(self.by_data)
        arguments = plain.pop("model_arguments")
        plain["model"] = {"name": self.model} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()
        }
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "configuration") -> RunConfig:
        """Reads what TOML or JSON gave; an unknown key is refused by name."""
        _refuse_unknown(source, values, ("dataset", "by_data", "model", "features", "training", "source"), "")
        by_data = values.get("by_data", [])
        if not isinstance(by_data, list) or not all(name in _BY_DATA for name in by_data):
            raise DataError(f"{source}, by_data", f"a list out of {', '.join(_BY_DATA)}", _shown(by_data))
        for name, section in _BY_DATA.items():
            # What as_dict wrote names its source, and holds a number that is not meant.
            if name in by_data and name in values.get(section, {}) and "source" not in values:
                raise DataError(f"{source}, [{section}] {name}", "no number where by_data names it", "one")
        for name in ("model", "features", "training"):
            if not isinstance(values.get(name, {}), Mapping):
                raise DataError(source, f"a table [{name}]", _shown(values[name]))
        arguments = dict(values.get("model", {}))
        name = arguments.pop("name", "hgcn")
        for key, text in (
            ("dataset", values.get("dataset", "")),
            ("[model] name", name),
            ("source", values.get("source", "")),
        ):
            if not isinstance(text, str):
                raise DataError(f"{source}, {key}", "a text", _shown(text))
        if type(arguments.get("num_capsules")) is int:
            arguments["num_capsules"] = (arguments["num_capsules"],)
        arguments = {
            key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()
        }
        return cls(
            dataset=values.get("dataset", ""),
            model=name,
            model_arguments=arguments,
            features=_section(FeatureConfig, values.get("features", {}), source, "features"),
            training=_section(TrainConfig, values.get("training", {}), source, "training"),
            source=values.get("source", source),
            by_data=tuple(by_data),
        )

    @classmethod
    def from_toml(cls, text: str, source: str = "configuration") -> RunConfig:
        """Reads a preset or a user's own file."""
        try:
            values = tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
            raise DataError(source, "a TOML file", str(error)) from error
        except RecursionError as error:
            raise DataError(source, "a TOML file", "brackets nested too deep") from error
        return cls.from_dict(values, source)


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _section(kind: Any, values: Mapping[str, Any], source: str, section: str) -> Any:
    known = {entry.name: entry for entry in fields(kind)}
    _refuse_unknown(source, values, tuple(known), f"[{section}] ")
    for name, value in values.items():
        default = known[name].default
        wanted: tuple[type, ...] = (float, int) if isinstance(default, float) else (type(default),)
        if name in ("degree_onehot", "max_nodes"):
            # TOML has no null: false says "none".
            if value is False or value is None:
                continue
            wanted = (int,)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise DataError(f"{source}, [{section}] {name}", _KINDS[wanted[0]], _shown(value))
    cleaned = {name: None if value is False and name in ("degree_onehot", "max_nodes") else value
               for name, value in values.items()}  # fmt: skip
    return kind(**cleaned)


def _shown(value: object) -> str:
    """As TOML writes it."""
    try:
        return str(value).lower() if isinstance(value, bool) else repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of very many digits"


def _refuse_above(owner: str, name: str, value: float, most: int) -> None:
    if value > most:
        got = value if value < 10**15 else "a number of very many digits"
        raise ArgumentError(owner, name, f"be at most {most:,}", got)


def _refuse_unknown(source: str, values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else ""
            raise DataError(source, f"{where}one of {', '.join(known)}", f"'{name}'", fix=hint)
