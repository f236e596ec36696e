"""Routing by kernel with gradient through all iterations, against the factored form in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphcaps.ops import route, route_dense
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from graphcaps.ops.routing import route_dense_factored, route_factored
from graphcaps.types import Routing, Segments
from tests.ops.ragged_rows import SIZES, moved, poisoned, rows

# Share of the largest magnitude, results and gradients after three iterations.
ROUNDED: dict[Precision, float] = {"float32": 5e-5, "tf32": 1e-2, "bf16": 8e-2}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _inputs(h: Tensor, B: int, J: int, e: int, lead: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)

    def make(*shape: int) -> Tensor:
        return torch.randn(*lead, *shape, generator=generator)

    d = h.size(-1)
    return {
        "h": h,
        "weight": make(J, d, e) / d**0.5,
        "bias": make(J, e) / e**0.5,
        "residual": make(B, 1, e) / e**0.5,
    }


def _outcome(
    routing: Callable[[dict[str, Tensor]], Routing],
    inputs: dict[str, Tensor],
    like: Tensor,
    read: tuple[str, ...],
) -> dict[str, Tensor]:
    """Results and gradients; weights that depend on the position, so that no error cancels."""
    leaves = {name: value.detach().to(like).clone().requires_grad_() for name, value in inputs.items()}
    actual = routing(leaves)
    loss = torch.zeros((), dtype=like.dtype, device=like.device)
    for name, value in (("capsules", actual.capsules), ("assignment", actual.assignment)):
        if name in read:
            grad = torch.linspace(-1, 2, value.numel(), dtype=torch.float64).cos().to(like)
            loss = loss + (value * grad.reshape(value.shape)).nansum()
    loss.backward()
    results = {"capsules": actual.capsules.detach(), "assignment": actual.assignment.detach()}
    return results | {f"grad {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


def _compare(
    segments: Segments,
    inputs: dict[str, Tensor],
    R: int,
    epsilon: float,
    device: str,
    read: tuple[str, ...] = ("capsules", "assignment"),
) -> dict[str, Tensor]:
    def exact(leaves: dict[str, Tensor]) -> Routing:
        return route_factored(**_order(leaves, segments, R), detach=False, epsilon=epsilon)

    def by_kernel(leaves: dict[str, Tensor]) -> Routing:
        at = moved(segments, device)
        h, weight, bias = leaves["h"], leaves["weight"], leaves["bias"]
        with use_kernels("always"):
            actual = route(
                h, weight, bias, at, R,
                residual=leaves.get("residual"), detach=False, method="kernel", epsilon=epsilon,
            )  # fmt: skip
        assert "RouteWithGradient" in _function_names(actual.capsules)
        return actual

    clean = inputs | {"h": inputs["h"].nan_to_num(0.0)}
    expected = _outcome(exact, clean, torch.zeros((), dtype=torch.float64), read)
    actual = _outcome(by_kernel, inputs, torch.zeros((), device=device), read)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        _assert_close(actual[name], value, name)
    return actual


def _assert_close(actual: Tensor, expected: Tensor, name: str) -> None:
    """Equal within a share of the largest magnitude, which is larger where products are three of rounded halves."""
    assert actual.shape == expected.shape, name
    scale = max(float(expected.abs().max()), 1e-6)
    error = float((actual.cpu().double() - expected).abs().max()) / scale
    # Processors differ in the order of sums: from 1e-5 to 2.4e-5 of the largest were seen.
    assert error <= (1e-4 if actual.is_cuda else 5e-5), f"{name}: off by {error:.2e}"


def _order(leaves: dict[str, Tensor], segments: Segments, R: int) -> dict[str, object]:
    return {"segments": segments, "iterations": R, "residual": None} | leaves  # type: ignore[return-value]


def _function_names(tensor: Tensor) -> str:
    """The functions that lead to a tensor, up to the second."""
    function = tensor.grad_fn
    names = []
    for _ in range(2):
        if function is not None:
            names.append(type(function).__name__)
            function = function.next_functions[0][0] if function.next_functions else None
    return " ".join(names)


@pytest.mark.parametrize(
    ("sizes", "J", "d", "e", "R", "residual"),
    [
        (SIZES, 1, 8, 8, 3, True),
        (SIZES, 5, 32, 32, 4, False),
        ([[0, 33]], 20, 128, 128, 2, True),
        ([[5, 0]], 32, 20, 12, 3, False),
        ([[17, 3]], 5, 33, 65, 3, True),
        ([[2] * 18], 3, 128, 100, 3, True),  # a full block of graphs as wide as it gets
        ([[17, 3]], 40, 12, 8, 2, True),  # tiles of 64 capsules
    ],
)
def test_kernel_is_factored(
    kernel_device: str, sizes: list[list[int]], J: int, d: int, e: int, R: int, residual: bool
) -> None:
    """Empty graphs, padding rows that hold NaN, and a replica of nothing else."""
    segments = rows(sizes)
    inputs = _inputs(poisoned(segments, d), segments.num_graphs, J, e, (len(sizes),))
    if not residual:
        del inputs["residual"]
    actual = _compare(segments, inputs, R, 1e-7, kernel_device)
    outside = (segments.index >= segments.num_graphs).unsqueeze(-1)
    for name in ("assignment", "grad h"):
        assert bool((actual[name].detach().cpu().masked_select(outside) == 0).all()), name


@pytest.mark.parametrize("read", [("capsules",), ("assignment",)], ids=str)
def test_only_one_of_the_results_is_read(kernel_device: str, read: tuple[str, ...]) -> None:
    """The paper's squash, no leading axis and no padding rows."""
    segments = rows([[33, 3, 7]], spare=0, lead=False)
    inputs = _inputs(poisoned(segments, 20), 3, 6, 16, ())
    del inputs["residual"]
    _compare(segments, inputs, 3, 0.0, kernel_device, read)


