"""Conversion between graph stores and the graphs of other libraries."""
