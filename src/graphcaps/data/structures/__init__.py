"""What models precompute from each graph: cliques, spectral clusters and bases on them, and receptive fields."""
