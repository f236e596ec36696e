"""What ``torch.compile`` traces, and what it leaves to Python.

Operations are traced in their torch form. Two things are left out of the trace, and each is a graph break: the check
and conversion of a batch (:mod:`graphcaps.nn.collate`), whose results depend on values of tensors; and the
reconstruction loss, which computes its value and gradient in one pass, in linear memory.
Sums of rows by an index are in the trace, but on a CPU they are not compiled (:mod:`graphcaps.ops.row_sums`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

__all__ = ["is_traced", "untraced"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def is_traced() -> bool:
    """Whether ``torch.compile`` traces the caller; ``torch.export`` without it does not count."""
    return torch.compiler.is_dynamo_compiling()


def untraced(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorator: ``torch.compile`` runs the function as it is, between two graphs.

    The decorator of torch would import the compiler, which takes seconds, when this package is imported.
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not is_traced():
            return function(*args, **kwargs)
        result: Result = torch.compiler.disable(function)(*args, **kwargs)
        return result

    return call
