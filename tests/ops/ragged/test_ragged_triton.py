"""Sums inside graphs by kernel against torch in float64: values, gradients, padding, chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphcaps.ops import coarsen, edge_table
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import use_precision
from graphcaps.ops.ragged.tiles import segment_broadcast, segment_product, segment_sum
from graphcaps.types import Segments
from tests.ops.ragged_rows import SIZES, assert_close, moved, poisoned, rows


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("width", [1, 8, 20, 130])
@pytest.mark.parametrize("lead", [True, False])
def test_sum_and_its_gradient(kernel_device: str, width: int, lead: bool) -> None:
    from graphcaps.ops.ragged import ragged_triton

    segments = rows(SIZES, lead=lead)
    x = poisoned(segments, width)
    exact = x.double().requires_grad_()
    expected = segment_sum(exact, segments)
    there = moved(segments, kernel_device)
    x = x.to(kernel_device).requires_grad_()
    actual = ragged_triton.segment_sum(x, there)
    assert_close(actual, expected, "sum")
    grad_output = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    (expected * grad_output).sum().backward()
    (actual * grad_output.float().to(kernel_device)).sum().backward()
    outside = (segments.index >= segments.num_graphs).unsqueeze(-1)
    assert_close(x.grad, exact.grad.masked_fill(outside, 0), "gradient")
    assert bool((x.grad.cpu().masked_select(outside) == 0).all())


@pytest.mark.parametrize("width", [1, 20, 130])
@pytest.mark.parametrize("lead", [True, False])
def test_spread_and_its_gradient(kernel_device: str, width: int, lead: bool) -> None:
    from graphcaps.ops.ragged import ragged_triton

    segments = rows(SIZES, lead=lead)
    x = torch.randn(*segments.ptr.shape[:-1], segments.num_graphs, width)
    exact = x.double().requires_grad_()
    expected = segment_broadcast(exact, segments)
    there = moved(segments, kernel_device)
    x = x.to(kernel_device).requires_grad_()
    actual = ragged_triton.segment_broadcast(x, there)
    assert_close(actual, expected, "segment_broadcast")
    grad_output = poisoned(segments, width, seed=1)  # the gradient of a padding row is nobody's
    (actual * grad_output.to(kernel_device)).sum().backward()
    (expected * grad_output.nan_to_num(0).double()).sum().backward()
    assert_close(x.grad, exact.grad, "gradient")


def test_large_graphs_are_cut(kernel_device: str) -> None:
    """More than two chunks, with what the host knows and without; the sums agree."""
    from graphcaps.ops.ragged import ragged_triton

    sizes = [[3, 2 * ragged_triton.CHUNK + 5, 0, ragged_triton.CHUNK]]
    for bound in (-1, 4 * ragged_triton.CHUNK, None):
        segments = rows(sizes, bound=bound)
        x, a = poisoned(segments, 5), poisoned(segments, 3, seed=1)
        there = moved(segments, kernel_device)
        actual = ragged_triton.segment_sum(x.to(kernel_device), there)
        assert_close(actual, segment_sum(x.double(), segments), f"sum, {bound}")
        product = ragged_triton.segment_product(a.to(kernel_device), x.to(kernel_device), there)
        pairs = (a.double().unsqueeze(-1) * x.double().unsqueeze(-2)).flatten(-2)
        assert_close(product.flatten(-2), segment_sum(pairs, segments), f"product, {bound}")


@pytest.mark.parametrize(("left", "right"), [(1, 1), (5, 20), (20, 5), (33, 130)])
@pytest.mark.parametrize("lead", [True, False])
def test_product(kernel_device: str, left: int, right: int, lead: bool) -> None:
    from graphcaps.ops.ragged import ragged_triton

    segments = rows(SIZES, lead=lead)
    a, x = poisoned(segments, left), poisoned(segments, right, seed=1)
    there = moved(segments, kernel_device)
    actual = ragged_triton.segment_product(a.to(kernel_device), x.to(kernel_device), there)
    pairs = (a.double().unsqueeze(-1) * x.double().unsqueeze(-2)).flatten(-2)
    assert_close(actual.flatten(-2), segment_sum(pairs, segments), "product")


@pytest.mark.parametrize(("left", "right"), [(1, 1), (5, 20), (33, 130)])
@pytest.mark.parametrize("lead", [True, False])
def test_gradients_of_the_product(kernel_device: str, left: int, right: int, lead: bool) -> None:
    """Graphs of which some are longer than a chunk, with the sizes that the host knows and without."""
    sizes = SIZES if lead else [[3, 150, 0, 64]]
    for bound in (-1, None):
        segments = rows(sizes, lead=lead, bound=bound)
        a, x = poisoned(segments, left), poisoned(segments, right, seed=1)
        outside = (segments.index >= segments.num_graphs).unsqueeze(-1)
        exact = [t.masked_fill(outside, 0).double().requires_grad_() for t in (a, x)]
        there = moved(segments, kernel_device)
        tensors = [t.to(kernel_device).requires_grad_() for t in (a, x)]
        with use_kernels("off"):
            expected = segment_product(*exact, segments)
        with use_kernels("always"):
            actual = segment_product(*tensors, there)
        grad = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
        wanted = torch.autograd.grad(expected, exact, grad)
        gradients = torch.autograd.grad(actual, tensors, grad.float().to(kernel_device))
        assert_close(actual, expected.detach(), f"product, {bound}")
        for name, got, want in zip(("a", "x"), gradients, wanted, strict=True):
            assert_close(got, want, f"gradient of {name}, {bound}")
            assert bool((got.cpu().masked_select(outside) == 0).all())


def test_a_gradient_has_the_precision_of_its_forward_pass(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU it is computed in a thread of autograd's, which has not the setting of the caller."""
    from graphcaps.ops.ragged import ragged_triton

    kernel, precisions = ragged_triton._product_gradient_kernel, []

    class Launcher:
        def __getitem__(self, grid: Any) -> Any:
            def launch(*arguments: Any, **options: Any) -> Any:
                precisions.append(options["PRECISION"])
                return kernel[grid](*arguments, **options)

            return launch

    monkeypatch.setattr(ragged_triton, "_product_gradient_kernel", Launcher())
    segments = moved(rows(SIZES), kernel_device)
    a, x = (
        torch.rand(*segments.index.shape, width, device=kernel_device).requires_grad_() for width in (3, 8)
    )
    with use_precision("tf32"):
        product = ragged_triton.segment_product(a, x, segments)
    with use_precision("float32"):
        product.sum().backward()
    assert precisions == ["tf32"]


