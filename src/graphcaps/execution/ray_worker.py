"""What a Ray worker does with a cell: reads its data, trains it, and turns exceptions into text."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from graphcaps.errors import GraphcapsError
from graphcaps.execution.tensor_packing import unpack
from graphcaps.training.memory import OutOfMemoryError, is_out_of_memory
from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["Answer", "execute_cell"]

Answer = tuple[Literal["result", "memory", "error", "bug"], Any]
"""A result, or the text of an exception: out of memory, one that the user can fix, or any other."""

_loaded: dict[str, Any] = {}  # data of the last cell by name: the next one often has the same


def execute_cell(payload: bytes, name: str, data: bytes, arrays: Sequence[np.ndarray]) -> Answer:
    """Trains a cell with one thread.

    Args:
        payload (bytes): The pickled cell without its data.
        name (str): Name of the data, different for different data.
        data (bytes): The data, from :func:`graphcaps.execution.tensor_packing.pack`.
        arrays (sequence): The large tensors of the data.
    """
    torch.set_num_threads(1)  # which the local training uses in each of its processes
    try:
        if name not in _loaded:
            _loaded.clear()
            _loaded[name] = unpack(data, arrays)
        return "result", replace(pickle.loads(payload), data=_loaded[name]).run(_ignore)
    except Exception as error:  # a model may raise anything, and not every exception can be pickled
        if isinstance(error, OutOfMemoryError) or is_out_of_memory(error):
            return "memory", str(error)
        if isinstance(error, GraphcapsError):
            return "error", str(error)
        return "bug", "".join(traceback.format_exception(error))


def _ignore(event: EpochEnd) -> None:
    """Epochs of a worker are not followed."""
