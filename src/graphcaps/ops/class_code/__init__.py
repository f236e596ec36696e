"""class_code."""
