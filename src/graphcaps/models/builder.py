"""From a configuration to its model."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

import graphcaps.models
import graphcaps.nn  # noqa: F401  (both enter their models into the registry)
from graphcaps.config import FeatureConfig, RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.registry import MODELS

__all__ = ["model_factory", "recipe_arguments"]

_MOST = 10**6


def model_factory(
    config: RunConfig, in_channels: int, num_classes: int
) -> Callable[[tuple[int, ...]], nn.Module]:
    """A function from leading axes to the model of ``config``.

    An unknown argument is refused by name, and so is one whose value is of another kind than its default.
    """
    kind, owner = MODELS[config.model], f"model '{config.model}'"
    known = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "lead"
    }
    for name, value in config.model_arguments.items():
        if name not in known:
            raise ArgumentError(owner, name, f"be one of {', '.join(known)}", repr(name))
        _check_size(owner, name, value)
        _check_kind(owner, known[name], value)

    def make(lead: tuple[int, ...]) -> nn.Module:
        model: nn.Module = kind(in_channels, num_classes, lead=lead, **config.model_arguments)
        return model

    return make


def _check_size(owner: str, name: str, value: object) -> None:
    """Refuses a whole number that no memory could hold a model for."""
    for each in value if isinstance(value, tuple | list) else (value,):
        if isinstance(each, int) and each > _MOST:
            raise ArgumentError(owner, name, f"be at most {_MOST:,}", "a larger number")


def _check_kind(owner: str, parameter: inspect.Parameter, value: object) -> None:
    """Refuses a text for a number and the like; ranges are the model's own matter."""
    default, optional = parameter.default, parameter.default is None
    if optional and (value is None or not str(parameter.annotation).startswith("int")):
        return
    right, expected = {
        bool: (isinstance(value, bool), "true or false"),
        int: (_is_whole(value), "a whole number"),
        float: (_is_whole(value) or isinstance(value, float), "a number"),
        str: (isinstance(value, str), "a text"),
        tuple: (isinstance(value, tuple | list) and all(map(_is_whole, value)), "whole numbers"),
    }.get(int if optional else type(default), (True, ""))
    if not right:
        raise ArgumentError(owner, parameter.name, f"be {expected}", repr(value))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def recipe_arguments(features: FeatureConfig) -> dict[str, bool | int | None]:
    """Arguments of a :class:`graphcaps.data.FeatureRecipe` for these input columns."""
    return {
        "attributes": features.attributes,
        "labels": features.labels,
        "degree": features.degree,
        "degree_onehot": features.degree_onehot,
        "propagation": features.propagation,
        "edge_labels": features.edge_labels,
    }
