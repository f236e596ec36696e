"""Fused kernels (Triton) behind the ops of the same meaning; the torch forms stay beside them as their oracle.

A kernel never asks the host: its grid follows from shapes alone, loops inside read their bounds on the device,
and sums are taken in a fixed order. So a step made of them can be captured, and repeated bit by bit.
"""

from graphcaps.ops.kernels.precision import Precision, dot_precision, precision, products_in
from graphcaps.ops.kernels.serving import have_triton, kernels_serve, kernels_wanted

__all__ = [
    "Precision",
    "dot_precision",
    "have_triton",
    "kernels_serve",
    "kernels_wanted",
    "precision",
    "products_in",
]
