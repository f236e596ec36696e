"""lengths."""
