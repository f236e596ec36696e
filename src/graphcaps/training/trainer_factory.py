"""Chooses where replicas are trained: in one trainer, in several processes of a CPU, or on several streams of a GPU."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import compact_features
from graphcaps.data.store import GraphStore
from graphcaps.metrics import SelectionMetric
from graphcaps.models.builder import join_builders
from graphcaps.nn.graph_model import ModelFactory
from graphcaps.training.divided_trainer import DividedTrainer, divide_replicas
from graphcaps.training.graph_shards import GraphShard
from graphcaps.training.multiprocess import ProcessPoolTrainer, choose_start_method
from graphcaps.training.replica_settings import ReplicaSettings
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.stream_trainer import StreamTrainer
from graphcaps.training.trainer import Trainer
from graphcaps.types import FeatureTable

__all__ = ["TrainerFactory", "make_trainer"]

MAX_WORKERS = 16
GPU_STREAMS = 2
"""Number of streams that the replicas of a training on a GPU are divided among."""


@dataclass(frozen=True)
class TrainerFactory:
    """Builds the trainer of some replicas; called in each process.

    Args:
        factory (callable): Builds a model with the given leading axes.
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
        config (TrainConfig): Hyper-parameters of the training.
        device (device): Device to train on.
        variants (dict, optional): Factories of the initial weights, as in :func:`stack_replicas`.
        class_weight (Tensor or str, optional): Weight of each class in the losses, ``[O]``, or ``"balanced"``, as in
            :class:`Trainer`.
        sample_weight (Tensor, optional): Weight of each graph in the losses, ``[G]``.
        metric (str): Metric of the validation set that selects the epoch. (default: "loss")
        keep_scores (bool): Keep class scores of validation and test graphs. (default: ``False``)
        settings (dict, optional): Model and training of each variant of the replicas, where they differ in numbers; the
            trainer then trains on if one of them diverges. (default: ``factory`` and ``config`` for all)
        shard (GraphShard, optional): The graphs of ``store`` among those of all ranks. (default: one process)
    """

    factory: ModelFactory
    store: GraphStore
    x: Tensor | FeatureTable
    config: TrainConfig
    device: torch.device
    variants: Mapping[str, ModelFactory] | None = None
    class_weight: Tensor | Literal["balanced"] | None = None
    sample_weight: Tensor | None = None
    metric: SelectionMetric = "loss"
    keep_scores: bool = False
    settings: Mapping[str, ReplicaSettings] | None = None
    shard: GraphShard | None = None

    def __call__(self, replicas: list[Replica]) -> Trainer:
        factory, variants, replica_configs = self.factory, self.variants, None
        if self.settings is not None:
            each = [self.settings[replica.variant] for replica in replicas]
            factory = join_builders([settings.builder for settings in each])
            variants = {name: settings.builder for name, settings in self.settings.items()}
            replica_configs = [settings.training for settings in each]
        model = stack_replicas(factory, replicas, variants=variants).to(self.device)
        return Trainer(
            model,
            self.store,
            self.x,
            replicas,
            self.config,
            class_weight=self.class_weight,
            sample_weight=self.sample_weight,
            metric=self.metric,
            keep_scores=self.keep_scores,
            replica_configs=replica_configs,
            allow_divergence=self.settings is not None,
            shard=self.shard,
        )


def make_trainer(
    factory: ModelFactory,
    store: GraphStore,
    x: Tensor,
    replicas: list[Replica],
    config: TrainConfig,
    device: torch.device,
    variants: Mapping[str, ModelFactory] | None = None,
    class_weight: Tensor | Literal["balanced"] | None = None,
    sample_weight: Tensor | None = None,
    metric: SelectionMetric = "loss",
    keep_scores: bool = False,
    settings: Mapping[str, ReplicaSettings] | None = None,
    shard: GraphShard | None = None,
) -> Trainer | DividedTrainer:
    """A trainer of these replicas: one, or several that share a CPU with several threads or a GPU.

    Args:
        factory (callable): Builds a model with the given leading axes.
        store (GraphStore): All graphs, with labels.
        x (Tensor): Features of all nodes, ``[N, in]``.
        replicas (list): Replicas to train.
        config (TrainConfig): Hyper-parameters of the training.
        device (device): Device to train on.
        variants (dict, optional): Factories of the initial weights, as in :func:`stack_replicas`.
        class_weight (Tensor or str, optional): Weight of each class in the losses, ``[O]``, or ``"balanced"``, as in
            :class:`Trainer`.
        sample_weight (Tensor, optional): Weight of each graph in the losses, ``[G]``.
        metric (str): Metric of the validation set that selects the epoch. (default: "loss")
        keep_scores (bool): Keep class scores of validation and test graphs, for ``scores()``. (default: ``False``)
        settings (dict, optional): Model and training of each variant of the replicas, as in :class:`TrainerFactory`.
        shard (GraphShard, optional): The graphs of ``store`` among those of all ranks; each rank is one process.
            (default: one process has all graphs)
    """
    features: Tensor | FeatureTable = x
    if store.device == x.device == device and shard is None:  # once, before there are several processes
        features = compact_features(x, store)
    build = TrainerFactory(
        *(
            factory,
            store,
            features,
            config,
            device,
            variants,
            class_weight,
            sample_weight,
            metric,
            keep_scores,
            settings,
            shard,
        )
    )
    if shard is not None:
        return build(replicas)
    if device.type == "cuda":
        return _on_streams(build, replicas, config)
    workers = min(MAX_WORKERS, torch.get_num_threads(), len(replicas))
    if workers == 1 or sys.platform != "linux":  # forks are safe on Linux only
        return build(replicas)
    start_method = choose_start_method()
    if start_method == "spawn" and not _is_portable(build):
        return build(replicas)
    return ProcessPoolTrainer(build, divide_replicas(replicas, workers), config, start_method)


def _on_streams(
    build: TrainerFactory, replicas: list[Replica], config: TrainConfig
) -> Trainer | StreamTrainer:
    """Trainers of shards on streams of a GPU if their steps are captured, else one trainer.

    The steps of several trainers that are launched operation by operation would wait for each other on the host.
    """
    first, *others = divide_replicas(replicas, min(GPU_STREAMS, len(replicas)))
    trainer = build(first)
    if not others:
        return trainer
    if trainer.captured:
        return StreamTrainer([trainer, *map(build, others)], config)
    trainer.close()
    return build(replicas)


def _is_portable(build: TrainerFactory) -> bool:
    """Whether a spawned process can rebuild the models; it cannot if their factories are local functions."""
    try:
        pickle.dumps((build.factory, build.variants, build.settings))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True
