"""Products with A by the kernel against the sparse matrix in float64."""

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from graphcaps.ops import degrees, edge_table, induced_scale, neighbour_sum, propagate
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.types import EdgeTable
from tests.graphs import assert_equal, random_graphs, with_weights

SIZES = [1, 31, 33, 65, 2]
# Rows of different lengths, empty graphs between others, and a replica of nothing but padding.
DRAWN = [[0, 1, 2], [3, -1, 4], [-1, -1, -1]]
TOLERANCE = 2e-6
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "sum": neighbour_sum,
    "sum with the row itself": partial(neighbour_sum, with_self=True),
    "hop": propagate,
}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _table(
    drawn: list[int] | list[list[int]] = DRAWN,
    density: float = 1.5,
    sizes: list[int] = SIZES,
    weighted: bool = False,
) -> EdgeTable:
    graphs = random_graphs(sizes, density=density)
    store = graphs.as_store()
    store = with_weights(store) if weighted else store
    return store.batch(graphs.x, torch.tensor(drawn)).edges


def _hub(leaves: int, weighted: bool = False) -> EdgeTable:
    """A star beside a path."""
    ends = torch.arange(1, leaves + 1)
    star = torch.stack([torch.zeros_like(ends), ends])
    path = torch.stack([torch.arange(5), torch.arange(1, 6)]) + leaves + 1
    edge_index = torch.cat([star, path], 1)
    weight = torch.linspace(-0.5, 2, edge_index.size(1)) if weighted else None
    return edge_table(edge_index, leaves + 7, weight)


def _moved(edges: EdgeTable, device: str, **changes: object) -> EdgeTable:
    names = ("ptr", "neighbours", "weight", "node", "first")
    tensors = {name: t.to(device) for name in names if (t := getattr(edges, name)) is not None}
    return dataclasses.replace(edges, **tensors, **changes)


