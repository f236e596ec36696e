"""Reproduction of the paper: its published results, its presets, and the trainings behind its tables."""

from graphcaps.presets import list_presets, load_preset
from graphcaps.reproduction.published import (
    Hyperparameters,
    PublishedResult,
    Statistics,
    hyperparameters,
    paper_datasets,
    published,
    published_hgcn,
    statistics,
    systems,
    tables,
)

__all__ = [
    "Hyperparameters",
    "PublishedResult",
    "Statistics",
    "hyperparameters",
    "list_presets",
    "load_preset",
    "paper_datasets",
    "published",
    "published_hgcn",
    "statistics",
    "systems",
    "tables",
]
