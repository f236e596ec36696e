"""Graphs in: data sets, files, other libraries' objects, input columns, folds."""

from graphcaps.data.cap import CappedStore, cap_nodes
from graphcaps.data.convert_networkx import from_networkx, to_networkx
from graphcaps.data.convert_pyg import from_pyg, to_pyg
from graphcaps.data.datasets import load_dataset
from graphcaps.data.features import FeatureRecipe
from graphcaps.data.planted import planted_parts
from graphcaps.data.prepare import Prepared, prepare
from graphcaps.data.splits import Folds, Split, stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.data.tu import read_tu

__all__ = [
    "CappedStore",
    "FeatureRecipe",
    "Folds",
    "GraphStore",
    "Prepared",
    "Split",
    "cap_nodes",
    "from_networkx",
    "from_pyg",
    "load_dataset",
    "planted_parts",
    "prepare",
    "read_tu",
    "stratified_folds",
    "to_networkx",
    "to_pyg",
]
