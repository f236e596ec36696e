"""Which parts a decision was made from: the hierarchy found, measures of it, and pictures."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphcaps.explanation.drawings import draw_parts
from graphcaps.explanation.explaining import explain, explain_store
from graphcaps.explanation.hierarchy import NodeParts, node_parts
from graphcaps.explanation.types import ExplainedLevel, Explanation, StoreExplanation

if TYPE_CHECKING:
    from graphcaps.explanation.measures import measure, stability
    from graphcaps.explanation.plug import CapsuleExplainer, GraphProbabilities

# Imported on first use: torch-geometric's explainers take a second to load.
_LATE = {
    "CapsuleExplainer": "plug",
    "GraphProbabilities": "plug",
    "measure": "measures",
    "stability": "measures",
}

__all__ = [
    "CapsuleExplainer",
    "ExplainedLevel",
    "Explanation",
    "GraphProbabilities",
    "NodeParts",
    "StoreExplanation",
    "draw_parts",
    "explain",
    "explain_store",
    "measure",
    "node_parts",
    "stability",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"graphcaps.explanation.{_LATE[name]}"), name)
    raise AttributeError(f"module 'graphcaps.explanation' has no attribute '{name}'")
