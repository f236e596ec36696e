"""Code of each graph in the adjacency decoder."""
