"""Operations that keep their precision inside ``torch.autocast``.

Autocast computes products of matrices in bfloat16 or float16. That is right for projections of features
(:func:`graphcaps.ops.linear.matmul_rows`, layers of torch). Sums over neighbours and graphs, statistics, routing and
losses add many small terms and would lose digits, and sparse products and Triton kernels have no such form. These
operations run in float32, as torch's own normalisations and losses do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = ["autocast_enabled", "full_precision"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_SINGLE_BYTES = 4  # size of a float32


def full_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator: inside autocast, floating-point arguments become at least float32, and autocast is off in the call.

    Outside autocast nothing changes. The device is that of the first tensor among the positional arguments.
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        tensor = next((value for value in args if isinstance(value, Tensor)), None)
        if tensor is None or not autocast_enabled(tensor):
            return function(*args, **kwargs)
        wide = [_widen(value) for value in args]
        with torch.autocast(tensor.device.type, enabled=False):
            return function(*wide, **{name: _widen(value) for name, value in kwargs.items()})  # type: ignore[arg-type]

    return call


def autocast_enabled(tensor: Tensor) -> bool:
    """Whether autocast is on for the device of the tensor."""
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)  # not on "meta"


def _widen(value: object) -> object:
    """A floating-point tensor in at least float32; other values as they are."""
    if isinstance(value, Tensor) and value.is_floating_point() and value.element_size() < _SINGLE_BYTES:
        return value.float()
    return value