def _check(edges: EdgeTable, d: int, device: str, max_degree: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    shape = (*edges.node.shape, d)
    x, grad_output = (torch.randn(shape, generator=generator) for _ in range(2))
    real = (edges.node >= 0).unsqueeze(-1)
    poisoned = x.masked_fill(~real, float("nan")).to(device).requires_grad_()
    there = _moved(edges, device, max_degree=max_degree)
    clean = x.masked_fill(~real, 0).double().requires_grad_()
    weight = None if edges.weight is None else edges.weight.double()
    reference = dataclasses.replace(edges, weight=weight)
    for name, op in OPERATIONS.items():
        with use_kernels("always"):
            actual = op(poisoned, there)
            (actual_grad,) = torch.autograd.grad(
                actual, poisoned, grad_output.to(device).masked_fill(~real.to(device), float("nan"))
            )
        with use_kernels("off"):
            expected = op(clean, reference)
            (expected_grad,) = torch.autograd.grad(
                expected, clean, grad_output.double().masked_fill(~real, 0)
            )
        assert_equal(actual.cpu().double(), expected, name, TOLERANCE)
        assert_equal(actual_grad.cpu().double(), expected_grad, f"gradient of {name}", TOLERANCE)


@pytest.mark.parametrize("d", [1, 20, 32, 130])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(d: int, weighted: bool, kernel_device: str) -> None:
    _check(_table(weighted=weighted), d, kernel_device, 20)


@pytest.mark.parametrize("max_degree", [None, 16])
def test_one_model(max_degree: int | None, kernel_device: str) -> None:
    _check(_table([1, 3, 2]), 8, kernel_device, max_degree)


@pytest.mark.parametrize("weighted", [False, True])
def test_many_neighbours(weighted: bool, kernel_device: str) -> None:
    dense = _table([[1, 0], [0, -1]], density=40.0, sizes=[40, 5], weighted=weighted)
    assert int((dense.ptr[1:] - dense.ptr[:-1]).max()) > 32
    _check(dense, 64, kernel_device, None)
    _check(_hub(137, weighted), 5, kernel_device, None)  # one more than a chunk


@pytest.mark.parametrize("max_degree", [None, 3])
def test_weights(max_degree: int | None, kernel_device: str) -> None:
    edge_index = torch.tensor([[0, 1, 2, 5], [1, 2, 0, 4]])
    weight = torch.tensor([0.5, 2.0, 3.0, -5.0])
    table = edge_table(edge_index, 6, weight)
    _check(table, 5, kernel_device, max_degree)
    with use_kernels("always"):
        actual = degrees(_moved(table, kernel_device))
    assert_equal(actual.cpu(), torch.tensor([3.5, 2.5, 5.0, 0.0, -5.0, -5.0]))


def test_weights_of_one_equal_no_weights(kernel_device: str) -> None:
    edges = _moved(_table(), kernel_device, max_degree=20)
    ones = dataclasses.replace(edges, weight=torch.ones(edges.neighbours.numel(), device=kernel_device))
    x = torch.randn(*edges.node.shape, 6, device=kernel_device, requires_grad=True)
    for op in (neighbour_sum, propagate):
        with use_kernels("always"):
            values = [op(x, table) for table in (edges, ones)]
            gradients = [torch.autograd.grad(value.square().sum(), x)[0] for value in values]
        assert_equal(values[1], values[0], op.__name__, 1e-6)
        assert_equal(gradients[1], gradients[0], f"gradient of {op.__name__}", 1e-6)


@pytest.mark.parametrize("max_degree", [None, 20])
def test_scale_of_weighted_edges(max_degree: int | None, kernel_device: str) -> None:
    from graphcaps.ops.propagation.neighbour_sum_triton import hop_scale

    for edges in (_table(weighted=True), *([_hub(137, weighted=True)] if max_degree is None else [])):
        there, degree = _moved(edges, kernel_device, max_degree=max_degree), degrees(edges)
        assert there.weight is not None
        for factor in (1, 2):  # weights may change in place
            expected = (factor * degree + 1).clamp_min(1).rsqrt().masked_fill(edges.node < 0, 0)
            assert_equal(hop_scale(there).cpu(), expected, f"scale with {factor} times the weights", 1e-6)
            there.weight.mul_(2)


def test_a_hop_on_a_subgraph(kernel_device: str) -> None:
    edges = _table()
    mask = (torch.arange(edges.node.size(-1)) % 3 > 0) & (edges.node >= 0)
    x = torch.randn(*edges.node.shape, 6, generator=torch.Generator().manual_seed(1))
    there, results = _moved(edges, kernel_device, max_degree=20), []
    for mode, table, device, dtype in (
        ("always", there, kernel_device, torch.float32),
        ("off", edges, "cpu", torch.float64),
    ):
        rows = x.to(device, dtype).requires_grad_()
        with use_kernels(mode):  # type: ignore[arg-type]
            value = propagate(rows, table, induced_scale(table, mask.to(device), dtype))
            (gradient,) = torch.autograd.grad(value.square().sum(), rows)
        results.append((value.cpu().double(), gradient.cpu().double()))
    assert_equal(results[0][0], results[1][0], "hop", TOLERANCE)
    assert_equal(results[0][1], results[1][1], "gradient", TOLERANCE)


def test_weights_that_require_a_gradient_get_it(kernel_device: str) -> None:
    weight = torch.tensor([0.5, 2.0], device=kernel_device, requires_grad=True)
    table = edge_table(torch.tensor([[0, 1], [1, 2]], device=kernel_device), 3, weight)
    with use_kernels("always"):
        (gradient,) = torch.autograd.grad(
            propagate(torch.ones(3, 4, device=kernel_device), table).sum(), weight
        )
    assert bool(gradient.ne(0).all())


def test_a_gradient_of_the_gradient(kernel_device: str) -> None:
    edges = _moved(_hub(20), kernel_device, max_degree=20)
    x = torch.randn(edges.node.numel(), 3, device=kernel_device, requires_grad=True)

    def second(mode: str) -> Tensor:
        with use_kernels(mode):  # type: ignore[arg-type]
            (gradient,) = torch.autograd.grad(propagate(x, edges).pow(3).sum(), x, create_graph=True)
            return torch.autograd.grad(gradient.square().sum(), x)[0]

    assert_equal(second("always"), second("off"), tolerance=1e-5)


def test_zero_rows(kernel_device: str) -> None:
    edges = _moved(edge_table(torch.zeros(2, 0, dtype=torch.int64), 0), kernel_device)
    with use_kernels("always"):
        assert propagate(torch.zeros(0, 4, device=kernel_device), edges).shape == (0, 4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_degree", [None, 20])
def test_programs_of_several_blocks(
    max_degree: int | None, weighted: bool, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours are loaded one block ahead, across graphs and padding."""
    from graphcaps.ops.propagation import neighbour_sum_triton

    tiles = neighbour_sum_triton.ListTiles(numbers=128, programs=1, warps=1)
    monkeypatch.setitem(neighbour_sum_triton.LIST_TILES, "forward", tiles)
    _check(_table(weighted=weighted), 12, kernel_device, max_degree)


@pytest.mark.slow
def test_many_long_lists(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More long lists in a block of rows than programs that share them, and more columns than one program has."""
    from graphcaps.ops.propagation import neighbour_sum_triton

    tiles = neighbour_sum_triton.LongListTiles(rows=16, shares=2, width=16, numbers=64)
    monkeypatch.setattr(neighbour_sum_triton, "LONG_LIST_TILES", tiles)
    dense = _table([[1, 0], [0, -1]], density=40.0, sizes=[40, 5])
    _check(dense, 40, kernel_device, None)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_degree", [None, 4, 300])
def test_sums_of_a_hop_are_the_hop_of_ones(
    weighted: bool, max_degree: int | None, kernel_device: str
) -> None:
    from graphcaps.ops.propagation.neighbour_sum_triton import hop_scale, hop_sums

    tables = (
        [_table(weighted=weighted)] if max_degree == 4 else [_hub(290, weighted), _table(weighted=weighted)]
    )
    for edges in tables:
        there = _moved(edges, kernel_device, max_degree=None if max_degree == 4 else max_degree)
        with use_kernels("off"):
            ones = (edges.node >= 0).double().unsqueeze(-1)
            exact = (
                edges if edges.weight is None else dataclasses.replace(edges, weight=edges.weight.double())
            )
            expected = propagate(ones, exact).squeeze(-1)
        found = hop_sums(there, hop_scale(there)).cpu().double()
        assert_equal(found, expected, "sums", TOLERANCE * 10)


@pytest.mark.parametrize("leaves", [3, 290], ids=["short lists", "long lists"])
def test_a_result_in_half_precision_is_rounded_once(leaves: int, kernel_device: str) -> None:
    """Sums of long lists are joined in float32."""
    from graphcaps.ops.propagation.neighbour_sum_triton import adjacency_product, hop_scale

    there = _moved(_hub(leaves), kernel_device)
    x = torch.randn(leaves + 7, 20, generator=torch.Generator().manual_seed(2)).to(kernel_device)
    exact, _ = adjacency_product(x, there, hop_scale(there), True, "tf32")
    half, _ = adjacency_product(x, there, hop_scale(there), True, "tf32", dtype=torch.float16)
    assert half.dtype == torch.float16
    assert torch.equal(half, exact.half())
