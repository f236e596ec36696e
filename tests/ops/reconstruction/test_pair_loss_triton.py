"""The loss of all pairs by kernels is that of the torch form in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.ops import PAPER, RELEASED, PairRule, reconstruction_loss
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from graphcaps.ops.edges import edge_table
from graphcaps.ops.propagation.propagation import to_edge_index
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.types import EdgeTable, Segments
from tests.graphs import assert_equal, random_graphs

TOLERANCE = 2e-5
# Share of the largest magnitude, where products are rounded to 11 or 8 bits.
ROUNDED: dict[Precision, float] = {"tf32": 5e-3, "bf16": 4e-2}
RULES = {
    "released": RELEASED,
    "paper": PAPER,
    "tight": PairRule(0.2, 0.9, 1e-13, True, "graphs"),
}
BARE = PairRule(0.0, 1.0, 1e-12, False, "pairs")


def rounded(rule: PairRule) -> PairRule:
    """The rule rounded to float32, where 1 − 1e-7 differs from 1."""
    low, high, epsilon = (float(np.float32(x)) for x in (rule.low, rule.high, rule.epsilon))
    return replace(rule, low=low, high=high, epsilon=epsilon)


def vectors(rows: int, d: int, seed: int) -> Tensor:
    """Rows around four centres whose products lie on both sides of both bounds, and away from them.

    Close to a bound the gradient changes by more than the error of a float32 product.
    """
    generator = torch.Generator().manual_seed(seed)
    for _ in range(10_000):
        centres = torch.randn(4, min(d, 4), generator=generator, dtype=torch.float64) * 0.7
        products = centres @ centres.T
        away = all(bool(((products - bound).abs() > 0.08).all()) for bound in (0.0, 0.2, 0.9, 1.0))
        seen = (products < 0).any() and ((products > 0.25) & (products < 0.85)).any() and (products > 1).any()
        if away and bool(seen):
            break
    else:
        raise AssertionError("no such centres were found")
    basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    z = centres[torch.randint(0, 4, (rows,), generator=generator)] @ basis[: centres.size(1)]
    return (z + 0.005 * torch.randn(rows, d, generator=generator, dtype=torch.float64) / d**0.5).float()


def batch_of(
    chosen: list[list[int]], sizes: list[int], rows: int, device: str, *, bits: bool, density: float = 2.0
) -> tuple[EdgeTable, Segments]:
    """Graphs of a store in rows of one length, one row per replica; the rest is padding."""
    store = random_graphs(sizes, density=density).as_store()
    B = max(len(graphs) for graphs in chosen) + 1
    table = torch.tensor([graphs + [-1] * (B - len(graphs)) for graphs in chosen])
    n = store.sizes[table.clamp_min(0)].masked_fill(table < 0, 0)
    ptr = torch.nn.functional.pad(n.cumsum(-1), (1, 0))
    row = torch.arange(rows).expand(len(chosen), rows).contiguous()
    index = torch.searchsorted(ptr[:, 1:].contiguous(), row, right=True)
    graph_index = index.clamp_max(B - 1)
    first = ptr[:, :-1].gather(-1, graph_index)
    node = store.node_ptr[table.clamp_min(0)].gather(-1, graph_index) + row - first
    node, first = node.masked_fill(index == B, -1), first.masked_fill(index == B, 0)
    adjacency_bits = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes) if bits else None
    if adjacency_bits is not None:
        adjacency_bits = replace(
            adjacency_bits, words=adjacency_bits.words.to(device), start=adjacency_bits.start.to(device)
        )
    edges = EdgeTable(
        store.edge_ptr.to(device),
        store.neighbours.to(device),
        None,
        node.to(device),
        first.to(device),
        bits=adjacency_bits,
    )
    return edges, Segments(ptr.to(device), index.to(device), max_size=int(n.max()))


def without_lead(edges: EdgeTable, segments: Segments) -> tuple[EdgeTable, Segments]:
    one = replace(edges, node=edges.node[0], first=edges.first[0])
    return one, Segments(segments.ptr[0], segments.index[0], max_size=segments.max_size)


def parted(z: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """``z`` as the sum of rows and a shift per graph; the shift of a graph without rows is NaN."""
    generator = torch.Generator().manual_seed(8)
    shift = torch.randn(*segments.sizes.shape, z.size(-1), generator=generator).to(z.device) * 0.3
    graph_index = segments.index.clamp_max(segments.num_graphs - 1).unsqueeze(-1).expand_as(z)
    rows = z - shift.gather(-2, graph_index)
    return rows, shift.masked_fill((segments.sizes == 0).unsqueeze(-1), float("nan"))


def check(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, tolerance: float = TOLERANCE
) -> None:
    """Loss and gradient by kernels against the torch form in float64; padding is poisoned."""
    check_parts(z, None, edges, segments, rule, tolerance)


def check_shifted(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, tolerance: float = TOLERANCE
) -> None:
    """The same for rows and a shift, whose sum ``z`` is."""
    check_parts(*parted(z, segments), edges, segments, rule, tolerance)


def check_parts(
    z: Tensor,
    shift: Tensor | None,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    tolerance: float,
    loss: Callable[..., Tensor] = reconstruction_loss,
) -> None:
    """Values and gradients of rows and shift, of the kernels and of the torch form in float64."""
    padding = (edges.node < 0).unsqueeze(-1)
    leaf = z.masked_fill(padding, float("nan")).requires_grad_()
    moved = None if shift is None else shift.clone().requires_grad_()
    lead = z.shape[:-2]
    outer = torch.linspace(0.5, 2, max(lead.numel(), 1), device=z.device).reshape(lead)
    with use_kernels("always"):
        actual = loss(leaf, edges, segments, rule, moved)
        actual.backward(outer)
        with torch.no_grad():
            bare = loss(leaf, edges, segments, rule, moved)
    exact = z.masked_fill(padding, 0).double().requires_grad_()
    exact_shift = None if shift is None else shift.nan_to_num(0.0).double().requires_grad_()
    expected = loss(exact, edges, segments, rounded(rule), exact_shift)
    expected.backward(outer.double())
    assert exact.grad is not None
    assert leaf.grad is not None
    assert float(exact.grad.abs().max()) > 0
    assert_equal(actual.double(), expected, "loss", tolerance)
    assert_equal(bare, actual, "loss without a gradient", tolerance)
    scale = exact.grad.abs().amax((-1, -2), keepdim=True).clamp_min(1e-30)  # each replica by itself
    assert_equal(leaf.grad.double() / scale, exact.grad / scale, "gradient", tolerance)
    assert torch.equal(leaf.grad.masked_select(padding), torch.zeros_like(leaf.grad.masked_select(padding)))
    if moved is not None:
        assert moved.grad is not None
        assert exact_shift is not None
        assert exact_shift.grad is not None
        scale = exact_shift.grad.abs().amax((-1, -2), keepdim=True).clamp_min(1e-30)
        assert_equal(
            moved.grad.double() / scale, exact_shift.grad / scale, "gradient of the shift", tolerance
        )


@pytest.fixture
def tall(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kernel_device: str) -> bool:
    """Whether tiles have 64 rows, where they can, or 32."""
    from graphcaps.ops.reconstruction import pair_loss_triton

    monkeypatch.setattr(pair_loss_triton, "TALL_FROM", 0 if request.param else 1 << 20)
    return bool(request.param)


@pytest.mark.parametrize(
    ("rule", "tall"),
    [(RULES["released"], True), (RULES["paper"], False), (RULES["tight"], True)],
    ids=["released tall", "paper", "tight tall"],
    indirect=["tall"],
)
def test_kernel_is_torch_for_replicas(
    rule: PairRule, tall: bool, kernel_device: str, empty_is_nan: None
) -> None:
    """One replica has odd sizes, one ends without padding rows, and one holds nothing but padding."""
    sizes = [1, 31, 33, 65, 2]
    edges, segments = batch_of([[0, 1, 2], [3, 0], [], [4]], sizes, 66, kernel_device, bits=True)
    z = vectors(4 * 66, 32, seed=2).reshape(4, 66, 32).to(kernel_device)
    check_shifted(z, edges, segments, rule)


@pytest.mark.parametrize("rule", [RELEASED, PAPER], ids=["released", "paper"])
def test_without_bits(rule: PairRule, kernel_device: str, empty_is_nan: None) -> None:
    edges, segments = batch_of([[1, 0], [2], []], [1, 9, 15], 15, kernel_device, bits=False)
    z = vectors(45, 32, seed=2).reshape(3, 15, 32).to(kernel_device)
    check_shifted(z, edges, segments, rule)


def _results(z: Tensor, edges: EdgeTable, segments: Segments) -> tuple[Tensor, Tensor]:
    """Loss and gradient by kernels."""
    leaf = z.clone().requires_grad_()
    with use_kernels("always"):
        loss = reconstruction_loss(leaf, edges, segments)
        loss.sum().backward()
    assert leaf.grad is not None
    return loss, leaf.grad


@pytest.mark.parametrize("tall", [False, True], ids=["32 rows", "64 rows"], indirect=True)
@pytest.mark.parametrize("density", [2.0, 40.0], ids=["sparse", "hubs"])
def test_neighbours_and_bits_are_the_same_edges(density: float, tall: bool, kernel_device: str) -> None:
    """Graphs of several words and tiles, some nodes with no neighbour in a word and some with more than 32 in all."""
    graphs, sizes = [[0, 1, 2], [3, 0], [], [4]], [1, 31, 70, 65, 2]
    z = vectors(4 * 103, 16, seed=2).reshape(4, 103, 16).to(kernel_device)
    expected, actual = (
        _results(z, *batch_of(graphs, sizes, 103, kernel_device, bits=bits, density=density))
        for bits in (True, False)
    )
    for name, found, value in zip(("loss", "gradient"), actual, expected, strict=True):
        assert_equal(found, value, name, 0.0 if kernel_device == "cpu" else 1e-6)  # a GPU has two kernels


def test_neighbours_counted_over_the_batch(kernel_device: str) -> None:
    """In the table of an edge index, neighbours are rows of the batch, not of their graph."""
    sizes = [5, 40, 3]
    edges, segments = without_lead(*batch_of([[0, 1, 2]], sizes, 48, kernel_device, bits=False))
    z = vectors(48, 16, seed=3).to(kernel_device)
    table = edge_table(to_edge_index(edges), 48)
    assert not table.first.any()
    for actual, expected in zip(_results(z, table, segments), _results(z, edges, segments), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("bits", [True, False], ids=["bits", "listed"])
def test_edges_with_products_close_to_one(bits: bool, kernel_device: str) -> None:
    """The gradient of an edge is about −1 there, and that of another pair about 10⁶: they must not be subtracted."""
    n = 40
    edges, segments = without_lead(*batch_of([[0]], [n], n, kernel_device, bits=bits, density=1000.0))
    assert edges.neighbours.numel() == n * (n - 1)  # all pairs
    generator = torch.Generator().manual_seed(2)
    z = torch.ones(n, 16) / 4 + 3e-4 * torch.randn(n, 16, generator=generator)
    z *= (1 - 1e-6) / z.norm(dim=-1, keepdim=True)
    exact = z.double().to(kernel_device).requires_grad_()
    reconstruction_loss(exact, edges, segments).backward()
    assert exact.grad is not None
    assert_equal(_results(z.to(kernel_device), edges, segments)[1].double(), exact.grad, "gradient", 1e-5)


@pytest.mark.parametrize(
    ("d", "bits"),
    [(3, True), (20, True), (250, True), (3, False), (250, False)],
    ids=lambda value: str(value) if value.__class__ is int else ("bits" if value else "listed"),
)
def test_kernel_is_torch_at_each_width(d: int, bits: bool, kernel_device: str, empty_is_nan: None) -> None:
    sizes = [33, 1] if bits else [12, 1, 7]
    rows = sum(sizes) + 3
    edges, segments = batch_of([list(range(len(sizes)))], sizes, rows, kernel_device, bits=bits)
    z = vectors(rows, d, seed=3).to(kernel_device)
    check_shifted(z, *without_lead(edges, segments), RELEASED)


@pytest.mark.parametrize(
    ("name", "d", "tall"),
    [("tf32", 8, True), ("tf32", 128, False), ("bf16", 8, False), ("bf16", 128, True)],
    indirect=["tall"],
)
def test_rounded_products(
    name: Precision, d: int, tall: bool, kernel_device: str, empty_is_nan: None
) -> None:
    edges, segments = batch_of([[0, 1, 2], []], [33, 1, 65], 101, kernel_device, bits=True)
    z = vectors(2 * 101, d, seed=3).reshape(2, 101, d).to(kernel_device)
    with use_precision(name):
        check_shifted(z, edges, segments, RELEASED, ROUNDED[name])


@pytest.mark.parametrize(
    "tiles",
    [{"ahead": True}, {"ahead": True, "block": 8}, {"block": 8}, {"height": 128, "warps": 8, "block": 8}],
    ids=["ahead", "blocks ahead", "blocks", "128 rows"],
)
def test_all_ways_to_load_columns(
    tiles: dict[str, Any], kernel_device: str, empty_is_nan: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphcaps.ops.reconstruction import pair_loss_triton

    options = {"height": 64, "warps": 4, "registers": 255, **tiles}
    monkeypatch.setitem(pair_loss_triton.TALL, 128, pair_loss_triton.PairTiles(**options))
    monkeypatch.setattr(pair_loss_triton, "TALL_FROM", 0)
    edges, segments = batch_of([[0, 1], []], [33, 65], 100, kernel_device, bits=True)
    z = vectors(200, 128, seed=3).reshape(2, 100, 128).to(kernel_device)
    with use_precision("tf32"):
        check_shifted(z, edges, segments, RELEASED, ROUNDED["tf32"])


def test_many_tiles(kernel_device: str, empty_is_nan: None) -> None:
    """The gradient of the shift is a sum over several tiles."""
    edges, segments = batch_of([[0]], [130], 133, kernel_device, bits=True)
    z = vectors(133, 16, seed=4).to(kernel_device)
    check_shifted(z, *without_lead(edges, segments), RELEASED)


@pytest.mark.parametrize("rule", [RELEASED, BARE], ids=["released", "bare"])
def test_a_large_graph(rule: PairRule, kernel_device: str, empty_is_nan: None) -> None:
    """Probabilities are multiplied over several steps before their logarithm is taken."""
    n = 130
    edges, segments = batch_of([[0]], [n], n, kernel_device, bits=True, density=30.0)
    z = vectors(n, 16, seed=4).to(kernel_device)
    check(z, *without_lead(edges, segments), rule)


def test_hubs_without_bits(kernel_device: str, empty_is_nan: None) -> None:
    """A node has more neighbours than one step takes."""
    edges, segments = batch_of([[0]], [42], 42, kernel_device, bits=False, density=60.0)
    assert int((edges.ptr[1:] - edges.ptr[:-1]).max()) > 32
    z = vectors(42, 16, seed=4).to(kernel_device)
    check(z, *without_lead(edges, segments), PAPER)


def test_tiles_are_looked_up_once(kernel_device: str) -> None:
    """Graph, its rows, the tile's first row and the graph's first word, as a search one by one finds them."""
    from graphcaps.ops._triton.tiling import tile_table

    edges, segments = batch_of([[0, 1, 2, 3], [3, 1], []], [1, 31, 33, 100], 170, kernel_device, bits=True)
    assert edges.bits is not None
    actual = tile_table(edges, 32, segments)
    assert tile_table(edges, 32, segments) is actual
    assert tile_table(replace(edges, bits=None), 32, segments) is not actual  # it has no words
    others = Segments(segments.ptr.clone(), segments.index)
    assert tile_table(edges, 32, others) is not actual
    B, V = segments.num_graphs, 170
    for replica, ptr in enumerate(segments.ptr.tolist()):
        begins = [first // 32 + graph for graph, first in enumerate(ptr)]
        for tile, (graph, first, end, top, high, low) in enumerate(actual[replica].tolist()):
            expected = max(g for g, begin in enumerate(begins) if begin <= tile)
            assert (graph, first, end) == (expected, ptr[expected], [*ptr[1:], V][expected])
            assert top == first + 32 * (tile - begins[expected])
            if graph < B and first < end:
                word = int(edges.bits.start[edges.node[replica, first]])
                assert (high, low) == (0, word)


def test_many_graphs(kernel_device: str) -> None:
    """Tiles of many graphs, some of them of none; a padding graph stands among them."""
    sizes = torch.ones(20, dtype=torch.int64)
    sizes[3], sizes[17] = 0, 34
    segments = Segments.from_sizes(sizes.to(kernel_device))
    V = int(sizes.sum())
    node = torch.arange(V, device=kernel_device)
    ptr = torch.zeros(V + 1, dtype=torch.int64, device=kernel_device)
    edges = EdgeTable(ptr, ptr[:0].int(), None, node, torch.zeros_like(node), num_entries=0)
    bits = pack_adjacency(ptr, ptr[:0].int(), sizes.to(kernel_device))
    check(vectors(V, 8, seed=5).to(kernel_device), replace(edges, bits=bits), segments, PAPER)


def test_nan_of_a_real_row_reaches_the_loss(kernel_device: str) -> None:
    edges, segments = batch_of([[0], [0]], [5], 5, kernel_device, bits=True)
    z = vectors(10, 8, seed=6).reshape(2, 5, 8).to(kernel_device)
    z[1, 2, 3] = float("nan")
    with use_kernels("always"):
        loss = reconstruction_loss(z, edges, segments)
    assert loss.isnan().tolist() == [False, True]


def test_repeated_calls_give_the_same_bits(kernel_device: str) -> None:
    edges, segments = batch_of([[0, 1], [1]], [40, 70], 110, kernel_device, bits=True)
    z = vectors(220, 8, seed=7).reshape(2, 110, 8).to(kernel_device)
    grads = []
    for _ in range(2):
        leaf = z.clone().requires_grad_()
        with use_kernels("always"):
            reconstruction_loss(leaf, edges, segments).sum().backward()
        grads.append(leaf.grad)
    assert torch.equal(grads[0], grads[1])


def test_zero_replicas(kernel_device: str) -> None:
    index = torch.zeros(0, 3, dtype=torch.int64, device=kernel_device)
    ptr = torch.zeros(0, 2, dtype=torch.int64, device=kernel_device)
    edges = EdgeTable(ptr.new_zeros(4), ptr.new_zeros(0), None, index, index)
    with use_kernels("always"):
        actual = reconstruction_loss(torch.zeros(0, 3, 4, device=kernel_device), edges, Segments(ptr, index))
    assert actual.shape == (0,)
