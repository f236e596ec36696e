"""Arrays of a state are checked where they are read."""

from __future__ import annotations

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.models.state_arrays import read_floats, read_integers, split_state

STATE = {"a": torch.arange(3), "b": torch.ones(2, 3, dtype=torch.float64)}


def test_arrays_are_read_as_they_are():
    assert read_integers(STATE, "a", "Model").tolist() == [0, 1, 2]
    assert read_floats(STATE, "b", "Model", (2, -1)).tolist() == [[1.0] * 3] * 2
    assert split_state(STATE, ("b", "c")) == ({"b": STATE["b"]}, {"a": STATE["a"]})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "Model: 'b' must be 2 axes of 64-bit floating-point numbers, got no such array"),
        ({"b": torch.ones(2, 3)}, r"floating-point numbers, got torch.float32 \[2, 3\]"),
        ({"b": STATE["b"].T}, r"'b' must have the shape \[2, any\], got \[3, 2\]"),
        ({"b": STATE["b"] * float("nan")}, "'b' must be finite, got NaN or infinity"),
    ],
)
def test_other_arrays_are_refused(state, message):
    with pytest.raises(ArgumentError, match=message):
        read_floats(state, "b", "Model", (2, -1))
