"""Sums of metrics over an epoch."""
