"""graphcaps: classify whole graphs with Hierarchical Graph Capsule Networks, and see why.

Public names are imported on first use, so that ``graphcaps --help`` does not wait for torch.
"""

from __future__ import annotations

from graphcaps._io.lazy_names import lazy_names

TYPE_CHECKING = False  # as in typing, whose import would take most of the time before Ctrl-C is handled
__version__ = "0.2.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "graphcaps.comparison": ["compare"],
        "graphcaps.data": ["FeatureRecipe", "GraphStore", "load_dataset", "stratified_folds"],
        "graphcaps.errors": ["GraphcapsError"],
        "graphcaps.estimator": ["HGCNClassifier"],
        "graphcaps.evaluation": ["Ledger", "cross_validate"],
        "graphcaps.explanation": ["Explanation", "explain"],
        "graphcaps.inference.fitted_model": ["FittedModel"],
        "graphcaps.inference.model_file": ["load"],
        "graphcaps.search": ["tune"],
    },
    submodules=["data", "models", "nn", "ops", "testing"],
)

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
    from graphcaps.comparison import compare
    from graphcaps.data import FeatureRecipe, GraphStore, load_dataset, stratified_folds
    from graphcaps.errors import GraphcapsError
    from graphcaps.estimator import HGCNClassifier
    from graphcaps.evaluation import Ledger, cross_validate
    from graphcaps.explanation import Explanation, explain
    from graphcaps.inference.fitted_model import FittedModel
    from graphcaps.inference.model_file import load
    from graphcaps.search import tune
