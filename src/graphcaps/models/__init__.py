"""Models, one file each, and their contract. Every file of this folder is imported when a model is looked up."""

from graphcaps.models.lookup import find_graph_model, find_model, model_names
from graphcaps.nn.graph_model import GraphModel
from graphcaps.registry import MODELS, Choices, DataOption, DatasetSize, Interval, RegisteredModel, ScoreKind
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = [
    "MODELS",
    "Choices",
    "DataOption",
    "DatasetSize",
    "GraphBatch",
    "GraphModel",
    "Interval",
    "LossOptions",
    "LossTerms",
    "ModelOutput",
    "RegisteredModel",
    "ScoreKind",
    "find_graph_model",
    "find_model",
    "model_names",
]
