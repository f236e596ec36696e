"""Linear map, batch normalisation, activation and residual connection of a layer."""