def test_operations_use_the_kernels(kernel_device: str) -> None:
    """Through the ops, kernels on and off: the same, gradients of second order included."""
    segments = moved(rows(SIZES), kernel_device)
    x = poisoned(segments_on_cpu := rows(SIZES), 6).to(kernel_device)
    actual = {}
    for mode in ("always", "off"):
        with use_kernels(mode):
            leaf = x.clone().requires_grad_()
            total = segment_sum(leaf, segments)
            again = segment_broadcast(total.square(), segments)
            (gradient,) = torch.autograd.grad(again.square().sum(), leaf, create_graph=True)
            real = (segments.index < segments.num_graphs).unsqueeze(-1)
            gradient = gradient.where(real, 0)
            (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
            actual[mode] = {
                "sum": total,
                "segment_broadcast": again,
                "gradient": gradient,
                "second": second.where(real, 0),
            }
    assert segments_on_cpu.num_graphs == segments.num_graphs
    for name, value in actual["off"].items():
        assert_close(actual["always"][name], value.detach().cpu().double(), name)


def test_coarsen_without_gradient_is_the_product(kernel_device: str) -> None:
    sizes = [5, 1, 40]
    generator = torch.Generator().manual_seed(3)
    inner = (
        torch.randint(0, 5, (2, 8), generator=generator),
        6 + torch.randint(0, 40, (2, 90), generator=generator),
    )
    edge_index = torch.cat(inner, 1)
    segments = Segments.from_sizes(torch.tensor(sizes))
    c = torch.randn(46, 5, generator=generator).softmax(-1)
    expected = coarsen(c.double(), edge_table(edge_index, 46), segments)
    edges = edge_table(edge_index.to(kernel_device), 46)
    there = moved(segments, kernel_device)
    with use_kernels("always"):
        assert_close(coarsen(c.to(kernel_device), edges, there), expected, "without gradient")
        leaf = c.to(kernel_device).requires_grad_()
        actual = coarsen(leaf, edges, there)
        assert_close(actual, expected, "with gradient")
        actual.sum().backward()
        assert leaf.grad is not None


def test_zero_rows_and_graphs(kernel_device: str) -> None:
    from graphcaps.ops.ragged import ragged_triton

    ptr = torch.zeros(2, 1, dtype=torch.long, device=kernel_device)
    index = torch.zeros(2, 4, dtype=torch.long, device=kernel_device)
    segments = Segments(ptr, index, True, 4)
    x = torch.ones(2, 4, 3, device=kernel_device)
    assert ragged_triton.segment_sum(x, segments).shape == (2, 0, 3)
    assert ragged_triton.segment_product(x, x, segments).shape == (2, 0, 3, 3)
    empty = Segments(ptr, index[:, :0], True, None)
    assert ragged_triton.segment_broadcast(x[:, :0], empty).shape == (2, 0, 3)
