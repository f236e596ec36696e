import importlib
import math

import pytest
import torch

from graphcaps.ops import squash
from tests.graphs import assert_equal

module = importlib.import_module("graphcaps.ops.squash")  # its name is that of the function


def test_hand_computed() -> None:
    z = torch.tensor([[3.0, 4.0], [0.6, 0.8]], dtype=torch.float64)
    # Lengths 5 and 1 become 25/26 and 1/2; directions stay.
    expected = torch.tensor([[0.6 * 25 / 26, 0.8 * 25 / 26], [0.3, 0.4]], dtype=torch.float64)
    assert_equal(squash(z, 0.0), expected, tolerance=1e-15)


def test_released_epsilon_stands_inside_the_root() -> None:
    z = torch.tensor([1e-3], dtype=torch.float64)
    expected = 1e-6 / (1 + 1e-6) * 1e-3 / math.sqrt(1e-6 + 1e-7)
    assert squash(z).item() == torch.tensor(expected, dtype=torch.float64).item()


def test_zero_has_value_and_gradient_zero() -> None:
    for epsilon in (0.0, 1e-7):
        z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
        squash(z, epsilon).sum().backward()
        assert torch.equal(squash(z, epsilon).detach(), torch.zeros(2, 3, dtype=torch.float64))
        assert z.grad is not None
        assert torch.equal(z.grad, torch.zeros(2, 3, dtype=torch.float64))


def test_gradient_is_right() -> None:
    z = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for epsilon in (0.0, 1e-7):
        assert torch.autograd.gradcheck(lambda t, e=epsilon: squash(t, e), z)


def test_length_stays_below_one() -> None:
    z = torch.randn(50, 8, dtype=torch.float64) * 1e3
    assert bool((squash(z).norm(dim=-1) < 1).all())


def test_very_many_vectors_are_squashed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, first and second derivatives equal those without chunks; one vector is zero."""
    z = torch.randn(3, 11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z[1, 4] = 0
    z.requires_grad_()
    weight = torch.randn(3, 11, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for epsilon in (0.0, 1e-7):
        actual = []
        for chunk in (1 << 18, 20):  # four vectors
            monkeypatch.setattr(module, "_CHUNK", chunk)
            u = squash(z, epsilon)
            (gradient,) = torch.autograd.grad((u * weight).sum(), z, create_graph=True)
            (plain,) = torch.autograd.grad((squash(z, epsilon) * weight).sum(), z)
            (second,) = torch.autograd.grad(gradient[0].square().sum(), z)
            actual.append((u, plain, gradient, second))
        assert "SquashRows" in type(actual[1][0].grad_fn).__name__ + str(actual[1][0].grad_fn.next_functions)
        for name, one, two in zip(("values", "gradients", "gradients again", "second"), *actual, strict=True):
            assert_equal(two, one, name)


def test_chunks_have_the_right_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 4)
    z = torch.randn(
        12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    for epsilon in (0.0, 1e-7):
        assert torch.autograd.gradcheck(lambda t, e=epsilon: squash(t, e), z)
