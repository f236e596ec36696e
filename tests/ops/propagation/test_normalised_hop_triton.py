"""Normalisation, hop and mean in few passes against the separate ops in float64."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.nn import RaggedBatchNorm
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import use_precision
from graphcaps.types import EdgeTable, Segments
from tests.graphs import assert_equal
from tests.ops.norms import random_norm
from tests.ops.propagation.batches import random_batch

SIZES = [1, 31, 33, 63, 65, 100, 2]
# Rows of different lengths, empty graphs between others, and a replica of nothing but padding.
DRAWN = [[0, 1, 2], [5, -1, 4], [-1, -1, -1], [3, 6, 0]]
# Bits are exact, rows keep 24, 16 and 8 bits.
TOLERANCE = {"float32": 2e-5, "tf32": 2e-4, "bf16": 2e-2}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _run(
    u: Tensor, norm: RaggedBatchNorm, batch: tuple[EdgeTable, Segments], upstream: list[Tensor], **how: Any
) -> dict[str, Tensor]:
    """Values, gradients and running averages by name; ``upstream``: gradients of h, of the mean and of the inputs."""
    u = u.clone().requires_grad_()
    hop = norm.hop(u, *batch, **how)
    outputs = [hop.h, hop.mean, hop.inputs]
    pairs = [(o, s.to(o)) for o, s in zip(outputs, upstream, strict=True) if o is not None and s is not None]
    grads = torch.autograd.grad([o for o, _ in pairs], (u, norm.weight, norm.bias), [s for _, s in pairs])
    actual = {
        "h": hop.h,
        "running mean": norm.running_mean,
        "running variance": norm.running_var,
    }
    if hop.mean is not None:
        actual["mean"] = hop.mean
    names = ("gradient of u", "gradient of weight", "gradient of bias")
    actual |= dict(zip(names, grads, strict=True))
    return {name: value.detach().cpu().double() for name, value in actual.items()}


def _check(
    drawn: Any, d: int, device: str, *, dense: bool = False, sizes: list[int] = SIZES, precision: Any = "float32",
    max_degree: int | None = 32, max_size: int | None = 100, passed: bool = True, far: float = 1.0,
    slack: float = 1.0, weighted: bool = False, **how: Any,
) -> None:  # fmt: skip
    edges, segments = random_batch(drawn, sizes, dense, "cpu", weighted)
    real = (edges.node >= 0).unsqueeze(-1)
    torch.manual_seed(0)
    u = torch.randn(*edges.node.shape, d) * torch.linspace(0.5, 2, d) + far
    upstream = [torch.randn_like(u), torch.randn(*segments.sizes.shape, d), torch.randn_like(u)]
    if not passed:
        upstream[2] = None  # type: ignore[call-overload]

    def rows(value: float) -> tuple[Tensor, list[Tensor]]:
        filled = [
            t if t is None or t.shape != u.shape else t.masked_fill(~real, value) for t in (u, *upstream)
        ]
        return filled[0], filled[1:]

    lead = tuple(u.shape[:-2])
    clean, clean_upstream = rows(0.0)
    with use_kernels("off"):
        expected = _run(
            clean.double(), random_norm(d, lead).double(), (edges, segments), clean_upstream, **how
        )
    edges, segments = random_batch(drawn, sizes, dense, device, weighted)
    edges = dataclasses.replace(edges, max_degree=max_degree)
    segments = dataclasses.replace(segments, max_size=max_size)
    poisoned, poisoned_upstream = rows(float("nan"))
    with use_kernels("always"), use_precision(precision):
        actual = _run(
            poisoned.to(device), random_norm(d, lead).to(device), (edges, segments), poisoned_upstream, **how
        )
    for name, value in expected.items():
        exact = name.startswith("running") or name == "mean"
        tolerance = TOLERANCE["float32" if exact else precision]
        assert_equal(actual[name], value, name, slack * tolerance)
    if precision == "bf16" and dense:
        assert float((actual["h"] - expected["h"]).abs().max()) > 1e-4  # the rounding is really done


@pytest.mark.parametrize("dense", [False, True], ids=["lists", "bits"])
def test_values_and_gradients(dense: bool, kernel_device: str) -> None:
    _check(DRAWN, 5, kernel_device, dense=dense, divisor=70)


@pytest.mark.parametrize("dense", [False, True], ids=["lists", "bits"])
@pytest.mark.parametrize("d", [32, 128, 130])
def test_wide_rows(d: int, dense: bool, kernel_device: str) -> None:
    _check([[2, 0], [-1, 1]], d, kernel_device, dense=dense, divisor=70)


@pytest.mark.parametrize("dense", [False, True], ids=["lists", "bits"])
def test_one_model(dense: bool, kernel_device: str) -> None:
    _check([1, 4, 5], 24, kernel_device, dense=dense)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_edge_weights(dense: bool, kernel_device: str) -> None:
    """Read from the lists, also of dense graphs that have bits."""
    drawn = [[2, 0], [-1, 1]] if dense else DRAWN
    _check(drawn, 5, kernel_device, dense=dense, weighted=True, max_degree=None if dense else 32, divisor=70)


@pytest.mark.parametrize("precision", list(TOLERANCE))
def test_precision_of_the_bits(precision: str, kernel_device: str) -> None:
    _check([[5, 1]], 16, kernel_device, dense=True, precision=precision)


@pytest.mark.parametrize("dense", [False, True], ids=["lists", "bits"])
def test_nothing_but_the_hop(dense: bool, kernel_device: str) -> None:
    """No mean, and no other reader of the inputs."""
    _check(DRAWN, 8, kernel_device, dense=dense, residual=False, passed=False, max_degree=None)


@pytest.mark.parametrize("max_degree", [None, 32])
def test_programs_of_several_blocks(
    max_degree: int | None, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums for γ and β and the graphs of the rows continue from block to block."""
    from graphcaps.ops.propagation import neighbour_sum_triton

    tiles = neighbour_sum_triton.ListTiles(numbers=128, programs=9, warps=1)
    for name in neighbour_sum_triton.LIST_TILES:
        monkeypatch.setitem(neighbour_sum_triton.LIST_TILES, name, tiles)
    _check(DRAWN, 12, kernel_device, max_degree=max_degree, divisor=70)
    _check(DRAWN, 12, kernel_device, max_degree=max_degree)


