"""From a configuration to its model."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import nn

import graphcaps.baselines
import graphcaps.nn  # noqa: F401  (both enter their models into the registry)
from graphcaps.engine.config import FeatureConfig, RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.registry import MODELS

__all__ = ["model_maker", "recipe_arguments"]


def model_maker(
    config: RunConfig, in_channels: int, num_classes: int
) -> Callable[[tuple[int, ...]], nn.Module]:
    """A function from leading axes to the model of ``config``; an unknown argument is refused by name."""
    kind = MODELS[config.model]
    known = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "lead"
    ]
    for name in config.model_arguments:
        if name not in known:
            raise ArgumentError(f"model '{config.model}'", name, f"be one of {', '.join(known)}", repr(name))

    def make(lead: tuple[int, ...]) -> nn.Module:
        model: nn.Module = kind(in_channels, num_classes, lead=lead, **config.model_arguments)
        return model

    return make


def recipe_arguments(features: FeatureConfig) -> dict[str, bool | int | None]:
    """Arguments of a :class:`graphcaps.data.FeatureRecipe` for these input columns."""
    return {
        "attributes": features.attributes,
        "labels": features.labels,
        "degree": features.degree,
        "degree_onehot": features.degree_onehot,
        "propagation": features.propagation,
    }
