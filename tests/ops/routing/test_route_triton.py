"""Routing by kernel against the factored form in float64: capsules, assignment, each gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops import route, route_dense
from graphcaps.ops._triton.dispatch import LARGEST_ROUTED_GRAPH, MOST_ROUTED_CAPSULES, use_kernels
from graphcaps.ops.routing import route_dense_factored, route_factored
from graphcaps.types import Routing, Segments
from tests.ops.ragged_rows import SIZES, assert_close, moved, poisoned, rows


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _arguments(h: Tensor, B: int, J: int, e: int, lead: tuple[int, ...]) -> dict[str, Tensor]:
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


def _outcome(actual: Routing, leaves: dict[str, Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
    """Results and gradients; weights that depend on the position, so that no error cancels."""
    grad_output = torch.linspace(-1, 1, actual.capsules.numel(), dtype=torch.float64).cos()
    grad_output = (
        grad_output.to(actual.capsules.dtype).to(actual.capsules.device).reshape(actual.capsules.shape)
    )
    (actual.capsules * grad_output).sum().backward()
    result = {"capsules": actual.capsules, "assignment": actual.assignment}
    return result | {f"grad {name}": leaves[name].grad for name in names}


def _compare(
    segments: Segments, inputs: dict[str, Tensor], R: int, residual: bool, epsilon: float, device: str
) -> dict[str, Tensor]:
    names = ("h", "weight", "bias", "residual") if residual else ("h", "weight", "bias")
    outcomes = []
    for exact in (True, False):
        leaves = {
            name: (value.double() if exact else value.to(device)).detach().clone().requires_grad_()
            for name, value in inputs.items()
        }
        at = segments if exact else moved(segments, device)
        rest = leaves["residual"] if residual else None
        h, weight, bias = leaves["h"], leaves["weight"], leaves["bias"]
        if exact:
            actual = route_factored(h, weight, bias, at, R, rest, True, epsilon)
        else:
            with use_kernels("always"):
                actual = route(h, weight, bias, at, R, residual=rest, method="kernel", epsilon=epsilon)
        assert not actual.assignment.requires_grad
        outcomes.append(_outcome(actual, leaves, names))
    for name, value in outcomes[0].items():
        assert_close(outcomes[1][name], value, name)
    return outcomes[1]


@pytest.mark.parametrize(
    ("sizes", "J", "d", "e", "R", "residual"),
    [
        (SIZES, 1, 8, 8, 3, True),
        (SIZES, 5, 32, 32, 4, False),
        (SIZES, 5, 12, 20, 1, True),
        ([[0, 33]], 20, 128, 128, 2, True),
        ([[5, 0]], 32, 20, 12, 2, False),
        ([[17, 3]], 32, 33, 65, 2, True),
        ([[2] * 18], 3, 128, 100, 3, True),  # a full block of graphs as wide as it gets
        ([[17, 3]], 40, 12, 8, 2, True),  # tiles of 64 capsules
        ([[17, 3]], 129, 12, 8, 2, True),  # more capsules than the kernels support: factored form
    ],
)
def test_kernel_is_factored(
    kernel_device: str, sizes: list[list[int]], J: int, d: int, e: int, R: int, residual: bool
) -> None:
    """Empty graphs, padding rows that hold NaN, and a replica of nothing else."""
    segments = rows(sizes)
    inputs = _arguments(poisoned(segments, d), segments.num_graphs, J, e, (len(sizes),))
    actual = _compare(segments, inputs, R, residual, 1e-7, kernel_device)
    outside = (segments.index >= segments.num_graphs).unsqueeze(-1)
    for name in ("assignment", "grad h"):
        assert bool((actual[name].detach().cpu().masked_select(outside) == 0).all()), name


@pytest.mark.parametrize("sizes", [[63, 70], [3] * 35])
def test_one_model_and_the_papers_squash(kernel_device: str, sizes: list[int]) -> None:
    """No leading axis, no epsilon, no padding rows; a block of graphs that is not full."""
    segments = rows([sizes], spare=0, lead=False)
    inputs = _arguments(poisoned(segments, 20), len(sizes), 6, 16, ())
    _compare(segments, inputs, 3, True, 0.0, kernel_device)
    _compare(segments, inputs, 3, False, 0.0, kernel_device)


def test_large_graphs_are_cut(kernel_device: str) -> None:
    from graphcaps.ops.ragged.ragged_triton import CHUNK

    for bound in (-1, 3 * CHUNK + 1):
        segments = rows([[2, 2 * CHUNK + 9, 0], [CHUNK, 1, CHUNK + 1]], bound=bound)
        h = poisoned(segments, 8) / CHUNK  # sums of a thousand rows stay where squash bends
        inputs = _arguments(h, 3, 3, 8, (2,))
        _compare(segments, inputs, 3, True, 1e-7, kernel_device)


@pytest.mark.parametrize(
    ("n", "J", "R", "lead"), [(10, 2, 3, (2,)), (25, 6, 3, ()), (7, 3, 1, (2,)), (1, 4, 2, ())]
)
def test_dense(kernel_device: str, n: int, J: int, R: int, lead: tuple[int, ...]) -> None:
    from graphcaps.ops.routing.route_triton import route_dense_triton

    B = 5
    h = torch.randn(*lead, B, n, 16, generator=torch.Generator().manual_seed(1))
    inputs = _arguments(h, B, J, 24, lead)
    outcomes = []
    for exact in (True, False):
        leaves = {
            name: (value.double() if exact else value.to(kernel_device)).clone().requires_grad_()
            for name, value in inputs.items()
        }
        chosen = route_dense_factored if exact else route_dense_triton
        actual = chosen(leaves["h"], leaves["weight"], leaves["bias"], R, leaves["residual"])
        outcomes.append(_outcome(actual, leaves, tuple(leaves)))
    for name, value in outcomes[0].items():
        assert_close(outcomes[1][name], value, name)


def test_same_bits_twice_and_nothing_kept_without_gradient(kernel_device: str) -> None:
    from graphcaps.ops.routing.route_triton import route_triton

    segments = moved(rows(SIZES), kernel_device)
    h = poisoned(rows(SIZES), 12).to(kernel_device)
    inputs = {name: value.to(kernel_device) for name, value in _arguments(h.cpu(), 4, 5, 12, (3,)).items()}
    calls = [route_triton(h, inputs["weight"], inputs["bias"], segments, 3) for _ in range(2)]
    assert torch.equal(calls[0].capsules, calls[1].capsules)
    assert torch.equal(calls[0].assignment, calls[1].assignment)
    assert calls[0].capsules.grad_fn is None


def test_which_form_is_used(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernels leave to the factored form: wide or many capsules, unknown sizes."""
    import graphcaps.ops.routing.route_triton as module

    calls: list[str] = []
    for function in (module._Route, module.RouteWithGradient):

        def applied(*arguments: Any, original: Any = function.apply) -> Any:
            calls.append("kernel")
            return original(*arguments)

        monkeypatch.setattr(function, "apply", applied)

    def uses_kernel(
        d: int = 8, J: int = 2, bound: int | None = -1, detach: bool = True, grad: bool = True
    ) -> bool:
        calls.clear()
        segments = rows([[3, 2]], spare=0, bound=bound, lead=False)
        inputs = _arguments(poisoned(segments, d), 2, J, 8, ())
        h, weight, bias = (inputs[name].to(kernel_device) for name in ("h", "weight", "bias"))
        with use_kernels("always"):
            there = moved(segments, kernel_device)
            actual = route(h.requires_grad_(grad), weight, bias, there, 2, detach=detach)
        assert bool(actual.capsules.isfinite().all())
        return calls == ["kernel"]

    assert uses_kernel()
    assert uses_kernel(detach=False, grad=False)
    assert uses_kernel(detach=False)
    assert not uses_kernel(d=130)
    assert uses_kernel(J=MOST_ROUTED_CAPSULES)
    assert not uses_kernel(J=MOST_ROUTED_CAPSULES + 1)
    assert not uses_kernel(bound=None)
    assert not uses_kernel(bound=LARGEST_ROUTED_GRAPH + 1)
    with use_kernels("always"):
        calls.clear()
        route_dense(torch.ones(2, 3, 4, device=kernel_device), torch.ones(2, 4, 4, device=kernel_device),
                    torch.ones(2, 4, device=kernel_device), 2)  # fmt: skip
        assert calls == ["kernel"]


def test_unavailable_kernels_are_refused(kernel_device: str) -> None:
    h, weight, bias = torch.ones(3, 4), torch.ones(2, 4, 4), torch.ones(2, 4)
    batch = torch.zeros(3, dtype=torch.long)
    with (
        use_kernels("off"),
        pytest.raises(
            ArgumentError,
            match=r"route: 'method' must be available here, got 'kernel' for torch.float32 on cpu",
        ),
    ):
        route(h, weight, bias, batch, 2, method="kernel")
    with use_kernels("always"), pytest.raises(ArgumentError, match=r"torch.float64 on cpu"):
        route(h.double(), weight.double(), bias.double(), batch, 2, method="kernel")
