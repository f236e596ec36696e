"""Adam updates of stacked parameters."""
