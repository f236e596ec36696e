"""Explanations of HGCN predictions: capsule hierarchy, node scores, metrics, drawings and the report page."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphcaps.explanation.capsule_description import CapsuleCard, CapsuleCards, TypicalGroup, capsule_cards
from graphcaps.explanation.counterfactual import Counterfactual, Counterfactuals
from graphcaps.explanation.counterfactual_search import counterfactuals, find_counterfactuals
from graphcaps.explanation.explainer import explain, explain_store
from graphcaps.explanation.explanation import ExplainedLevel, Explanation, StoreExplanation
from graphcaps.explanation.partition_drawing import draw_parts

if TYPE_CHECKING:
    from graphcaps.explanation.explanation_metrics import evaluate_explanations, explanation_stability
    from graphcaps.explanation.pyg_explainer import CapsuleExplainer, GraphProbabilities

# Imported on first use: torch-geometric's explainers take a second to load.
_LATE = {
    "CapsuleExplainer": "pyg_explainer",
    "GraphProbabilities": "pyg_explainer",
    "evaluate_explanations": "explanation_metrics",
    "explanation_stability": "explanation_metrics",
}

__all__ = [
    "CapsuleCard",
    "CapsuleCards",
    "CapsuleExplainer",
    "Counterfactual",
    "Counterfactuals",
    "ExplainedLevel",
    "Explanation",
    "GraphProbabilities",
    "StoreExplanation",
    "TypicalGroup",
    "capsule_cards",
    "counterfactuals",
    "draw_parts",
    "evaluate_explanations",
    "explain",
    "explain_store",
    "explanation_stability",
    "find_counterfactuals",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"graphcaps.explanation.{_LATE[name]}"), name)
    raise AttributeError(f"module 'graphcaps.explanation' has no attribute '{name}'")
