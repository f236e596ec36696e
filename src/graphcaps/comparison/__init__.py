"""Comparison: several models on the same folds, with paired tests, ranks, a picture and a page."""

from graphcaps.comparison.comparison import Comparison, ComparisonCell
from graphcaps.comparison.runner import CellProgress, compare

__all__ = ["CellProgress", "Comparison", "ComparisonCell", "compare"]
