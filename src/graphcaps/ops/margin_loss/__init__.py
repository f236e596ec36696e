"""Margin loss on class capsules."""
