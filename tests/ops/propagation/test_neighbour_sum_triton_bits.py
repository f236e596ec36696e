"""Products with A from tiles of bits against the sparse matrix in float64."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.ops import neighbour_sum, propagate
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.types import AdjacencyBits, EdgeTable
from tests.graphs import assert_equal, random_graphs

SIZES = [1, 31, 33, 65, 2]
DRAWN = [[0, 1, 2], [3, -1, 4], [-1, -1, -1]]
TOLERANCE = 5e-6
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "sum": neighbour_sum,
    "sum with the row itself": partial(neighbour_sum, with_self=True),
    "hop": propagate,
}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _tables(drawn: Any, device: str) -> tuple[EdgeTable, EdgeTable]:
    graphs = random_graphs(SIZES, density=8.0)
    store = graphs.as_store()
    edges = store.batch(graphs.x, torch.tensor(drawn)).edges
    bits = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes)
    assert bits.dense
    moved = AdjacencyBits(bits.words.to(device), bits.start.to(device), bits.dense)
    names = ("ptr", "neighbours", "node", "first", "graphs")
    there: dict[str, Any] = {name: getattr(edges, name).to(device) for name in names}
    return edges, dataclasses.replace(edges, **there, bits=moved)


@pytest.mark.parametrize(
    ("drawn", "d"),
    [(DRAWN, 1), (DRAWN, 20), (DRAWN, 32), (DRAWN, 130), ([3, 1, 2], 20)],
    ids=lambda value: f"{value}",
)
def test_values_and_gradients(
    kernel_device: str, d: int, drawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphcaps.ops.propagation import neighbour_sum_triton

    edges, there = _tables(drawn, kernel_device)
    assert neighbour_sum_triton._use_bits(there)
    monkeypatch.setattr(
        neighbour_sum_triton, "_lists_product", None
    )  # the lists of neighbours are not walked
    generator = torch.Generator().manual_seed(d)
    real = (edges.node >= 0).unsqueeze(-1)
    x, grad_output = (torch.randn(*edges.node.shape, d, generator=generator) for _ in range(2))
    poisoned = x.masked_fill(~real, float("nan")).to(kernel_device).requires_grad_()
    clean = x.masked_fill(~real, 0).double().requires_grad_()
    for name, op in OPERATIONS.items():
        with use_kernels("always"):
            actual = op(poisoned, there)
            grad = grad_output.masked_fill(~real, float("nan")).to(kernel_device)
            (actual_grad,) = torch.autograd.grad(actual, poisoned, grad)
        with use_kernels("off"):
            expected = op(clean, edges)
            (expected_grad,) = torch.autograd.grad(
                expected, clean, grad_output.masked_fill(~real, 0).double()
            )
        assert_equal(actual.cpu().double(), expected, name, TOLERANCE)
        assert_equal(actual_grad.cpu().double(), expected_grad, f"gradient of {name}", TOLERANCE)


def test_the_scale_argument_is_used(kernel_device: str) -> None:
    from graphcaps.ops.propagation.neighbour_sum_triton import neighbour_product

    _, there = _tables(DRAWN, kernel_device)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*there.node.shape, 24, generator=generator).to(kernel_device)
    scale = torch.rand(*there.node.shape, generator=generator).to(kernel_device)
    lists = dataclasses.replace(there, bits=None)
    for weight_scale in (scale, None):
        one, two = (neighbour_product(x, table, weight_scale, self_loops=True) for table in (there, lists))
        assert_equal(one, two, "hop", TOLERANCE)


def test_dense_graphs_use_the_bits() -> None:
    sparse, dense = (random_graphs([40] * 4, density=density).as_store() for density in (1.0, 10.0))
    actual = [pack_adjacency(s.edge_ptr, s.neighbours, s.sizes).dense for s in (sparse, dense)]
    assert actual == [False, True]


@pytest.mark.parametrize(("height", "width", "warps"), [(32, 16, 2), (128, 64, 8)])
def test_tiles_of_other_sizes(
    height: int, width: int, warps: int, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphcaps.ops.propagation import neighbour_sum_triton

    tiles = neighbour_sum_triton.BitTiles(height, width, warps)
    monkeypatch.setattr(neighbour_sum_triton, "BIT_TILES", tiles)
    test_values_and_gradients(kernel_device, 20, DRAWN, monkeypatch)
