"""Models, one file each, and their contract. The file of a model is imported when the model is looked up."""

from graphcaps.models.classical import ClassicalModel, RawInput, ValidationGraphs
from graphcaps.models.lookup import (
    ListedModel,
    find_classical_model,
    find_graph_model,
    find_model,
    is_classical,
    list_models,
    model_names,
)
from graphcaps.nn.graph_model import GraphModel
from graphcaps.registry import MODELS, Choices, DataOption, DatasetSize, Interval, RegisteredModel, ScoreKind
from graphcaps.types import GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = [
    "MODELS",
    "Choices",
    "ClassicalModel",
    "DataOption",
    "DatasetSize",
    "GraphBatch",
    "GraphModel",
    "Interval",
    "ListedModel",
    "LossOptions",
    "LossTerms",
    "ModelOutput",
    "RawInput",
    "RegisteredModel",
    "ScoreKind",
    "ValidationGraphs",
    "find_classical_model",
    "find_graph_model",
    "find_model",
    "is_classical",
    "list_models",
    "model_names",
]
