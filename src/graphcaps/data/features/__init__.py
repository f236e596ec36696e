"""Input columns of a model: the recipe, encoding, compatibility checks and truncation."""