def test_large_graphs_are_cut(kernel_device: str) -> None:
    from graphcaps.ops.ragged.ragged_triton import CHUNK

    segments = rows([[2, 2 * CHUNK + 9, 0], [CHUNK, 1, CHUNK + 1]], bound=3 * CHUNK + 1)
    h = poisoned(segments, 8) / CHUNK  # sums of a thousand rows stay where squash bends
    _compare(segments, _inputs(h, 3, 3, 8, (2,)), 3, 1e-7, kernel_device)


@pytest.mark.parametrize(("n", "J", "R", "lead"), [(10, 2, 3, (2,)), (25, 6, 4, ()), (1, 4, 2, ())])
def test_dense(kernel_device: str, n: int, J: int, R: int, lead: tuple[int, ...]) -> None:
    B = 5
    h = torch.randn(*lead, B, n, 16, generator=torch.Generator().manual_seed(1))
    inputs = _inputs(h, B, J, 24, lead)

    def exact(leaves: dict[str, Tensor]) -> Routing:
        return route_dense_factored(
            leaves["h"], leaves["weight"], leaves["bias"], R, leaves["residual"], False
        )

    def by_kernel(leaves: dict[str, Tensor]) -> Routing:
        with use_kernels("always"):
            actual = route_dense(
                leaves["h"], leaves["weight"], leaves["bias"], R, leaves["residual"], detach=False
            )
        assert "RouteWithGradient" in _function_names(actual.capsules)
        return actual

    both = ("capsules", "assignment")
    expected = _outcome(exact, inputs, torch.zeros((), dtype=torch.float64), both)
    actual = _outcome(by_kernel, inputs, torch.zeros((), device=kernel_device), both)
    for name, value in expected.items():
        _assert_close(actual[name], value, name)


@pytest.mark.parametrize("precision", list(ROUNDED))
def test_error_is_within_the_bound_of_the_precision(kernel_device: str, precision: Precision) -> None:
    """Two tiles of graphs to a program, rows wider than a tile of columns."""
    from graphcaps.ops.routing.route_triton import route_triton

    segments = rows([[2] * 33 + [20]])
    generator = torch.Generator().manual_seed(7)
    shapes = {"weight": (1, 2, 112, 80), "bias": (1, 2, 80), "residual": (1, 34, 1, 80)}
    inputs = {"h": poisoned(segments, 112).nan_to_num(0.0)}
    inputs |= {name: torch.randn(shape, generator=generator) / 8 for name, shape in shapes.items()}

    def exact(leaves: dict[str, Tensor]) -> Routing:
        return route_factored(**_order(leaves, segments, 3), detach=False)

    def by_kernel(leaves: dict[str, Tensor]) -> Routing:
        with use_precision(precision):
            return route_triton(**_order(leaves, moved(segments, kernel_device), 3), detach=False)

    both = ("capsules", "assignment")
    expected = _outcome(exact, inputs, torch.zeros((), dtype=torch.float64), both)
    actual = _outcome(by_kernel, inputs, torch.zeros((), device=kernel_device), both)
    off = {
        name: float((actual[name].detach().cpu().double() - value).abs().max() / value.abs().max())
        for name, value in expected.items()
    }
    assert max(off.values()) <= ROUNDED[precision], off
    if precision == "bf16":  # the rounding is really done, forward and backward
        assert min(off["capsules"], off["grad weight"], off["grad h"]) > ROUNDED["float32"], off


def test_repeated_calls_give_the_same_bits(kernel_device: str) -> None:
    segments = rows(SIZES)
    inputs = _inputs(poisoned(segments, 12), 4, 5, 12, (3,))
    first, second = (_compare(segments, inputs, 3, 1e-7, kernel_device) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_a_single_iteration_has_constant_assignments(kernel_device: str) -> None:
    segments = moved(rows([[3, 2]]), kernel_device)
    inputs = {
        name: value.to(kernel_device).requires_grad_()
        for name, value in _inputs(poisoned(rows([[3, 2]]), 8), 2, 2, 8, (1,)).items()
    }
    with use_kernels("always"):
        actual = route(
            inputs["h"], inputs["weight"], inputs["bias"], segments, 1, detach=False, method="kernel"
        )
    assert actual.capsules.requires_grad
    assert not actual.assignment.requires_grad
