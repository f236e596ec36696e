"""batch_layout."""
