"""The tiled reconstruction is the n×n formula."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphcaps.errors import ShapeError
from graphcaps.ops import PAPER, RELEASED, PairRule, reconstruction_loss, reconstruction_loss_naive
from graphcaps.ops.ragged.tiles import tile_rows
from graphcaps.ops.reconstruction import pair_loss as module
from graphcaps.types import Segments
from tests.graphs import assert_equal, random_graphs, tiny_graphs, with_padding

RULES = {"released": RELEASED, "paper": PAPER}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("sizes", [[1], [2, 1], [63, 65, 5], [1, 500]], ids=str)
@pytest.mark.parametrize("chunk", [1, 1 << 21], ids=["one-tile-a-time", "large-chunks"])
def test_tiled_is_naive(
    rule: PairRule, sizes: list[int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    if chunk == 1 and sizes[-1] == 500:
        sizes = [1, 90]
    graphs = random_graphs(sizes)
    segments = Segments(graphs.segments.ptr, graphs.segments.index, padded=False)  # sizes unknown to the host
    # Products on both sides of both bounds.
    z = torch.randn(sum(sizes), 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 0.6
    results = []
    for loss in (reconstruction_loss, reconstruction_loss_naive):
        leaf = z.clone().requires_grad_()
        value = loss(leaf, graphs.edges, segments, rule)
        (3 * value).backward()
        results.append((value, leaf.grad))
    assert_equal(results[0][0], results[1][0], "loss")
    assert_equal(results[0][1], results[1][1], "gradient")


@pytest.mark.parametrize("sizes", [[20, 30, 7], [90, 3]], ids=["one-tile", "several-tiles"])
@pytest.mark.parametrize("chunk", [1, 1 << 21], ids=["one-tile-a-time", "large-chunks"])
def test_edges_with_products_close_to_one(
    sizes: list[int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of an edge is about −1 there, and that of another pair about 10⁶: they must not be subtracted."""
    monkeypatch.setattr(module, "CHUNK", chunk)
    graphs = random_graphs(sizes)
    node = torch.arange(sum(sizes))
    source, target = torch.meshgrid(node, node, indexing="ij")
    together = (graphs.segments.index[source] == graphs.segments.index[target]) & (source != target)
    graphs.edge_index = torch.stack([source[together], target[together]])
    generator = torch.Generator().manual_seed(2)
    z = torch.ones(sum(sizes), 16) / 4 + 3e-4 * torch.randn(sum(sizes), 16, generator=generator)
    z *= (1 - 1e-6) / z.norm(dim=-1, keepdim=True)
    segments = Segments(graphs.segments.ptr, graphs.segments.index, padded=False)
    gradients = []
    for leaf in (z.clone().requires_grad_(), z.double().requires_grad_()):
        reconstruction_loss(leaf, graphs.edges, segments, RELEASED).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.double())
    assert_equal(gradients[0], gradients[1], "gradient", tolerance=1e-5)


def test_by_hand() -> None:
    """Two joined nodes with product 0.5: four pairs, of which the diagonal counts as 0."""
    graphs = random_graphs([2])
    graphs.edge_index = torch.tensor([[0, 1], [1, 0]])
    z = torch.tensor([[1.0], [0.5]], dtype=torch.float64)
    expected = -(2 * math.log(0.5 + 1e-7) + 2 * math.log(1 + 1e-7)) / 4
    assert float(reconstruction_loss(z, graphs.edges, graphs.segments)) == pytest.approx(expected, abs=1e-14)


def test_padding_never_counts() -> None:
    batch = tiny_graphs().as_batch()
    z = torch.rand(7, 4, dtype=torch.float64)
    bare = z.clone().requires_grad_()
    padded_batch = with_padding(batch)
    padded = torch.cat([z, torch.full((3, 4), float("nan"), dtype=torch.float64)]).requires_grad_()
    for rule in RULES.values():
        one = reconstruction_loss(bare, batch.edges, batch.segments, rule)
        two = reconstruction_loss(padded, padded_batch.edges, padded_batch.segments, rule)
        assert_equal(two, one)
    (gradient,) = torch.autograd.grad(two, padded)
    assert torch.equal(gradient[7:], torch.zeros(3, 4, dtype=torch.float64))
    assert bool(gradient.isfinite().all())


