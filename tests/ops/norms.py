"""Batch normalisation with random parameters and running averages, for the tests of the kernels."""

from __future__ import annotations

import torch

from graphcaps.nn import RaggedBatchNorm


def random_norm(d: int, lead: tuple[int, ...]) -> RaggedBatchNorm:
    """The same norm for the same arguments."""
    torch.manual_seed(0)
    norm = RaggedBatchNorm(d, lead=lead)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            tensor.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    return norm
