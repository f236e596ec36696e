"""batch_norm."""
