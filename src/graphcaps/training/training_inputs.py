"""What every training starts from: encoded graphs on the device, and the factory of the model that fits them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.models.builder import model_factory, precomputation_of
from graphcaps.nn.graph_model import ModelFactory
from graphcaps.training.streaming import move_to_device

__all__ = ["TrainingInputs", "inputs_on", "prepare_inputs"]


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """Graphs and features of a training, and the factory of its model.

    Args:
        store (GraphStore): All graphs, on the device, or on the host to be streamed.
        x (Tensor): Features of all nodes, beside the store, ``[N, in]``.
        recipe (FeatureRecipe): The fitted encoding of the features.
        factory (callable): Builds the model with the given leading axes.
        device (device): Device of the training.
    """

    store: GraphStore
    x: Tensor
    recipe: FeatureRecipe
    factory: ModelFactory
    device: torch.device


def prepare_inputs(
    store: GraphStore,
    config: RunConfig,
    device: torch.device,
    *,
    owner: str,
    recipe: FeatureRecipe | None = None,
    graphs: Tensor | None = None,
) -> TrainingInputs:
    """Encodes a store, precomputes what the model needs of it, and moves both to the device, if it has room for them.

    Args:
        store (GraphStore): Graphs with labels.
        config (RunConfig): Model and features, resolved.
        device (device): Device of the training.
        owner (str): Name that error messages begin with.
        recipe (FeatureRecipe, optional): A fitted encoding to use. (default: that of ``config``, fitted on ``store``)
        graphs (Tensor, optional): Indices of the graphs that are encoded, those of a rank; the encoding is fitted on
            all of ``store``. (default: all)
    """
    if recipe is None:
        recipe = FeatureRecipe.from_config(config.features)
    if graphs is not None:
        recipe = recipe if recipe.is_fitted else recipe.fit(store)
        store = store[graphs]
    encoded = encode_graphs(store, recipe, max_nodes=config.features.max_nodes, owner=owner)
    kinds = encoded.recipe.edge_kinds
    factory = model_factory(config, encoded.x.size(-1), store.num_classes, kinds)
    precomputed = precompute(encoded.store, precomputation_of(factory), dtype=encoded.x.dtype, cached=True)
    moved, x = move_to_device(precomputed, encoded.x, device)
    return TrainingInputs(moved, x, encoded.recipe, factory, device)


def inputs_on(inputs: TrainingInputs, device: torch.device) -> TrainingInputs:
    """The inputs for another device than that they were prepared for; those in host memory may be moved to a GPU."""
    if inputs.device == device:
        return inputs
    store, x = move_to_device(inputs.store, inputs.x, device)
    return replace(inputs, store=store, x=x, device=device)
