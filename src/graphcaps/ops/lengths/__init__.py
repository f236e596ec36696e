"""Lengths of capsules."""
