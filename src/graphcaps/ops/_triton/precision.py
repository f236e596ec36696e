"""How finely the kernels multiply; sums and everything beside products stay float32."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import get_args

from graphcaps.errors import ArgumentError
from graphcaps.types import Precision

__all__ = ["DEFAULT_PRECISION", "Precision", "current_precision", "dot_precision", "use_precision"]

_SETTING = "GRAPHCAPS_PRECISION"
DEFAULT_PRECISION: Precision = "float32"
"""What is taken where nothing was asked for."""
# float32 as three products of its rounded halves on the tensor cores: close to float32, and faster.
_DOT = {"float32": "tf32x3", "tf32": "tf32", "bf16": "bf16"}

_chosen: ContextVar[Precision | None] = ContextVar("precision", default=None)


def _checked(value: str, name: str) -> Precision:
    for known in get_args(Precision):
        if value == known:
            found: Precision = known
            return found
    raise ArgumentError("kernels", name, f"be one of {', '.join(get_args(Precision))}", repr(value))


@contextmanager
def use_precision(wanted: Precision) -> Iterator[None]:
    """Inside the block kernels multiply in this precision; a backward pass does as its forward pass did.

    The environment variable ``GRAPHCAPS_PRECISION`` sets the same for a whole process, but for trainings, which
    follow their own setting (:class:`graphcaps.training.TrainConfig`).
    """
    token = _chosen.set(_checked(wanted, "precision"))
    try:
        yield
    finally:
        _chosen.reset(token)


def current_precision() -> Precision:
    """The precision of products in force here."""
    return _chosen.get() or _checked(os.environ.get(_SETTING, DEFAULT_PRECISION), _SETTING)


def dot_precision() -> str:
    """The same, as :func:`graphcaps.ops._triton.arithmetic.product` names it: tf32x3, tf32 or bf16."""
    return _DOT[current_precision()]
