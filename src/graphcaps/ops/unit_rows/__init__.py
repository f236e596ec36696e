"""Rows scaled to length 1."""
