"""Training: configuration, replicas, one update, the loop. It receives stores and opens no files."""

from graphcaps.engine.adam import ReplicaAdam
from graphcaps.engine.build import model_maker, recipe_arguments
from graphcaps.engine.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.engine.fit import EpochEnd, Trainer, TrainingError
from graphcaps.engine.replicas import Replica, pick_replica, stack_replicas

__all__ = [
    "EpochEnd",
    "FeatureConfig",
    "Replica",
    "ReplicaAdam",
    "RunConfig",
    "TrainConfig",
    "Trainer",
    "TrainingError",
    "model_maker",
    "pick_replica",
    "recipe_arguments",
    "stack_replicas",
]
