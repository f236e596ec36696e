"""Registry of models, and what the rest of the package reads of a registered model.

A model is registered by one decorator in one file::

    @MODELS.register("gin")
    class GIN(GraphModel):
        ...

:func:`graphcaps.models.find_model` looks a model up by its name, in graphcaps and in installed packages.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar, get_args

from graphcaps.errors import ArgumentError

__all__ = [
    "MODELS",
    "Choices",
    "DataOption",
    "DatasetSize",
    "Interval",
    "ModelRegistry",
    "RegisteredModel",
    "ScoreKind",
]

ScoreKind = Literal["lengths", "logits", "probabilities"]
"""What the class scores of a model are: lengths of class capsules, logits, or probabilities that sum to one."""

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Choices:
    """Values of an option that a search chooses among.

    Args:
        values (tuple): The values.
    """

    values: tuple[object, ...]


@dataclass(frozen=True)
class Interval:
    """Numbers between two bounds that a search chooses among; whole numbers if both bounds are.

    Args:
        low, high (float): Bounds, both included.
        log (bool): Whether numbers are drawn uniformly on a logarithmic scale. (default: False)
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class DatasetSize:
    """Size of a data set, from which data-dependent options are derived.

    Args:
        node_counts (tuple): Number of nodes of each graph as the model sees it, ascending.
        num_classes (int): Number of classes.
    """

    node_counts: tuple[int, ...]
    num_classes: int

    @property
    def num_graphs(self) -> int:
        return len(self.node_counts)

    @property
    def max_nodes(self) -> int:
        """Number of nodes of the largest graph, at least 1."""
        return self.nodes_at(1.0)

    @property
    def mean_nodes(self) -> float:
        """Mean number of nodes of a graph, at least 1."""
        return max(sum(self.node_counts) / max(self.num_graphs, 1), 1.0)

    def nodes_at(self, fraction: float) -> int:
        """Number of nodes, at least 1, that this fraction of the graphs does not exceed.

        Args:
            fraction (float): Above 0 and at most 1; 0.6 for the 60th percentile.
        """
        if not self.node_counts:
            return 1
        return max(self.node_counts[max(math.ceil(fraction * self.num_graphs), 1) - 1], 1)


@dataclass(frozen=True)
class DataOption:
    """An option of a model whose value can be derived from the data.

    Args:
        rule (callable): Gives the value for a :class:`DatasetSize`.
        kept (bool): Whether a training that starts from a fitted model keeps the value of that model. (default: False)
        by_default (bool): Whether the value is derived unless the configuration has one; otherwise it is derived only
            if ``by_data`` names the option. (default: False)
    """

    rule: Callable[[DatasetSize], object]
    kept: bool = False
    by_default: bool = False


class RegisteredModel:
    """Base class of all registered models; its class attributes describe a model to the rest of the package.

    Options of a model are the keyword-only arguments of its constructor, except ``lead``. Each has a default. The
    first line of the class docstring is the description of the model in help texts.

    Attributes:
        scores (str): What its class scores are, see :data:`ScoreKind`.
        reference (str): The publication that it comes from: title, venue and address, in one line.
        width_option (str, optional): The option that sets the width of hidden layers. A preset for another model
            passes its width on through it. (default: None)
        memory_options (tuple): Options that the memory of a training step grows with, named in out-of-memory
            messages. (default: ())
        data_options (dict): Options whose value can be derived from the data, each with its :class:`DataOption`. They
            may stand under ``by_data`` in a configuration, or are derived by default. (default: {})
        searched (dict): Options that a hyper-parameter search varies, each with its :class:`Choices` or
            :class:`Interval`. (default: {})
        loss_weights (tuple): Options that weigh further terms of the loss. A search does not vary them, since it
            compares losses that contain these terms. (default: ())
    """

    scores: ClassVar[ScoreKind]
    reference: ClassVar[str]
    width_option: ClassVar[str | None] = None
    memory_options: ClassVar[tuple[str, ...]] = ()
    data_options: ClassVar[Mapping[str, DataOption]] = {}
    searched: ClassVar[Mapping[str, Choices | Interval]] = {}
    loss_weights: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def options(cls) -> dict[str, inspect.Parameter]:
        """The options of the model by name: keyword-only arguments of the constructor, without ``lead``."""
        return {
            name: parameter
            for name, parameter in inspect.signature(cls).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "lead"
        }

    @classmethod
    def summary(cls) -> str:
        """One line about the model: the first line of its docstring."""
        return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]


Kind = TypeVar("Kind", bound=type[RegisteredModel])


class ModelRegistry:
    """Registered models by name, in the order of their names.

    It holds the models of modules that have been imported. :func:`graphcaps.models.find_model` imports the module of
    a model where that is necessary.
    """

    def __init__(self) -> None:
        self._models: dict[str, type[RegisteredModel]] = {}

    def register(self, name: str) -> Callable[[Kind], Kind]:
        """Decorator that registers a class under ``name``.

        Args:
            name (str): Lower-case letters and digits, with hyphens between words.

        Raises:
            ArgumentError: If the name is invalid or taken, or the class does not describe itself as
                :class:`RegisteredModel` states.
        """

        def decorate(model: Kind) -> Kind:
            _check(name, model)
            known = self._models.get(name)
            if known is not None:
                taken = f"one that {known.__module__}.{known.__qualname__} has"
                raise ArgumentError(_owner(model), "name", f"be new, not '{name}'", taken)
            self._models[name] = model
            return model

        return decorate

    def __getitem__(self, name: str) -> type[RegisteredModel]:
        return self._models[name]

    def __contains__(self, name: object) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._models))

    def __len__(self) -> int:
        return len(self._models)


def _owner(model: type) -> str:
    return f"model {model.__name__}"


def _check(name: str, model: type[RegisteredModel]) -> None:
    """Rejects a class that lacks what :class:`RegisteredModel` asks for."""
    if not (isinstance(model, type) and issubclass(model, RegisteredModel)):
        expected = "be a class derived from RegisteredModel, such as a GraphModel"
        raise ArgumentError(f"model '{name}'", "class", expected, repr(model))
    owner = _owner(model)
    if not _NAME.fullmatch(name):
        expected = "be lower-case letters and digits, with hyphens between words"
        raise ArgumentError(owner, "name", expected, repr(name))
    attributes = {key: value for base in reversed(model.__mro__) for key, value in vars(base).items()}
    scores, reference = attributes.get("scores"), attributes.get("reference")
    if scores not in get_args(ScoreKind):
        raise ArgumentError(owner, "scores", f"be one of {', '.join(get_args(ScoreKind))}", repr(scores))
    if not isinstance(reference, str) or not reference:
        raise ArgumentError(owner, "reference", "name the publication it comes from", repr(reference))
    if not model.__doc__:
        raise ArgumentError(owner, "docstring", "describe the model in its first line", "none")
    options = model.options()
    for option, parameter in options.items():
        if parameter.default is inspect.Parameter.empty:
            raise ArgumentError(owner, option, "have a default", "none")
    width = () if model.width_option is None else (model.width_option,)
    declared = {
        "width_option": width,
        "memory_options": model.memory_options,
        "data_options": model.data_options,
        "searched": model.searched,
        "loss_weights": model.loss_weights,
    }
    for attribute, names in declared.items():
        for option in names:
            if option not in options:
                raise ArgumentError(owner, attribute, f"name options, {', '.join(options)}", repr(option))


MODELS = ModelRegistry()
"""The registry that :func:`graphcaps.models.find_model` searches."""
