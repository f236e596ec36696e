"""margin_loss."""
