"""Graphs in: data sets, files, other libraries' objects, input columns, folds."""

from graphcaps.data.cap import CappedStore, cap_nodes
from graphcaps.data.convert_networkx import from_networkx, to_networkx
from graphcaps.data.convert_pyg import from_pyg, to_pyg
from graphcaps.data.datasets import load_dataset, open_dataset
from graphcaps.data.duplicates import find_duplicates
from graphcaps.data.examination import examine_with_copies
from graphcaps.data.features import FeatureRecipe
from graphcaps.data.group_folds import group_folds
from graphcaps.data.molecules import from_smiles
from graphcaps.data.planted import planted_parts
from graphcaps.data.prepare import Prepared, prepare
from graphcaps.data.rows import given_split
from graphcaps.data.scaffolds import scaffold_split
from graphcaps.data.splits import Folds, Split, stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.data.tables import read_table
from graphcaps.data.tu import read_tu

__all__ = [
    "CappedStore",
    "FeatureRecipe",
    "Folds",
    "GraphStore",
    "Prepared",
    "Split",
    "cap_nodes",
    "examine_with_copies",
    "find_duplicates",
    "from_networkx",
    "from_pyg",
    "from_smiles",
    "given_split",
    "group_folds",
    "load_dataset",
    "open_dataset",
    "planted_parts",
    "prepare",
    "read_table",
    "read_tu",
    "scaffold_split",
    "stratified_folds",
    "to_networkx",
    "to_pyg",
]
