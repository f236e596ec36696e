"""Writes the Markdown pages that show stored results: ``python -m benchmarks.pages``, or ``make pages``."""
