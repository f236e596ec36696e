"""Propagation along edges."""
