"""Options of a model that may be one number per replica."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError

__all__ = ["set_margins", "set_replica_number"]


def set_replica_number(module: nn.Module, name: str, value: float | Tensor) -> None:
    """Sets an attribute of a module: a number as it is, one number per replica ``[*lead]`` as a buffer.

    The buffer moves with the module and is not part of its state, as a number is not.
    """
    if isinstance(value, Tensor):
        module.register_buffer(name, value, persistent=False)
    else:
        setattr(module, name, value)


def set_margins(module: nn.Module, upper: float | Tensor, lower: float | Tensor) -> None:
    """Sets ``upper_margin`` and ``lower_margin`` of a module: two numbers, or two tensors of one number per replica.

    Raises:
        ArgumentError: Unless 0 ≤ lower < upper ≤ 1, for every replica.
    """
    owner = type(module).__name__
    if isinstance(lower, Tensor) and not isinstance(upper, Tensor):
        upper = torch.full_like(lower, upper)
    elif isinstance(upper, Tensor) and not isinstance(lower, Tensor):
        lower = torch.full_like(upper, lower)
    set_replica_number(module, "upper_margin", upper)
    set_replica_number(module, "lower_margin", lower)
    pairs = zip(*(m.tolist() if isinstance(m, Tensor) else [m] for m in (upper, lower)), strict=True)
    for high, low in pairs:
        if not 0 <= low < high:
            raise ArgumentError(owner, "lower_margin", f"be at least 0 and below 'upper_margin', {high}", low)
        if high > 1:
            raise ArgumentError(owner, "upper_margin", "be at most 1, the largest length of a capsule", high)
