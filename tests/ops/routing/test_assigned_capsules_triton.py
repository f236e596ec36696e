"""Capsules of a given assignment by kernels are those of the torch form in float64, with every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from graphcaps.ops.routing.iterations import capsules_of_assignment
from graphcaps.types import Segments
from tests.ops.ragged_rows import SIZES, assert_close, moved, poisoned, rows

ROUNDED: dict[Precision, float] = {"tf32": 5e-3, "bf16": 4e-2}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _inputs(segments: Segments, J: int, d: int, e: int, residual: bool) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    lead = segments.index.shape[:-1]
    padding = (segments.index >= segments.num_graphs).unsqueeze(-1)
    c = torch.rand(*segments.index.shape, J, generator=generator).softmax(-1).masked_fill(padding, 0)
    inputs = {
        "h": poisoned(segments, d),
        "weight": torch.randn(*lead, J, d, e, generator=generator) / d**0.5,
        "bias": torch.randn(*lead, J, e, generator=generator) / e**0.5,
        "assignment": c,
    }
    if residual:
        inputs["residual"] = torch.randn(*lead, segments.num_graphs, 1, e, generator=generator) / e**0.5
    return inputs


def _outcome(
    inputs: dict[str, Tensor], segments: Segments, epsilon: float, like: Tensor
) -> dict[str, Tensor]:
    leaves = {name: value.to(like).clone().requires_grad_() for name, value in inputs.items()}
    u = capsules_of_assignment(
        leaves["h"], leaves["weight"], leaves["bias"], segments, leaves["assignment"],
        leaves.get("residual"), epsilon,
    )  # fmt: skip
    grad = torch.linspace(-1, 2, u.numel(), dtype=torch.float64).cos().to(like).reshape(u.shape)
    (u * grad).sum().backward()
    return {"capsules": u.detach()} | {f"grad {name}": leaf.grad for name, leaf in leaves.items()}  # type: ignore[dict-item]


def _both(
    segments: Segments, inputs: dict[str, Tensor], epsilon: float, device: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    clean = inputs | {"h": inputs["h"].nan_to_num(0.0)}
    expected = _outcome(clean, segments, epsilon, torch.zeros((), dtype=torch.float64))
    with use_kernels("always"):
        actual = _outcome(inputs, moved(segments, device), epsilon, torch.zeros((), device=device))
    # The torch form gives padding rows of the assignment a gradient, which no one reads; the kernel writes 0.
    padding = (segments.index >= segments.num_graphs).unsqueeze(-1)
    expected["grad assignment"] = expected["grad assignment"].masked_fill(padding, 0)
    return actual, expected


@pytest.mark.parametrize(
    ("sizes", "J", "d", "e", "residual", "epsilon"),
    [
        (SIZES, 5, 12, 20, True, 1e-7),
        (SIZES, 3, 32, 32, False, 0.0),
        ([[0, 33]], 20, 128, 128, True, 1e-7),
        ([[2] * 18], 3, 128, 100, True, 1e-7),
        ([[17, 3]], 40, 100, 8, False, 1e-7),  # two blocks of columns
    ],
)
def test_kernel_is_torch(
    kernel_device: str, sizes: list[list[int]], J: int, d: int, e: int, residual: bool, epsilon: float
) -> None:
    """Empty graphs, padding rows that hold NaN, and a replica of nothing else."""
    segments = rows(sizes)
    actual, expected = _both(segments, _inputs(segments, J, d, e, residual), epsilon, kernel_device)
    for name, value in expected.items():
        assert_close(actual[name], value, name)
    outside = (segments.index >= segments.num_graphs).unsqueeze(-1)
    for name in ("grad h", "grad assignment"):
        assert bool((actual[name].cpu().masked_select(outside) == 0).all()), name


def test_large_graphs_are_cut(kernel_device: str) -> None:
    from graphcaps.ops.ragged.ragged_triton import CHUNK

    segments = rows([[2, 2 * CHUNK + 9, 0], [CHUNK, 1, CHUNK + 1]], bound=3 * CHUNK + 1)
    inputs = _inputs(segments, 3, 8, 8, True)
    inputs["h"] = inputs["h"] / CHUNK  # sums of a thousand rows stay where squash bends
    inputs["assignment"] = inputs["assignment"] / CHUNK
    actual, expected = _both(segments, inputs, 1e-7, kernel_device)
    for name, value in expected.items():
        assert_close(actual[name], value, name)


@pytest.mark.parametrize("precision", list(ROUNDED))
def test_rounded_products(kernel_device: str, precision: Precision) -> None:
    segments = rows([[5] * 20])
    with use_precision(precision):
        actual, expected = _both(segments, _inputs(segments, 6, 48, 32, True), 1e-7, kernel_device)
    for name, value in expected.items():
        error = float((actual[name].cpu().double() - value).abs().max() / value.abs().max())
        assert error <= ROUNDED[precision], name


def test_the_kernel_is_what_runs(kernel_device: str) -> None:
    segments = moved(rows([[3, 2]]), kernel_device)
    inputs = {name: x.to(kernel_device) for name, x in _inputs(rows([[3, 2]]), 2, 8, 8, False).items()}
    with use_kernels("always"):
        u = capsules_of_assignment(
            inputs["h"].requires_grad_(), inputs["weight"], inputs["bias"], segments, inputs["assignment"]
        )
    assert u.grad_fn is not None
    names = [type(u.grad_fn).__name__, type(u.grad_fn.next_functions[0][0]).__name__]
    assert any("_Capsules" in name for name in names)
