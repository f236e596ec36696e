"""Weights of classes in the losses of a training."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["balanced_class_weights"]


def balanced_class_weights(y: Tensor, num_classes: int) -> Tensor:
    """Weights n / (O n_o), ``[O]``: all O classes have the same total weight, and a graph has weight 1 on average."""
    counts = torch.bincount(y.cpu(), minlength=num_classes).double()
    return (y.numel() / (num_classes * counts.clamp_min(1))).float()
