"""_triton."""
