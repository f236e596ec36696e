"""The factored routing is the paper's loop: values and gradients, float64."""

import itertools

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops import route, route_dense
from graphcaps.types import Routing, Segments
from tests.graphs import assert_equal

SIZES = [3, 70, 1, 33, 5]


def _arguments(
    sizes: list[int], J: int, d: int = 6, e: int = 5, lead: tuple[int, ...] = ()
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)

    def make(*shape: int) -> Tensor:
        return torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).requires_grad_()

    return {
        "h": make(sum(sizes), d),
        "weight": make(J, d, e),
        "bias": make(J, e),
        "residual": make(len(sizes), 1, e),
    }


def _run(
    method: str, arguments: dict[str, Tensor], batch: Tensor, R: int, detach: bool, residual: bool
) -> dict:
    leaves = {name: value.detach().clone().requires_grad_() for name, value in arguments.items()}
    actual = route(
        leaves["h"],
        leaves["weight"],
        leaves["bias"],
        batch,
        R,
        residual=leaves["residual"] if residual else None,
        detach=detach,
        method=method,
    )
    # Weights that depend on the position, so that no error cancels.
    grad_output = torch.linspace(-1, 1, actual.capsules.numel(), dtype=torch.float64).reshape(
        actual.capsules.shape
    )
    loss = (actual.capsules * grad_output).sum()
    if not detach:
        assignment_weights = torch.linspace(0, 3, actual.assignment.numel(), dtype=torch.float64).cos()
        loss = loss + (actual.assignment * assignment_weights.reshape(actual.assignment.shape)).sum()
    loss.backward()
    result = {"capsules": actual.capsules, "assignment": actual.assignment}
    result |= {f"grad {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return result


@pytest.mark.parametrize(
    ("J", "R", "detach", "residual"),
    list(itertools.product([1, 4, 17], [1, 2, 3, 5], [True, False], [True, False])),
)
def test_factored_is_naive(J: int, R: int, detach: bool, residual: bool) -> None:
    batch = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    arguments = _arguments(SIZES, J)
    slow = _run("naive", arguments, batch, R, detach, residual)
    fast = _run("factored", arguments, batch, R, detach, residual)
    assert slow.keys() == fast.keys()
    for name in slow:
        assert_equal(fast[name], slow[name], name)


@pytest.mark.parametrize(
    ("J", "R", "detach", "residual"),
    list(itertools.product([1, 4], [1, 2, 3], [True, False], [True, False])),
)
def test_one_graph_alone_is_naive(J: int, R: int, detach: bool, residual: bool) -> None:
    """Its rows are read where they are, without tiles."""
    batch, arguments = torch.zeros(70, dtype=torch.long), _arguments([70], J)
    slow = _run("naive", arguments, batch, R, detach, residual)
    fast = _run("factored", arguments, batch, R, detach, residual)
    assert slow.keys() == fast.keys()
    for name in slow:
        assert_equal(fast[name], slow[name], name)


def test_detached_weights_are_constants() -> None:
    """With ``detach`` the gradient is that of the last sum alone, c being a number."""
    batch = torch.zeros(4, dtype=torch.long)
    arguments = _arguments([4], 3)
    h, weight, bias = (arguments[name] for name in ("h", "weight", "bias"))
    actual = route(h, weight, bias, batch, 3)
    assert not actual.assignment.requires_grad
    s = torch.einsum("vj,vd,jde->je", actual.assignment, h, weight) + actual.assignment.sum(0)[:, None] * bias
    squared = s.square().sum(-1, keepdim=True)
    expected = s * squared / ((1 + squared) * (squared + 1e-7).sqrt())
    assert_equal(actual.capsules[0], expected)
    (grad,) = torch.autograd.grad(actual.capsules.sum(), h, retain_graph=True)
    (expected_grad,) = torch.autograd.grad(expected.sum(), h)
    assert_equal(grad, expected_grad)


def test_first_round_by_hand() -> None:
    """Two input and two output capsules, identity map: c = 1/2, so each output capsule is the squashed half sum."""
    h = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    weight = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    actual = route(
        h, weight, torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.long), 1, epsilon=0.0
    )
    half = 0.5**0.5  # length of (1/2, 1/2)
    expected = torch.full((1, 2, 2), 0.5 / half * 0.5 / 1.5, dtype=torch.float64)
    assert_equal(actual.capsules, expected)
    assert_equal(actual.assignment, torch.full((2, 2), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("detach", [True, False])
def test_dense_is_ragged(detach: bool) -> None:
    arguments = _arguments([6] * 4, 3)
    batch = torch.arange(4).repeat_interleave(6)
    h, weight, bias, residual = (arguments[name] for name in ("h", "weight", "bias", "residual"))
    ragged = route(h, weight, bias, batch, 3, residual=residual, detach=detach)
    dense = route_dense(h.reshape(4, 6, -1), weight, bias, 3, residual, detach)
    assert_equal(dense.capsules, ragged.capsules)
    assert_equal(dense.assignment.flatten(0, 1), ragged.assignment)
    for one, two in zip(*(torch.autograd.grad(f.capsules.square().sum(), (h, weight, bias)) for f in (ragged, dense)),
                        strict=True):  # fmt: skip
        assert_equal(two, one, "gradient")


def test_replicas_are_separate() -> None:
    arguments = _arguments(SIZES, 4, lead=(3,))
    batch = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    rows = torch.stack([batch, batch, batch])
    together = _run("factored", arguments, rows, 3, True, True)
    slow = _run("naive", arguments, rows, 3, True, True)
    for name in together:
        assert_equal(together[name], slow[name], name)
    for f in range(3):
        alone: Routing = route(*(arguments[name][f] for name in ("h", "weight", "bias")), batch, 3,
                               residual=arguments["residual"][f])  # fmt: skip
        assert_equal(together["capsules"][f], alone.capsules)
        assert_equal(together["assignment"][f], alone.assignment)


@pytest.mark.parametrize("method", ["factored", "naive"])
def test_padding_rows_never_count(method: str) -> None:
    arguments = {name: value.detach() for name, value in _arguments([4, 3], 3).items()}
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    bare = route(arguments["h"], arguments["weight"], arguments["bias"], batch, 3, method=method)
    poisoned = torch.cat(
        [arguments["h"], torch.full((2, 6), float("nan"), dtype=torch.float64)]
    ).requires_grad_()
    padded = torch.tensor([0, 0, 0, 0, 1, 1, 1, 3, 3])
    actual = route(poisoned, arguments["weight"], arguments["bias"], padded, 3, num_graphs=3, method=method)
    assert_equal(actual.capsules[:2], bare.capsules)
    assert_equal(actual.capsules[2], torch.zeros(3, 5, dtype=torch.float64))
    assert_equal(actual.assignment[:7], bare.assignment)
    assert torch.equal(actual.assignment[7:], torch.zeros(2, 3, dtype=torch.float64))
    if method == "factored":
        actual.capsules.sum().backward()
        assert bool(poisoned.grad.isfinite().all())
        assert torch.equal(poisoned.grad[7:], torch.zeros(2, 6, dtype=torch.float64))


def test_one_graph_a_thousand_times_larger() -> None:
    sizes = [2, 2000]
    arguments = _arguments(sizes, 3)
    batch = torch.arange(2).repeat_interleave(torch.tensor(sizes))
    slow = _run("naive", arguments, batch, 3, True, True)
    fast = _run("factored", arguments, batch, 3, True, True)
    for name in slow:
        assert_equal(fast[name], slow[name], name)


def test_assignment_rows_sum_to_one() -> None:
    arguments = _arguments(SIZES, 4)
    segments = Segments.from_sizes(torch.tensor(SIZES))
    actual = route(arguments["h"], arguments["weight"], arguments["bias"], segments, 3)
    assert_equal(actual.assignment.sum(-1), torch.ones(sum(SIZES), dtype=torch.float64))


def test_messages() -> None:
    arguments = _arguments([4], 3)
    h, weight, bias = (arguments[name].detach() for name in ("h", "weight", "bias"))
    batch = torch.zeros(4, dtype=torch.long)
    with pytest.raises(
        ShapeError, match=r"route: 'batch' must have one entry per input capsule, \[4\], got \[3\]\."
    ):
        route(h, weight, bias, batch[:3], 3)
    with pytest.raises(ShapeError, match=r"route: 'bias' must have the shape \[3, 5\], got \[2, 5\]\."):
        route(h, weight, bias[:2], batch, 3)
    with pytest.raises(ShapeError, match=r"route: 'weight' must have the shape"):
        route(h, weight[:, :5], bias, batch, 3)
    with pytest.raises(ArgumentError, match=r"route: 'iterations' must be at least 1, got 0\."):
        route(h, weight, bias, batch, 0)
    with pytest.raises(
        ArgumentError, match=r"route: 'method' must be one of auto, factored, naive, kernel, got 'x'\."
    ):
        route(h, weight, bias, batch, 1, method="x")  # type: ignore[arg-type]


def test_unsorted_input_capsules_are_refused() -> None:
    arguments = {name: value.detach() for name, value in _arguments([4], 3).items()}
    with pytest.raises(ShapeError, match=r"route: 'batch' must be sorted, got graphs out of order\."):
        route(arguments["h"], arguments["weight"], arguments["bias"], torch.tensor([0, 1, 0, 1]), 1)
    with pytest.raises(ShapeError, match=r"'h, weight' must have at least the axes"):
        route(arguments["h"][0], arguments["weight"], arguments["bias"], torch.zeros(4, dtype=torch.long), 1)
