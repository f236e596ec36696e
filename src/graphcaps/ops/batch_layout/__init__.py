"""Graphs of a store laid out as the rows of a batch."""
