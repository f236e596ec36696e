"""Structures that a model precomputes from each graph: coarser levels and further node columns."""
