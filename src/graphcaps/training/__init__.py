"""Training of replicas: loop, optimizer, checkpoints, early stopping, calibration. It opens no data files."""

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.models.builder import model_factory, recipe_arguments
from graphcaps.training.final_training import FinalTraining, make_training, train_final
from graphcaps.training.loop import Callback, CallbackError, RunInfo, TrainingLoop
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.replicas import Replica, pick_replica, stack_replicas
from graphcaps.training.single_training import FinalResult, SingleTraining
from graphcaps.training.tensorboard_logger import TensorBoardLogger
from graphcaps.training.trainer import EpochEnd, Trainer, TrainingError

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
