"""Running out of memory, told in a sentence that says what to lower."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from graphcaps.engine.config import RunConfig
from graphcaps.engine.step import TrainingError
from graphcaps.registry import MODELS

__all__ = ["OutOfMemoryError", "explain_memory", "is_out_of_memory"]

# How torch's allocator of host memory says it; there is no class for it.
_SIGNS = ("not enough memory", "can't allocate memory", "out of memory")
# What the memory of a step grows with, by model argument.
_SIZES = ("num_capsules", "capsule_dim", "hidden")


class OutOfMemoryError(TrainingError):
    """A step that needs more memory than there is."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that the device or the host has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


@contextmanager
def explain_memory(config: RunConfig, device: str | torch.device = "cpu") -> Iterator[None]:
    """Turns running out of memory inside the block into an :class:`OutOfMemoryError` that names what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        where = "GPU" if torch.device(device).type == "cuda" else "computer"
        raise OutOfMemoryError(
            f"The {where} ran out of memory: lower the batch size (now {config.training.batch_size})"
            f"{_sizes(config)}, or set max_nodes, which keeps the best connected nodes of large graphs."
        ) from error


def _sizes(config: RunConfig) -> str:
    """``, num_capsules (now 10) or capsule_dim (now 128)``: what the model has of these."""
    parameters = inspect.signature(MODELS[config.model]).parameters
    known: dict[str, Any] = {name: parameters[name].default for name in _SIZES if name in parameters}
    shown = []
    for name, value in (known | {n: v for n, v in config.model_arguments.items() if n in known}).items():
        text = " and ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
        shown.append(f"{name} (now {text})")
    return f", {', '.join(shown)}" if shown else ""
