"""Reconstruction of the adjacency from products of node vectors."""