def test_a_shift_is_added_to_all_nodes_of_a_graph() -> None:
    batch = with_padding(tiny_graphs().as_batch())
    segments, generator = batch.segments, torch.Generator().manual_seed(1)
    z = torch.rand(10, 4, dtype=torch.float64, generator=generator)
    shift = torch.rand(segments.num_graphs, 4, dtype=torch.float64, generator=generator)
    results = []
    for as_argument in (True, False):
        rows, code = z.clone().requires_grad_(), shift.clone().requires_grad_()
        embeddings = (
            rows if as_argument else rows + torch.nn.functional.pad(code, (0, 0, 0, 1))[segments.index]
        )
        loss = reconstruction_loss(embeddings, batch.edges, segments, shift=code if as_argument else None)
        results.append((loss, *torch.autograd.grad(loss, (rows, code))))
    for one, two, name in zip(*results, ("loss", "rows", "shift"), strict=True):
        assert_equal(one, two, name)
    with pytest.raises(ShapeError, match=r"'shift' must be one row per graph, \[5, 4\], got \[3, 4\]\."):
        reconstruction_loss(z, batch.edges, segments, shift=shift[:3])


PEAK = """
import resource, sys, torch
from graphcaps.ops import reconstruction_loss
from tests.graphs import random_graphs
torch.set_num_threads(1)
graphs = random_graphs([int(sys.argv[1])])
z = (torch.rand(len(graphs.x), 2, dtype=torch.float64) * 0.1).requires_grad_()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reconstruction_loss(z, graphs.edges, graphs.segments).backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_square() -> None:
    """Runs in a new process, since peak memory is measured per process; 12,000² float64 would take 1.15 GB."""
    pytest.importorskip("resource")
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, "12000"], cwd=root, env=os.environ | {"PYTHONPATH": f"{root}/src:{root}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    scale = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout) * scale < 300e6


def test_message() -> None:
    batch = tiny_graphs().as_batch()
    with pytest.raises(ShapeError, match=r"'z' must have one row per node of the batch, \[7\], got \[6\]\."):
        reconstruction_loss(torch.zeros(6, 2), batch.edges, batch.segments)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("sizes", [[1], [2, 1, 31], [32, 5, 20], [90, 100]], ids=str)
@pytest.mark.parametrize("value", [0.0, 0.6], ids=["zero", "random"])
def test_one_tile_per_graph_is_naive(rule: PairRule, sizes: list[int], value: float) -> None:
    """Where the host knows that graphs are small, each is one product; products at a bound are free to move."""
    graphs = random_graphs(sizes, density=3.0)
    segments = graphs.segments
    assert tile_rows(segments).single
    z = torch.randn(sum(sizes), 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * value
    if value:
        z[::3] = torch.eye(7, dtype=torch.float64)[0]  # products that are 1 exactly
    results = []
    with torch.no_grad():
        bare = reconstruction_loss(z, graphs.edges, segments, rule)
    for loss in (reconstruction_loss, reconstruction_loss_naive):
        leaf = z.clone().requires_grad_()
        actual = loss(leaf, graphs.edges, segments, rule)
        (3 * actual).backward()
        results.append((actual, leaf.grad))
    assert_equal(bare, results[1][0], "loss without a gradient")
    assert_equal(results[0][0], results[1][0], "loss")
    assert_equal(results[0][1], results[1][1], "gradient")


def test_one_tile_per_graph_is_many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas with padding rows, padding graphs and nothing at all: both forms of the torch path agree."""
    graphs = random_graphs([4, 9, 1, 17])
    batch = graphs.as_store().batch(graphs.x, torch.tensor([[1, 3, -1], [-1, -1, -1], [2, 0, 1]]))
    segments, edges = batch.segments, batch.edges
    assert tile_rows(segments).single
    z = torch.randn(*segments.index.shape, 5, dtype=torch.float64) * 0.6
    z = z.masked_fill((edges.node < 0).unsqueeze(-1), float("nan"))
    results = []
    for chunk in (1 << 21, 1):
        monkeypatch.setattr(module, "CHUNK", chunk)
        leaf = z.clone().requires_grad_()
        actual = reconstruction_loss(leaf, edges, segments)
        (actual * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        results.append((actual, leaf.grad))
    assert_equal(results[0][0], results[1][0], "loss")
    assert_equal(results[0][1], results[1][1], "gradient")
