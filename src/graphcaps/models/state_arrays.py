"""Reads single arrays of the state of a classical model, with checks of their type and shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.errors import ArgumentError

__all__ = ["read_floats", "read_integers", "split_state"]


def read_integers(state: Mapping[str, Tensor], name: str, owner: str) -> NDArray[np.int64]:
    """One axis of 64-bit integers.

    Args:
        state (mapping): Arrays by name.
        name (str): Name of the array.
        owner (str): Name of the model, for messages.

    Raises:
        ArgumentError: If there is no such array, or it has another type or shape.
    """
    values: NDArray[np.int64] = _read(state, name, owner, np.dtype(np.int64), 1)
    return values


def read_floats(
    state: Mapping[str, Tensor], name: str, owner: str, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """An array of finite float64 numbers.

    Args:
        state, name, owner: As in :func:`read_integers`.
        shape (tuple): Shape of the array; −1 for an axis of any length.

    Raises:
        ArgumentError: If there is no such array, it has another type or shape, or a number is not finite.
    """
    values: NDArray[np.float64] = _read(state, name, owner, np.dtype(np.float64), len(shape))
    if any(length not in (-1, actual) for length, actual in zip(shape, values.shape, strict=True)):
        expected = f"have the shape {['any' if length == -1 else length for length in shape]}"
        raise ArgumentError(owner, name, expected.replace("'", ""), list(values.shape))
    if not np.isfinite(values).all():
        raise ArgumentError(owner, name, "be finite", "NaN or infinity")
    return values


def split_state(
    state: Mapping[str, Tensor], names: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The arrays of these names, as far as there are such, and the other arrays."""
    chosen = {name: value for name, value in state.items() if name in names}
    return chosen, {name: value for name, value in state.items() if name not in names}


def _read(
    state: Mapping[str, Tensor],
    name: str,
    owner: str,
    dtype: np.dtype[np.int64] | np.dtype[np.float64],
    axes: int,
) -> NDArray:
    tensor = state.get(name)
    array = None if tensor is None else tensor.cpu().numpy()
    if array is None or array.dtype != dtype or array.ndim != axes:
        number = "one axis" if axes == 1 else f"{axes} axes"
        kind = "64-bit integers" if dtype == np.int64 else "64-bit floating-point numbers"
        got = "no such array" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
        raise ArgumentError(owner, name, f"be {number} of {kind}", got)
    return array
