"""Projection of standardised features, read from the store."""
