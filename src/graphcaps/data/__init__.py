"""Graph data: data sets, readers, conversion, input columns, splits and quality reports.

Public names are imported on first use: a command that reads a data set does not wait for the readers of all formats.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcaps.data.coercion import GraphInput, coerce
    from graphcaps.data.convert.networkx_graphs import from_networkx, to_networkx
    from graphcaps.data.convert.pyg_graphs import from_pyg, to_pyg
    from graphcaps.data.datasets.loading import load_dataset, open_dataset
    from graphcaps.data.datasets.planted_parts import planted_parts
    from graphcaps.data.features.encoding import EncodedGraphs, encode_graphs
    from graphcaps.data.features.recipe import FeatureRecipe
    from graphcaps.data.features.truncate import TruncatedStore, truncate_nodes
    from graphcaps.data.quality.duplicates import find_duplicates
    from graphcaps.data.quality.quality_report import quality_report
    from graphcaps.data.readers.molecules import from_smiles, read_molecule_table
    from graphcaps.data.readers.tu import read_tu
    from graphcaps.data.splits.folds import Folds, Split, group_folds, split_from_names, stratified_folds
    from graphcaps.data.splits.scaffolds import scaffold_split
    from graphcaps.data.splits.seeded_splits import grouped_split, random_split
    from graphcaps.data.store import GraphStore

_NAMES = {
    "EncodedGraphs": "graphcaps.data.features.encoding",
    "FeatureRecipe": "graphcaps.data.features.recipe",
    "Folds": "graphcaps.data.splits.folds",
    "GraphInput": "graphcaps.data.coercion",
    "GraphStore": "graphcaps.data.store",
    "Split": "graphcaps.data.splits.folds",
    "TruncatedStore": "graphcaps.data.features.truncate",
    "coerce": "graphcaps.data.coercion",
    "encode_graphs": "graphcaps.data.features.encoding",
    "find_duplicates": "graphcaps.data.quality.duplicates",
    "from_networkx": "graphcaps.data.convert.networkx_graphs",
    "from_pyg": "graphcaps.data.convert.pyg_graphs",
    "from_smiles": "graphcaps.data.readers.molecules",
    "group_folds": "graphcaps.data.splits.folds",
    "grouped_split": "graphcaps.data.splits.seeded_splits",
    "load_dataset": "graphcaps.data.datasets.loading",
    "open_dataset": "graphcaps.data.datasets.loading",
    "planted_parts": "graphcaps.data.datasets.planted_parts",
    "quality_report": "graphcaps.data.quality.quality_report",
    "random_split": "graphcaps.data.splits.seeded_splits",
    "read_molecule_table": "graphcaps.data.readers.molecules",
    "read_tu": "graphcaps.data.readers.tu",
    "scaffold_split": "graphcaps.data.splits.scaffolds",
    "split_from_names": "graphcaps.data.splits.folds",
    "stratified_folds": "graphcaps.data.splits.folds",
    "to_networkx": "graphcaps.data.convert.networkx_graphs",
    "to_pyg": "graphcaps.data.convert.pyg_graphs",
    "truncate_nodes": "graphcaps.data.features.truncate",
}

__all__ = [
    "EncodedGraphs",
    "FeatureRecipe",
    "Folds",
    "GraphInput",
    "GraphStore",
    "Split",
    "TruncatedStore",
    "coerce",
    "encode_graphs",
    "find_duplicates",
    "from_networkx",
    "from_pyg",
    "from_smiles",
    "group_folds",
    "grouped_split",
    "load_dataset",
    "open_dataset",
    "planted_parts",
    "quality_report",
    "random_split",
    "read_molecule_table",
    "read_tu",
    "scaffold_split",
    "split_from_names",
    "stratified_folds",
    "to_networkx",
    "to_pyg",
    "truncate_nodes",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'graphcaps.data' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
