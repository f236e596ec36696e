"""epoch_metrics."""
