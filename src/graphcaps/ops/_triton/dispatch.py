"""Where the kernels serve, and how to leave them out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError

__all__ = ["KernelMode", "have_triton", "kernels_serve", "kernels_wanted"]

KernelMode = Literal["auto", "off", "always"]
_SETTING, _MODES = "GRAPHCAPS_KERNELS", get_args(KernelMode)


def _checked(mode: str, name: str) -> str:
    if mode not in _MODES:
        raise ArgumentError("kernels", name, f"be one of {', '.join(_MODES)}", repr(mode))
    return mode


_mode: ContextVar[str | None] = ContextVar("kernels", default=None)


@cache
def have_triton() -> bool:
    """Whether Triton can be imported; looked up once, imported only where a kernel runs."""
    return find_spec("triton") is not None


@contextmanager
def kernels_wanted(mode: KernelMode) -> Iterator[None]:
    """Inside the block, ``"off"`` leaves the kernels out; ``"always"`` takes them on a CPU too, interpreted.

    The environment variable ``GRAPHCAPS_KERNELS`` sets the same for a whole process. ``"always"`` needs
    ``TRITON_INTERPRET=1`` and is for tests: it is very slow.
    """
    token = _mode.set(_checked(mode, "mode"))
    try:
        yield
    finally:
        _mode.reset(token)


def kernels_serve(*tensors: Tensor | None) -> bool:
    """Whether kernels compute on these tensors: float32 (or whole numbers), on a GPU, with Triton there."""
    mode = _mode.get() or _checked(os.environ.get(_SETTING, "auto"), _SETTING)
    if mode == "off" or not have_triton():
        return False
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            return False
        if tensor.device.type != "cuda" and mode != "always":
            return False
    return True
