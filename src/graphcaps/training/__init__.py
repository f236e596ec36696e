"""Training of replicas: loop, optimizer, checkpoints, early stopping, calibration. It opens no data files.

Public names are imported on first use: a prediction needs the choice of a device, not the trainer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
    from graphcaps.models.builder import model_factory, recipe_arguments
    from graphcaps.training.final_training import FinalTraining, make_training, train_final
    from graphcaps.training.loop import Callback, CallbackError, RunInfo, TrainingLoop
    from graphcaps.training.optimizer import ReplicaAdam
    from graphcaps.training.replicas import Replica, pick_replica, stack_replicas
    from graphcaps.training.single_training import FinalResult, SingleTraining
    from graphcaps.training.tensorboard_logger import TensorBoardLogger
    from graphcaps.training.trainer import EpochEnd, Trainer, TrainingError

_NAMES = {
    "Callback": "graphcaps.training.loop",
    "CallbackError": "graphcaps.training.loop",
    "EpochEnd": "graphcaps.training.trainer",
    "FeatureConfig": "graphcaps.config",
    "FinalResult": "graphcaps.training.single_training",
    "FinalTraining": "graphcaps.training.final_training",
    "Replica": "graphcaps.training.replicas",
    "ReplicaAdam": "graphcaps.training.optimizer",
    "RunConfig": "graphcaps.config",
    "RunInfo": "graphcaps.training.loop",
    "SingleTraining": "graphcaps.training.single_training",
    "TensorBoardLogger": "graphcaps.training.tensorboard_logger",
    "TrainConfig": "graphcaps.config",
    "Trainer": "graphcaps.training.trainer",
    "TrainingError": "graphcaps.training.trainer",
    "TrainingLoop": "graphcaps.training.loop",
    "make_training": "graphcaps.training.final_training",
    "model_factory": "graphcaps.models.builder",
    "pick_replica": "graphcaps.training.replicas",
    "recipe_arguments": "graphcaps.models.builder",
    "stack_replicas": "graphcaps.training.replicas",
    "train_final": "graphcaps.training.final_training",
}

__all__ = [
    "Callback",
    "CallbackError",
    "EpochEnd",
    "FeatureConfig",
    "FinalResult",
    "FinalTraining",
    "Replica",
    "ReplicaAdam",
    "RunConfig",
    "RunInfo",
    "SingleTraining",
    "TensorBoardLogger",
    "TrainConfig",
    "Trainer",
    "TrainingError",
    "TrainingLoop",
    "make_training",
    "model_factory",
    "pick_replica",
    "recipe_arguments",
    "stack_replicas",
    "train_final",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'graphcaps.training' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
