"""Shared by all Triton kernels: dispatch, precision, tiling, arithmetic."""
