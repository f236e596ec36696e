"""Graph data: data sets, readers, conversion, input columns, splits and quality reports.

Public names are imported on first use: a command that reads a data set does not wait for the readers of all formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcaps._io.lazy_names import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "graphcaps.data.coercion": ["GraphInput", "coerce"],
        "graphcaps.data.convert.networkx_graphs": ["from_networkx", "to_networkx"],
        "graphcaps.data.convert.pyg_graphs": ["from_pyg", "to_pyg"],
        "graphcaps.data.datasets.loading": ["load_dataset", "open_dataset"],
        "graphcaps.data.datasets.planted_parts": ["planted_parts"],
        "graphcaps.data.features.encoding": ["EncodedGraphs", "encode_graphs"],
        "graphcaps.data.features.recipe": ["FeatureRecipe"],
        "graphcaps.data.features.truncate": ["TruncatedStore", "truncate_nodes"],
        "graphcaps.data.quality.duplicates": ["find_duplicates"],
        "graphcaps.data.quality.quality_report": ["quality_report"],
        "graphcaps.data.readers.molecules": ["from_smiles", "read_molecule_table"],
        "graphcaps.data.readers.tu": ["read_tu"],
        "graphcaps.data.splits.folds": [
            "Folds",
            "Split",
            "group_folds",
            "split_from_names",
            "stratified_folds",
        ],
        "graphcaps.data.splits.scaffolds": ["scaffold_split"],
        "graphcaps.data.splits.seeded_splits": ["grouped_split", "random_split"],
        "graphcaps.data.store": ["GraphStore"],
    },
)

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
