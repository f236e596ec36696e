"""Sums over the rows of each graph of a ragged batch."""
