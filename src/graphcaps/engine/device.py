"""Where to compute."""

from __future__ import annotations

import os

import torch

from graphcaps.errors import ArgumentError

__all__ = ["choose_device", "memory_of"]


def choose_device(name: str, owner: str = "device") -> torch.device:
    """``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU where there is one.

    Args:
        name (str): What was asked for.
        owner (str): Who asks, for messages.
    """
    if name not in ("cpu", "cuda", "auto"):
        raise ArgumentError(owner, "device", "be cpu, cuda or auto", repr(name))
    if name == "cuda" and not torch.cuda.is_available():
        raise ArgumentError(owner, "device", "be one that is here", "cuda without a GPU", "Take cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory of a GPU, or of this computer where the system tells it."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # systems without these names
        return None
