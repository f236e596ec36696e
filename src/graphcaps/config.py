"""The configuration of a run: features, model, training and committee, read from TOML and stored with every result."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from graphcaps._io.close_names import close_names
from graphcaps.errors import ArgumentError, DataError, shorten
from graphcaps.types import RECONSTRUCTION_WEIGHT, EdgeLabelUse, Precision

__all__ = ["DATA_SETTINGS", "MAX_MEMBERS", "CommitteeConfig", "FeatureConfig", "RunConfig", "TrainConfig"]

_MAX_COUNT = 10**9  # far above any sensible count, far below integer overflow
_MAX_RATE = 10**6

MAX_MEMBERS = 1_000
"""Largest number of members of a committee."""

DATA_SETTINGS = {"batch_size": "training", "degree_onehot": "features", "max_nodes": "features"}
"""Settings of every run that can be derived from the data, and their sections. Models declare further ones in
:attr:`graphcaps.registry.RegisteredModel.data_options`."""


@dataclass(frozen=True)
class FeatureConfig:
    """Node features, as in :class:`graphcaps.data.FeatureRecipe`, and the largest number of nodes of a graph.

    Args:
        attributes (bool): Use node attributes. (default: True)
        labels (bool): Use node labels, one-hot. (default: True)
        degree (bool): Use the node degree. (default: True)
        degree_onehot (int, optional): Use one-hot degrees up to this degree. (default: 100)
        propagation (int): Number of propagation steps whose results are appended. (default: 3)
        max_nodes (int, optional): Keep this many nodes of larger graphs, those of highest degree. (default: all)
        edge_labels (str, optional): How edge labels are used: ``"counts"`` adds the number of edges of each label at a
            node to its features, ``"messages"`` lets the message passing under the votes depend on them, ``"both"``
            does both. (default: not at all, as published)
        standardise (bool): Standardise node attributes. (default: False)
    """

    attributes: bool = True
    labels: bool = True
    degree: bool = True
    degree_onehot: int | None = 100
    propagation: int = 3
    max_nodes: int | None = None
    edge_labels: EdgeLabelUse | None = None
    standardise: bool = False

    def __post_init__(self) -> None:
        for name, minimum in (("degree_onehot", 0), ("propagation", 0), ("max_nodes", 1)):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ArgumentError("features", name, f"be at least {minimum}", value)
            _check_maximum("features", name, value or 0, _MAX_COUNT)
        if self.edge_labels is not None and self.edge_labels not in get_args(EdgeLabelUse):
            choices = ", ".join(get_args(EdgeLabelUse))
            raise ArgumentError(
                "features", "edge_labels", f"be one of {choices}, or false", repr(self.edge_labels)
            )


@dataclass(frozen=True)
class TrainConfig:
    """Hyper-parameters of the training: Adam with L2 regularisation and a learning rate that is halved periodically.

    Args:
        epochs (int): Passes over the training set. (default: 200)
        batch_size (int): Graphs per step; the last, smaller batch of an epoch is kept. (default: 32)
        learning_rate (float): Initial learning rate. (default: 0.001)
        weight_decay (float): Coefficient of the L2 term in the gradient. (default: 0.0001)
        halve_every (int): Number of epochs after which the learning rate is halved, repeatedly. (default: 500)
        reconstruction_weight (float): Weight β of the reconstruction loss, for models that have one. (default: 0.1)
        average_epochs (int): Length of the running mean of weights that is evaluated and kept
            (:class:`graphcaps.training.weight_averaging.WeightAverage`); 1 for no averaging. (default: 1)
        precision (str): Precision of matrix products on a GPU: ``"float32"``, ``"tf32"`` or ``"bf16"``. A CPU always
            uses float32. (default: "float32")
        batches_per_epoch (int, optional): Steps of an epoch, each on graphs that are drawn anew from the whole training
            set. (default: as many as it takes to see every graph once)
    """

    epochs: int = 200
    batch_size: int = 32
    learning_rate: float = 0.001
    weight_decay: float = 0.0001
    halve_every: int = 500
    reconstruction_weight: float = RECONSTRUCTION_WEIGHT
    average_epochs: int = 1
    precision: Precision = "float32"
    batches_per_epoch: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "batches_per_epoch", "halve_every", "average_epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentError("training", name, "be at least 1", value)
            _check_maximum("training", name, value or 0, _MAX_COUNT)
        if not 0 < self.learning_rate < math.inf:
            raise ArgumentError("training", "learning_rate", "be above 0 and finite", self.learning_rate)
        for name in ("weight_decay", "reconstruction_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ArgumentError("training", name, "be at least 0 and finite", getattr(self, name))
        for name in ("learning_rate", "weight_decay", "reconstruction_weight"):
            _check_maximum("training", name, getattr(self, name), _MAX_RATE)
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.precision not in get_args(Precision):
            choices = ", ".join(get_args(Precision))
            raise ArgumentError("training", "precision", f"be one of {choices}", repr(self.precision))

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch; epochs are counted from 0."""
        return float(self.learning_rate * 0.5 ** (epoch // self.halve_every))


@dataclass(frozen=True)
class CommitteeConfig:
    """What is trained beside a single model: further members of a committee, and companions.

    Args:
        members (int): Number of models that are trained with different seeds (docs/committees.md). (default: 1)
        companion (str, optional): Name of a classical model whose probabilities are mixed with theirs
            (docs/companion.md), or several with commas between them. ``"none"`` is ``None``. (default: none)
    """

    members: int = 1
    companion: str | None = None

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ArgumentError("committee", "members", "be at least 1", self.members)
        _check_maximum("committee", "members", self.members, MAX_MEMBERS)
        if self.companion == "none":
            object.__setattr__(self, "companion", None)


@dataclass(frozen=True)
class RunConfig:
    """Configuration of a run: model, features, training and committee.

    Args:
        dataset (str): Data set that the preset is for; recorded with results.
        model (str): Name of the model in the registry. (default: "hgcn")
        model_arguments (dict): Keyword arguments of the model, without ``in_channels``, ``num_classes`` and ``lead``.
        features (FeatureConfig): Node features.
        training (TrainConfig): Hyper-parameters of the training.
        source (str): Origin of the configuration; recorded with results. (default: "defaults")
        by_data (tuple): Values that are derived from the data: names of :data:`DATA_SETTINGS`, and of data options of
            the model; :func:`graphcaps.training.auto_config.resolve_config` replaces them by numbers.
        committee (CommitteeConfig): Members and companion of a run that names none. Records and model files hold the
            configuration of one model: they state the members and the companions beside it.
    """

    dataset: str = ""
    model: str = "hgcn"
    model_arguments: dict[str, Any] = field(default_factory=dict)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    source: str = "defaults"
    by_data: tuple[str, ...] = ()
    committee: CommitteeConfig = field(default_factory=CommitteeConfig)

    def with_training(self, **changes: Any) -> RunConfig:
        """A copy with other training values; ``None`` keeps a value."""
        values, by_data = self._split_changes(changes)
        return replace(self, training=replace(self.training, **values), by_data=by_data)

    def with_features(self, **changes: Any) -> RunConfig:
        """A copy with other features; they are no longer derived from the data."""
        by_data = tuple(name for name in self.by_data if name not in changes)
        return replace(self, features=replace(self.features, **changes), by_data=by_data)

    def with_model(self, **changes: Any) -> RunConfig:
        """A copy with other model arguments; ``None`` keeps an argument."""
        values, by_data = self._split_changes(changes)
        return replace(self, model_arguments=self.model_arguments | values, by_data=by_data)

    def with_committee(self, *, members: int | None = None, companion: str | None = None) -> RunConfig:
        """A copy with other members and companions; ``None`` keeps a value, the companion ``"none"`` removes it."""
        before = self.committee
        members = before.members if members is None else members
        companion = before.companion if companion is None else companion
        return replace(self, committee=CommitteeConfig(members, companion))

    def of_one_model(self) -> RunConfig:
        """A copy without committee and companion."""
        return replace(self, committee=CommitteeConfig())

    def _split_changes(self, changes: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The changes that are not ``None``, and the entries of ``by_data`` that remain."""
        values = {name: value for name, value in changes.items() if value is not None}
        return values, tuple(name for name in self.by_data if name not in values)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary that :meth:`from_dict` reads; that of a single model has no entry ``committee``."""
        arguments = {
            name: list(value) if isinstance(value, tuple) else deepcopy(value)
            for name, value in self.model_arguments.items()
        }
        return {
            "dataset": self.dataset,
            "model": {"name": self.model} | arguments,
            "features": dict(vars(self.features)),
            "training": dict(vars(self.training)),
            "source": self.source,
            "by_data": list(self.by_data),
            **({} if self.committee == CommitteeConfig() else {"committee": dict(vars(self.committee))}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "configuration") -> RunConfig:
        """Reads a dictionary from TOML or JSON.

        Raises:
            DataError: If a key is unknown or a value has the wrong type.
        """
        _check_keys(source, values, ("dataset", "by_data", *_SECTIONS, "source"))
        by_data = values.get("by_data", [])
        if not isinstance(by_data, list) or not all(isinstance(name, str) for name in by_data):
            raise DataError(f"{source}, by_data", "a list of names", _shown(by_data))
        for name in _SECTIONS:
            if not isinstance(values.get(name, {}), Mapping):
                raise DataError(source, f"a table [{name}]", _shown(values[name]))
        for name in by_data:
            section = DATA_SETTINGS.get(name, "model")
            # A dictionary from as_dict has a source, and holds a default number that by_data overrides.
            if name in values.get(section, {}) and "source" not in values:
                raise DataError(f"{source}, [{section}] {name}", "no value, since by_data lists it", "one")
        arguments = dict(values.get("model", {}))
        name = arguments.pop("name", "hgcn")
        for key, text in (
            ("dataset", values.get("dataset", "")),
            ("[model] name", name),
            ("source", values.get("source", "")),
        ):
            if not isinstance(text, str):
                raise DataError(f"{source}, {key}", "a string", _shown(text))
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
            committee=_section(CommitteeConfig, values.get("committee", {}), source, "committee"),
        )

    def to_toml(self, comment: str = "") -> str:
        """The text of a TOML file that :meth:`from_toml` reads; values that are derived from the data are left out.

        Args:
            comment (str): Lines at the top of the file. (default: none)
        """
        values = self.as_dict()
        lines = [f"# {line}".rstrip() for line in comment.splitlines()]
        lines += [""] if lines else []
        lines += [f"dataset = {_toml(self.dataset)}"] if self.dataset else []
        lines += [f"by_data = {_toml(list(self.by_data))}"] if self.by_data else []
        for section in (name for name in _SECTIONS if name in values):
            table = {name: value for name, value in values[section].items() if name not in self.by_data}
            lines += ["", f"[{section}]"]
            for name, value in table.items():
                if value is None and name in _OPTIONAL and section != "model":
                    value = False
                if (
                    value is not None
                ):  # TOML has no null; without a value, an option of a model has its default
                    lines.append(f"{name} = {_toml(value)}")
        return "\n".join(lines).lstrip("\n") + "\n"

    @classmethod
    def from_toml(cls, text: str, source: str = "configuration", datasets: Collection[str] = ()) -> RunConfig:
        """Reads the text of a TOML file.

        A table ``[by_dataset.NAME.training]``, and likewise of the other sections, holds values for one data
        set in place of the general ones. All such tables are checked, also those of other data sets.

        Args:
            text (str): The text.
            source (str): Origin of the text, for messages and results. (default: "configuration")
            datasets (collection of str): Names of the data set; tables of these names apply, and the source names them.
                (default: none)

        Raises:
            DataError: If the text is not TOML, a key is unknown, or a value has the wrong type.
        """
        try:
            values = tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
            raise DataError(source, f"invalid TOML: {error}") from error
        except RecursionError as error:
            raise DataError(source, "invalid TOML: brackets are nested too deeply") from error
        tables = values.pop("by_dataset", {})
        config = cls.from_dict(values, source)
        if not isinstance(tables, Mapping):
            raise DataError(source, "tables [by_dataset.NAME.training]", _shown(tables))
        for name, changes in tables.items():
            changed = cls.from_dict(
                _with_changes(values, changes, f"{source}, by_dataset.{name}"), f"{source}, by_dataset.{name}"
            )
            if name in datasets:
                config = replace(changed, source=f"{source}, {name}")
        return config


def _with_changes(values: Mapping[str, Any], changes: object, source: str) -> dict[str, Any]:
    """The values of a file with those of one of its tables ``by_dataset.NAME``."""
    if not isinstance(changes, Mapping):
        raise DataError(source, "a table", _shown(changes))
    _check_keys(source, changes, _SECTIONS)
    for section, table in changes.items():
        if not isinstance(table, Mapping):
            raise DataError(source, f"a table [{section}]", _shown(table))
    merged = dict(values) | {section: {**values.get(section, {}), **changes[section]} for section in changes}
    # A value of the table is not derived from the data.
    by_data = [
        name
        for name in values.get("by_data", [])
        if name not in changes.get(DATA_SETTINGS.get(name, "model"), {})
    ]
    return merged | {"by_data": by_data}


_SECTIONS = ("model", "features", "training", "committee")
_OPTIONAL: dict[str, type] = {
    "degree_onehot": int,
    "max_nodes": int,
    "edge_labels": str,
    "batches_per_epoch": int,
    "companion": str,
}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def _section(kind: Any, values: Mapping[str, Any], source: str, section: str) -> Any:
    entries = {entry.name: entry for entry in fields(kind)}
    _check_keys(source, values, tuple(entries), section)
    for name, value in values.items():
        default = entries[name].default
        types: tuple[type, ...] = (float, int) if isinstance(default, float) else (type(default),)
        if name in _OPTIONAL:
            # TOML has no null: false stands for None.
            if value is False or value is None:
                continue
            types = (_OPTIONAL[name],)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise DataError(f"{source}, [{section}] {name}", _KINDS[types[0]], _shown(value))
    cleaned = {name: None if value is False and name in _OPTIONAL else value
               for name, value in values.items()}  # fmt: skip
    return kind(**cleaned)


def _toml(value: object) -> str:
    """A value in TOML notation: text, number, true or false, or a list of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _shown(value: object) -> str:
    """A value in TOML notation."""
    try:
        return str(value).lower() if isinstance(value, bool) else repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return "a number of thousands of digits"


def _check_maximum(owner: str, name: str, value: float, maximum: int) -> None:
    if value > maximum:
        raise ArgumentError(owner, name, f"be at most {maximum:,}", _short_number(value))


def _short_number(value: float) -> str:
    """A number as it is, or a large one as 1e+30."""
    try:
        return str(value) if value < 10**15 else f"{value:g}"
    except OverflowError:  # an integer that no float can hold
        return "a number of more than 300 digits"


def _check_keys(source: str, values: Mapping[str, Any], keys: tuple[str, ...], section: str = "") -> None:
    for name in values:
        if name not in keys:
            near = close_names(name, keys, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"Known keys: {', '.join(keys)}."
            raise DataError(
                source,
                f"unknown key '{shorten(name, 60)}'" + (f" in [{section}]" if section else ""),
                fix=hint,
            )