def test_large_graphs_are_cut(kernel_device: str) -> None:
    _check([[1, 0], [0, -1]], 8, kernel_device, sizes=[600, 3], max_size=600, max_degree=None)


def test_a_mean_far_from_zero_costs_little(kernel_device: str) -> None:
    _check(DRAWN, 8, kernel_device, far=100.0, slack=10)  # what float32 keeps of u


def test_conditions_of_the_kernel(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation, weights that need a gradient and float64 take the separate ops."""
    from graphcaps.ops.propagation import normalised_hop_triton

    monkeypatch.setattr(normalised_hop_triton, "normalised_hop", None)
    edges, segments = random_batch([1, 4], SIZES, False, kernel_device)
    u = torch.randn(*edges.node.shape, 8, device=kernel_device)
    ones = torch.ones(edges.neighbours.numel(), device=kernel_device)
    weighted = dataclasses.replace(edges, weight=ones)
    learned = dataclasses.replace(edges, weight=ones.clone().requires_grad_())
    with use_kernels("always"):
        random_norm(8, ()).to(kernel_device).eval().hop(u, edges, segments)
        random_norm(8, ()).to(kernel_device).hop(u, learned, segments)
        random_norm(8, ()).double().to(kernel_device).hop(u.double(), edges, segments)
        for table in (edges, weighted):
            with pytest.raises(TypeError):
                random_norm(8, ()).to(kernel_device).hop(u, table, segments)


def test_only_the_inputs_are_read(kernel_device: str) -> None:
    edges, segments = random_batch([1, 4], SIZES, False, kernel_device)
    u = torch.randn(*edges.node.shape, 8, device=kernel_device, requires_grad=True)
    grad = torch.randn_like(u)
    with use_kernels("always"):
        hop = random_norm(8, ()).to(kernel_device).hop(u, edges, segments)
        (actual,) = torch.autograd.grad(hop.inputs, u, grad)
    assert_equal(actual, grad, "gradient", 1e-6)
