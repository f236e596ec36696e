"""Precision of matrix products in kernels; sums and all other operations stay float32."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import get_args

from graphcaps.errors import ArgumentError
from graphcaps.types import Precision

__all__ = ["DEFAULT_PRECISION", "Precision", "current_precision", "dot_precision", "use_precision"]

_VARIABLE = "GRAPHCAPS_PRECISION"
DEFAULT_PRECISION: Precision = "float32"
"""Used if nothing else is set."""
# float32 is computed as three TF32 products on the tensor cores: close to float32, and faster. No name is that of a
# type of Triton ("bf16" is one): kernels that are compiled before their launch would get the type in its place.
_DOT = {"float32": "tf32x3", "tf32": "tf32", "bf16": "bfloat16"}

_precision: ContextVar[Precision | None] = ContextVar("precision", default=None)


def _checked(value: str, name: str) -> Precision:
    for allowed in get_args(Precision):
        if value == allowed:
            checked: Precision = allowed
            return checked
    raise ArgumentError("kernels", name, f"be one of {', '.join(get_args(Precision))}", repr(value))


@contextmanager
def use_precision(precision: Precision) -> Iterator[None]:
    """Sets the precision of products inside the block; a backward pass uses that of its forward pass.

    The environment variable ``GRAPHCAPS_PRECISION`` sets it for a whole process, except for training, which has its
    own option (:class:`graphcaps.training.TrainConfig`).
    """
    token = _precision.set(_checked(precision, "precision"))
    try:
        yield
    finally:
        _precision.reset(token)


def current_precision() -> Precision:
    """The precision of products that is set now."""
    return _precision.get() or _checked(os.environ.get(_VARIABLE, DEFAULT_PRECISION), _VARIABLE)


def dot_precision() -> str:
    """The same as :func:`graphcaps.ops._triton.arithmetic.product` takes it: tf32x3, tf32 or bfloat16."""
    return _DOT[current_precision()]
