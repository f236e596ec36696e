"""SHA-256 of tensors, independent of the width of their type and of their device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["digest_tensors"]


def digest_tensors(tensors: Sequence[Tensor | None], text: str = "") -> str:
    """SHA-256 of a text, and of values and shapes of tensors; the width of integers and floats does not matter."""
    digest = hashlib.sha256(text.encode("utf-8"))
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none;")
            continue
        kind = "<f8" if tensor.is_floating_point() else "<i8"
        digest.update(f"{kind}{list(tensor.shape)};".encode())
        flat = tensor.detach().cpu().reshape(-1)
        for piece in torch.split(flat, 1 << 22):  # in pieces, so that no 64-bit copy of a large store is held
            digest.update(np.ascontiguousarray(piece.numpy().astype(kind)).data)
    return digest.hexdigest()
