"""Splits: folds, groups of graphs and scaffolds of molecules."""
