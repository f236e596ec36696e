"""Builds the model of a configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.models.classical import ClassicalModel
from graphcaps.models.lookup import find_classical_model, find_graph_model
from graphcaps.nn.graph_model import GraphModel, ModelFactory
from graphcaps.nn.initialise import forked_generator
from graphcaps.ops.structure.precomputation import Precomputation
from graphcaps.registry import RegisteredModel

__all__ = [
    "ModelBuilder",
    "build_classical",
    "complete_tuples",
    "join_builders",
    "model_factory",
    "precomputation_of",
]

_MAX_SIZE = 10**6


def model_factory(
    config: RunConfig, in_channels: int, num_classes: int, edge_kinds: tuple[int, ...] = ()
) -> ModelBuilder:
    """A function that builds the model of ``config`` with given leading axes. It can be pickled.

    Args:
        config (RunConfig): Names the model and its arguments.
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        edge_kinds (tuple): Number of values of each edge label column in the encoded graphs. A model without an option
            of this name does not read edge labels in its message passing. (default: (), none)

    Raises:
        ArgumentError: If an argument is unknown, or its value has another type than the default.
    """
    kind = find_graph_model(config.model)
    arguments = _checked_arguments(config, kind)
    if "edge_kinds" in kind.options():
        if tuple(arguments.get("edge_kinds") or edge_kinds) != edge_kinds:
            expected = (
                f"be left out: {edge_kinds} follows from the data and from edge_labels under [features]"
            )
            raise ArgumentError(f"model '{config.model}'", "edge_kinds", expected, arguments["edge_kinds"])
        arguments["edge_kinds"] = edge_kinds
    return ModelBuilder(kind, in_channels, num_classes, arguments)


@dataclass(frozen=True)
class ModelBuilder:
    """Builds a model with given leading axes, with options that are already checked.

    Args:
        kind (type): Class of the model.
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        arguments (dict): Options of the model.
    """

    kind: type[GraphModel]
    in_channels: int
    num_classes: int
    arguments: Mapping[str, Any]

    def __call__(self, lead: tuple[int, ...]) -> GraphModel:
        return self.kind(self.in_channels, self.num_classes, lead=lead, **self.arguments)


def join_builders(builders: Sequence[ModelBuilder]) -> ModelBuilder:
    """The builder of one model with a replica per builder, in their order; call it with the lead ``(F,)``.

    Args:
        builders (sequence): Builders of models that differ in :attr:`GraphModel.replica_options` only; those that do
            become one number per replica.

    Raises:
        ArgumentError: If another option differs.
    """
    first, kind = builders[0], builders[0].kind
    joined = dict(first.arguments)
    for name in dict.fromkeys(name for each in builders for name in each.arguments):
        default = kind.options()[name].default
        values = [each.arguments.get(name, default) for each in builders]
        if all(value == values[0] for value in values):
            continue
        if name not in kind.replica_options:
            expected = (
                f"be the same for all replicas, unlike {', '.join(kind.replica_options) or 'any other'}"
            )
            raise ArgumentError(f"model {kind.__name__}", name, expected, f"{values[0]!r} and others")
        joined[name] = torch.tensor(values, dtype=torch.float64)
    return replace(first, arguments=joined)


def precomputation_of(factory: ModelFactory) -> Precomputation | None:
    """What the models of a factory need computed from each graph; torch's generator is left as it was."""
    with forked_generator():
        return factory(()).precomputation


def build_classical(config: RunConfig, num_classes: int, *, seed: int = 0, jobs: int = 1) -> ClassicalModel:
    """The classical model of ``config``, not fitted.

    Args:
        config (RunConfig): Names the model and its arguments.
        num_classes (int): Number of classes.
        seed (int): Seed of all random choices. (default: 0)
        jobs (int): Number of threads. (default: 1)

    Raises:
        ArgumentError: If an argument is unknown, or its value has another type than the default.
    """
    kind = find_classical_model(config.model)
    return kind(num_classes, seed=seed, jobs=jobs, **_checked_arguments(config, kind))


def complete_tuples(kind: type[RegisteredModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a model; a single number for an option that holds several becomes a tuple of one."""
    several = {name for name, option in kind.options().items() if isinstance(option.default, tuple)}
    return {
        name: (value,) if name in several and _is_number(value) else value
        for name, value in arguments.items()
    }


def _checked_arguments(config: RunConfig, kind: type[RegisteredModel]) -> dict[str, Any]:
    """The arguments of the model; rejects those it does not have, and values of another type than the default."""
    owner, known = f"model '{config.model}'", kind.options()
    arguments = complete_tuples(kind, config.model_arguments)
    for name, value in arguments.items():
        if name not in known:
            expected = f"be one of {', '.join(known)}" if known else "be left out, since there are no options"
            raise ArgumentError(owner, name, expected, repr(name))
        _check_size(owner, name, value)
        _check_kind(owner, known[name], value)
    return arguments


def _check_size(owner: str, name: str, value: object) -> None:
    """Rejects an integer for which no model would fit into memory."""
    for each in value if isinstance(value, tuple | list) else (value,):
        if isinstance(each, int) and each > _MAX_SIZE:
            raise ArgumentError(owner, name, f"be at most {_MAX_SIZE:,}", "a larger number")


def _check_kind(owner: str, parameter: inspect.Parameter, value: object) -> None:
    """Rejects a value of the wrong type, such as a string for a number. Ranges are checked by the model."""
    default, optional = parameter.default, parameter.default is None
    if optional and (value is None or not str(parameter.annotation).startswith("int")):
        return
    several = isinstance(default, tuple)
    kind = int if optional else type(default[0]) if several and default else type(default)
    if kind in _KINDS:
        is_valid, one, many = _KINDS[kind]
        valid = isinstance(value, tuple | list) and all(map(is_valid, value)) if several else is_valid(value)
        expected = many if several else one
    else:  # a default of another type, or an empty tuple, whose elements have no type
        valid, expected = not several or isinstance(value, tuple | list), "several values"
    if not valid:
        raise ArgumentError(owner, parameter.name, f"be {expected}", repr(value))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_integer(value) or isinstance(value, float)


# For each type of a default: the check of a value, and what messages call one value and several.
_KINDS: dict[type, tuple[Callable[[object], bool], str, str]] = {
    bool: (lambda value: isinstance(value, bool), "true or false", "values true or false"),
    int: (_is_integer, "a whole number", "whole numbers"),
    float: (_is_number, "a number", "numbers"),
    str: (lambda value: isinstance(value, str), "a string", "strings"),
}
