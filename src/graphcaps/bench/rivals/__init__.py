"""rivals."""
