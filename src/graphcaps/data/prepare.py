"""From graphs to what a model reads: columns first, then the cut to a largest number of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphcaps.data.cap import cap_nodes
from graphcaps.data.features import FeatureRecipe
from graphcaps.data.store import GraphStore

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True)
class Prepared:
    """Graphs with their input columns.

    Args:
        store (GraphStore): The graphs, cut where a cap was given.
        x (Tensor): Features of all its nodes, ``[N, in]``; degrees and hops are those of the whole graphs.
        recipe (FeatureRecipe): The fitted recipe that made them.
    """

    store: GraphStore
    x: Tensor
    recipe: FeatureRecipe


def prepare(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    max_nodes: int | None = None,
    unseen: Literal["refuse", "ignore"] = "refuse",
    dtype: torch.dtype = torch.float32,
) -> Prepared:
    """Applies a recipe, after fitting it where it is not fitted yet, and cuts graphs over ``max_nodes``."""
    fitted = recipe if recipe.is_fitted else recipe.fit(store)
    x = fitted.apply(store, unseen=unseen, dtype=dtype)
    if max_nodes is None:
        return Prepared(store, x, fitted)
    capped = cap_nodes(store, max_nodes, x)
    assert capped.x is not None
    return Prepared(capped.store, capped.x, fitted)
