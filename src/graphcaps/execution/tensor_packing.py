"""Objects with large tensors as a pickle without them and the tensors as arrays, which processes can share.

Ray keeps arrays in memory that all processes of a node read without a copy. It would copy a tensor.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["SHARED_BYTES", "pack", "unpack"]

SHARED_BYTES = 2**16
"""Smaller tensors stay in the pickle."""


def pack(value: object, put: Callable[[Tensor], object]) -> tuple[bytes, list[Any]]:
    """The pickle of a value without its large tensors, and what ``put`` returned for each of these.

    Args:
        value (object): What can be pickled.
        put (callable): Called once with each large tensor in host memory.
    """
    buffer = io.BytesIO()
    packer = _Packer(buffer, put)
    packer.dump(value)
    return buffer.getvalue(), packer.put_tensors


def unpack(payload: bytes, arrays: Sequence[np.ndarray]) -> Any:
    """The value that :func:`pack` packed. Its large tensors share the memory of the arrays and must not be changed.

    Args:
        payload (bytes): The pickle.
        arrays (sequence): The large tensors as arrays, in the order of ``put``.
    """
    return _Unpacker(io.BytesIO(payload), arrays).load()


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, put: Callable[[Tensor], object]) -> None:
        super().__init__(file, protocol=5)
        self._put = put
        self._numbers: dict[int, int] = {}
        self._tensors: list[Tensor] = []  # which keeps their ids in use
        self.put_tensors: list[Any] = []

    def persistent_id(self, obj: object) -> int | None:
        if type(obj) is not Tensor or obj.device.type != "cpu" or obj.is_sparse or obj.requires_grad:
            return None
        if obj.dtype == torch.bfloat16 or obj.numel() * obj.element_size() < SHARED_BYTES:
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self._tensors)
            self._tensors.append(obj)
            self.put_tensors.append(self._put(obj))
        return self._numbers[id(obj)]


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(file)
        with warnings.catch_warnings():
            # The arrays are read-only, which torch cannot express.
            warnings.simplefilter("ignore", UserWarning)
            self._tensors = [torch.from_numpy(array) for array in arrays]

    def persistent_load(self, pid: Any) -> Tensor:
        return self._tensors[pid]
