"""Small models that train in well under a second, for tests."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.encoding import encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.store import GraphStore
from graphcaps.inference.fitted_model import FittedModel, training_summary
from graphcaps.inference.mixture import Mixture
from graphcaps.inference.probabilities import Calibration
from graphcaps.models.builder import build_classical, model_factory
from graphcaps.models.lookup import find_model
from graphcaps.nn import HGCN
from graphcaps.nn.capsule_use import CapsuleCollapseWarning
from graphcaps.training import Replica, Trainer, pick_replica, stack_replicas
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.final_training import train_final
from graphcaps.types import EdgeLabelUse

HGCN_SMALL: dict[str, Any] = {"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2}


def train_small(
    store: GraphStore,
    model: str = "hgcn",
    arguments: dict[str, Any] | None = None,
    *,
    epochs: int = 2,
    max_nodes: int | None = None,
    edge_labels: EdgeLabelUse | None = None,
) -> FittedModel:
    """A model trained for ``epochs`` epochs on all graphs of ``store``."""
    if arguments is None:
        small = HGCN_SMALL if model == "hgcn" else {"hidden": 8, "num_layers": 2}
        arguments = {name: value for name, value in small.items() if name in find_model(model).options()}
    config = RunConfig(
        dataset=store.name,
        model=model,
        model_arguments=arguments,
        features=FeatureConfig(degree_onehot=4, propagation=1, max_nodes=max_nodes, edge_labels=edge_labels),
        training=TrainConfig(epochs=epochs, learning_rate=0.01),
    )
    encoded = encode_graphs(store, FeatureRecipe.from_config(config.features), max_nodes=max_nodes)
    factory = model_factory(config, encoded.x.size(1), store.num_classes, encoded.recipe.edge_kinds)
    no_graphs = torch.empty(0, dtype=torch.long)
    replicas = [Replica(torch.arange(len(store)), no_graphs, no_graphs)]
    stacked = stack_replicas(factory, replicas)
    *_, last = Trainer(stacked, encoded.store, encoded.x, replicas, config.training).run()
    summary = training_summary(store, epochs=epochs, seed=0, train_loss=last.train_loss[0], seconds=0.5)
    return FittedModel(pick_replica(stacked, factory, 0), config, encoded.recipe, store.class_names, summary)


@cache
def planted() -> GraphStore:
    """Thirty graphs of the data set planted-parts."""
    return planted_parts(num_graphs=30)


@cache
def labelled() -> GraphStore:
    """The same graphs with node labels (0 to 3) and two attributes; treat as read-only."""
    store = planted()
    generator = torch.Generator().manual_seed(0)
    labels = store.degree.clamp(1, 4) - 1
    attributes = torch.randn(store.num_nodes, 2, generator=generator)
    return replace(store, name="labelled", node_labels=labels[:, None], node_attributes=attributes)


@cache
def bonded() -> GraphStore:
    """The graphs of :func:`labelled` with two columns of edge labels, of 3 and of 2 values; treat as read-only."""
    store = labelled()
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    target = store.neighbours.long() + store.node_ptr[store.node_graph[source]]
    columns = [(source + target) % 3, (source * target) % 2]
    return replace(store, name="bonded", edge_labels=torch.stack(columns, -1))


@cache
def bonded_model() -> FittedModel:
    """HGCN with two layers of message passing that read the edge labels of :func:`bonded`."""
    return train_small(
        bonded(), arguments=HGCN_SMALL | {"context": "residual"}, epochs=4, edge_labels="messages"
    )


@cache
def small_model() -> FittedModel:
    """HGCN on :func:`planted`."""
    return train_small(planted())


@cache
def small_committee() -> FittedModel:
    """Three HGCN of different seeds on :func:`planted`, with a validation set."""
    config = RunConfig(
        model_arguments=HGCN_SMALL, training=TrainConfig(epochs=2, batch_size=8, learning_rate=0.01)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapsuleCollapseWarning)
        return train_final(planted(), config, validation=0.2, device="cpu", members=3).model


@cache
def two_level_model(**options: Any) -> FittedModel:
    """HGCN with levels of four and three capsules on :func:`planted`, with a validation set and mean coefficients."""
    config = RunConfig(
        model_arguments=HGCN_SMALL | {"num_capsules": (4, 3)} | options,
        training=TrainConfig(epochs=2, batch_size=8, learning_rate=0.01),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapsuleCollapseWarning)
        return train_final(planted(), config, validation=0.2, device="cpu").model


def means_of(model: FittedModel, member: int = 0) -> tuple[torch.Tensor, ...]:
    """The mean coefficients of a member, which has them."""
    network = model.members[member]
    assert isinstance(network, HGCN)
    assert network.mean_coefficients is not None
    return network.mean_coefficients


@cache
def labelled_model() -> FittedModel:
    """HGCN on :func:`labelled`."""
    return train_small(labelled())


@cache
def companion_model() -> FittedModel:
    """HGCN on :func:`labelled` with two small forests beside it."""
    store, counts = labelled(), {"class_counts": training_summary(labelled())["class_counts"]}
    fitted, companions = labelled_model(), []
    for name in ("wl-forest", "features-trees"):
        config = resolve_config(RunConfig(model=name, model_arguments={"trees": 5}), store)
        model = build_classical(config, store.num_classes)
        assert store.y is not None
        model.fit(store, np.arange(len(store)), store.y.numpy())
        recipe = FeatureRecipe.from_config(config.features).fit(store)
        companions.append(FittedModel(model, config, recipe, store.class_names, counts))
    mixture = Mixture((0.5, 0.3, 0.2), 30, False, Calibration("temperature", 30, temperature=0.8))
    return replace(fitted, companions=tuple(companions), mixture=mixture)
