"""Batch normalisation over ragged rows."""
