"""Training of replicas: loop, optimizer, checkpoints, early stopping, calibration. It opens no data files.

Public names are imported on first use: a prediction needs the choice of a device, not the trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcaps._io.lazy_names import lazy_names

if TYPE_CHECKING:
    from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
    from graphcaps.models.builder import model_factory
    from graphcaps.training.final_training import FinalTraining, make_training, train_final
    from graphcaps.training.loop import Callback, CallbackError, RunInfo, TrainingLoop
    from graphcaps.training.optimizer import ReplicaAdam
    from graphcaps.training.replica_trainer import EpochEnd
    from graphcaps.training.replicas import Replica, pick_replica, stack_replicas
    from graphcaps.training.single_training import FinalResult, SingleTraining
    from graphcaps.training.tensorboard_logger import TensorBoardLogger
    from graphcaps.training.trainer import Trainer, TrainingError

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "graphcaps.config": ["FeatureConfig", "RunConfig", "TrainConfig"],
        "graphcaps.models.builder": ["model_factory"],
        "graphcaps.training.final_training": ["FinalTraining", "make_training", "train_final"],
        "graphcaps.training.loop": ["Callback", "CallbackError", "RunInfo", "TrainingLoop"],
        "graphcaps.training.optimizer": ["ReplicaAdam"],
        "graphcaps.training.replica_trainer": ["EpochEnd"],
        "graphcaps.training.replicas": ["Replica", "pick_replica", "stack_replicas"],
        "graphcaps.training.single_training": ["FinalResult", "SingleTraining"],
        "graphcaps.training.tensorboard_logger": ["TensorBoardLogger"],
        "graphcaps.training.trainer": ["Trainer", "TrainingError"],
    },
)

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
    "stack_replicas",
    "train_final",
]
