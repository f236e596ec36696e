"""graphcaps: classify whole graphs with Hierarchical Graph Capsule Networks, and see why.

Public names are imported on first use, so that ``graphcaps --help`` does not wait for torch.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as in typing, whose import would take most of the time before Ctrl-C is handled
__version__ = "0.2.0"

_MODULES = ("data", "models", "nn", "ops", "testing")
_NAMES = {
    "Explanation": "graphcaps.explanation",
    "FeatureRecipe": "graphcaps.data",
    "FittedModel": "graphcaps.inference.fitted_model",
    "GraphStore": "graphcaps.data",
    "GraphcapsError": "graphcaps.errors",
    "HGCNClassifier": "graphcaps.estimator",
    "Ledger": "graphcaps.evaluation",
    "compare": "graphcaps.comparison",
    "cross_validate": "graphcaps.evaluation",
    "explain": "graphcaps.explanation",
    "load": "graphcaps.inference.fitted_model",
    "load_dataset": "graphcaps.data",
    "stratified_folds": "graphcaps.data",
    "tune": "graphcaps.search",
}

__all__ = [
    "Explanation",
    "FeatureRecipe",
    "FittedModel",
    "GraphStore",
    "GraphcapsError",
    "HGCNClassifier",
    "Ledger",
    "compare",
    "cross_validate",
    "data",
    "explain",
    "load",
    "load_dataset",
    "models",
    "nn",
    "ops",
    "stratified_folds",
    "testing",
    "tune",
]

if TYPE_CHECKING:
    from typing import Any

    from graphcaps.comparison import compare
    from graphcaps.data import FeatureRecipe, GraphStore, load_dataset, stratified_folds
    from graphcaps.errors import GraphcapsError
    from graphcaps.estimator import HGCNClassifier
    from graphcaps.evaluation import Ledger, cross_validate
    from graphcaps.explanation import Explanation, explain
    from graphcaps.inference.fitted_model import FittedModel, load
    from graphcaps.search import tune


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"graphcaps.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'graphcaps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
