"""A hop whose gradient adds that of a skip connection, against the separate operations in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.propagation.propagation import hop_with_skip
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal
from tests.ops.propagation.batches import random_batch

SIZES = [1, 31, 33, 65, 2]
# Rows of different lengths, empty graphs between others, and a replica of nothing but padding.
DRAWN = [[0, 1, 2], [3, -1, 4], [-1, -1, -1]]
TOLERANCE = 5e-6


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _run(x: Tensor, edges: EdgeTable, upstream: list[Tensor | None], normalised: bool) -> dict[str, Tensor]:
    """Both results and the gradient of x; ``upstream``: gradients of the results, where they are read."""
    x = x.clone().requires_grad_()
    results = hop_with_skip(x, edges, normalised=normalised)
    read = [(result, grad) for result, grad in zip(results, upstream, strict=True) if grad is not None]
    (gradient,) = torch.autograd.grad([result for result, _ in read], x, [grad for _, grad in read])
    values = {"hop": results[0], "rows": results[1], "gradient": gradient}
    return {name: value.detach().cpu().double() for name, value in values.items()}


def _check(
    drawn: Any, d: int, device: str, *, dense: bool = False, weighted: bool = False,
    max_degree: int | None = 32, read: tuple[bool, bool] = (True, True),
) -> None:  # fmt: skip
    edges = random_batch(drawn, SIZES, dense, "cpu", weighted)[0]
    real = (edges.node >= 0).unsqueeze(-1)
    generator = torch.Generator().manual_seed(d)
    tensors = [torch.randn(*edges.node.shape, d, generator=generator) for _ in range(3)]

    def inputs(value: float, dtype: torch.dtype, device: str) -> tuple[Tensor, list[Tensor | None]]:
        """Padding rows hold this value."""
        x, *grads = [tensor.masked_fill(~real, value).to(device, dtype) for tensor in tensors]
        return x, [grad if each else None for grad, each in zip(grads, read, strict=True)]

    there = random_batch(drawn, SIZES, dense, device, weighted)[0]
    there = dataclasses.replace(there, max_degree=max_degree)
    for normalised in (True, False):
        with use_kernels("off"):
            x, upstream = inputs(0.0, torch.float64, "cpu")
            expected = _run(x, edges, upstream, normalised)
        with use_kernels("always"):
            x, upstream = inputs(float("nan"), torch.float32, device)
            actual = _run(x, there, upstream, normalised)
        for name, value in expected.items():
            if name == "rows" or (name == "gradient" and not read[0]):  # passed as they are
                value, actual[name] = (t.masked_fill(~real, 0) for t in (value, actual[name]))
            assert_equal(actual[name], value, name, TOLERANCE)


@pytest.mark.parametrize("dense", [False, True], ids=["lists", "bits"])
@pytest.mark.parametrize("d", [5, 32, 130])
def test_values_and_gradients(d: int, dense: bool, kernel_device: str) -> None:
    _check(DRAWN, d, kernel_device, dense=dense, max_degree=None if dense else 32)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_edge_weights(dense: bool, kernel_device: str) -> None:
    """Read from the lists, also of dense graphs, which have bits and long lists."""
    drawn = [[2, 0], [-1, 1]] if dense else DRAWN
    _check(drawn, 5, kernel_device, dense=dense, weighted=True, max_degree=None if dense else 32)


def test_one_model(kernel_device: str) -> None:
    _check([1, 3, 2], 24, kernel_device)


@pytest.mark.parametrize("read", [(True, False), (False, True)], ids=["hop", "skip"])
def test_only_one_result_is_read(read: tuple[bool, bool], kernel_device: str) -> None:
    for dense in (False, True):
        _check(DRAWN, 8, kernel_device, dense=dense, max_degree=None, read=read)


def test_the_gradient_of_the_skip_connection_takes_no_pass_of_its_own(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphcaps.ops.propagation import neighbour_sum_triton

    added: list[Tensor | None] = []

    def product(*arguments: Any, **options: Any) -> Any:
        added.append(options.get("added"))
        return original(*arguments, **options)

    original = neighbour_sum_triton.adjacency_product
    monkeypatch.setattr(neighbour_sum_triton, "adjacency_product", product)
    edges = random_batch([1, 4], SIZES, False, kernel_device)[0]
    x = torch.randn(*edges.node.shape, 8, device=kernel_device, requires_grad=True)
    with use_kernels("always"):
        hop, skip = hop_with_skip(x, edges)
        (hop.sum() + 3 * skip.sum()).backward()
    assert added[0] is None
    assert added[1] is not None
    assert added[1].unique().tolist() == [3.0]
