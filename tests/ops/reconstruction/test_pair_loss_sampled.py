"""The sampled reconstruction loss: exact if all pairs are sampled, else unbiased, and reproducible."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops import PAPER, RELEASED, PairRule, reconstruction_loss
from graphcaps.ops.activation.hashed_dropout import next_step_keys
from graphcaps.ops.edges import edge_table
from graphcaps.ops.reconstruction import pair_loss_sampled as module
from graphcaps.ops.reconstruction.pair_loss_sampled import sampled_reconstruction_loss
from graphcaps.ops.reconstruction.pair_sampling import sample_pairs
from graphcaps.types import GraphBatch, Segments
from tests.graphs import assert_equal, random_graphs, tiny_graphs, with_padding

RULES = {"released": RELEASED, "paper": PAPER}
ALL = 41


def _keys(*lead: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (*lead, 2), generator=generator).to(torch.int32)


def _vectors(batch: GraphBatch, seed: int = 1, scale: float = 0.6) -> Tensor:
    """Products on both sides of both bounds; padding holds NaN."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(*batch.segments.index.shape, 7, dtype=torch.float64, generator=generator) * scale
    return z.masked_fill((batch.edges.node < 0).unsqueeze(-1), float("nan"))


def _both(loss: Any, z: Tensor, batch: GraphBatch, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
    leaf = z.clone().requires_grad_()
    value = loss(leaf, batch.edges, batch.segments, *arguments, **options)
    factors = torch.arange(1, value.numel() + 1, dtype=z.dtype, device=z.device).reshape(value.shape)
    (value * factors).sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def _batches() -> dict[str, GraphBatch]:
    graphs = random_graphs([4, 9, 1, 17, 40], density=2.0)
    store = graphs.as_store()
    return {
        "one": random_graphs([33]).as_batch(),
        "several": graphs.as_batch(),
        "padded": with_padding(graphs.as_batch()),
        "replicas": store.batch(graphs.x, torch.tensor([[1, 4, -1, 0], [-1, -1, -1, -1], [4, 0, 3, 1]])),
    }


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("batch", _batches().values(), ids=_batches().keys())
@pytest.mark.parametrize("up_to", [0, 9, 39, 40], ids="exact-up-to-{}".format)
@pytest.mark.parametrize("chunk", [99, 1 << 19], ids=["few-rows", "large-chunks"])
def test_all_pairs_are_the_exact_loss(
    rule: PairRule, batch: GraphBatch, up_to: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With K = n nothing is left to chance, in batches of small and large graphs alike."""
    monkeypatch.setattr(module, "_CHUNK", chunk)
    z, keys = _vectors(batch), _keys(*batch.segments.index.shape[:-1])
    exact = _both(reconstruction_loss, z, batch, rule)
    actual = _both(sampled_reconstruction_loss, z, batch, rule, keys=keys, up_to=up_to, pairs=ALL)
    assert_equal(actual[0], exact[0], "loss")
    assert_equal(actual[1], exact[1], "gradient")
    assert bool((actual[1][batch.edges.node < 0] == 0).all())


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("pairs", [1, 3])
def test_the_mean_over_draws_is_the_exact_loss(rule: PairRule, pairs: int) -> None:
    """Within five standard errors of 8000 draws, which are replicas of one call; and the errors are small."""
    graphs = random_graphs([5, 12, 23], density=2.0)
    F = 8000
    batch = graphs.as_store().batch(graphs.x, torch.tensor([[0, 1, 2]]).expand(F, 3))
    # Inside the bounds: at a bound the paper's rule has gradients of 1e7, and no mean converges.
    one = torch.rand(40, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 0.35
    z = one.expand(F, 40, 7).clone().requires_grad_()
    drawn = sampled_reconstruction_loss(
        z, batch.edges, batch.segments, rule, keys=_keys(F), up_to=5, pairs=pairs
    )
    (grads,) = torch.autograd.grad(drawn.sum(), z)
    exact, grad = _both(reconstruction_loss, one, graphs.as_batch(), rule)
    for name, draws, expected in (("loss", drawn.detach(), exact), ("gradient", grads, grad)):
        spread = draws.std(0)
        error = (draws.mean(0) - expected).abs()
        assert bool((error <= 5 * spread / F**0.5 + 1e-12).all()), f"{name}: {float(error.max()):.3g}"
        assert float((5 * spread / F**0.5).max()) < 0.05 * float(expected.abs().max()), f"{name} is too wide"
        assert float(spread.max()) > 0, f"{name} is not drawn"


def test_the_gradient_is_that_of_the_loss_drawn() -> None:
    batch = random_graphs([11, 6, 1], density=1.0).as_batch()
    z = (torch.rand(18, 3, dtype=torch.float64) * 0.4).requires_grad_()

    def drawn(z: Tensor) -> Tensor:
        options = {"keys": _keys(), "up_to": 5, "pairs": 2}
        return sampled_reconstruction_loss(z, batch.edges, batch.segments, PAPER, **options)

    assert torch.autograd.gradcheck(drawn, (z,))


def test_nodes_are_paired_with_the_stated_probability() -> None:
    """Every sample is a matching; every pair of nodes is sampled K / n of the time, within five standard errors."""
    F, sizes, K = 3000, torch.tensor([7, 2, 12]), 3
    segments = Segments.from_sizes(sizes.expand(F, 3))
    samples = sample_pairs(_keys(F, seed=5), segments, K)
    every = slice(0, F * 21)
    row = torch.arange(F * 21)
    paired = torch.zeros(21, 21)
    for k in range(K):
        other = samples.partner(every, k)
        has = k < samples.count(every)
        assert torch.equal(samples.partner(every, k)[other], row)
        assert torch.equal(samples.matching_of(row[has], other[has]), torch.full_like(row[has], k))
        paired += torch.bincount((row % 21 * 21 + other % 21)[has], minlength=441).reshape(21, 21)
        assert torch.equal(row // 21, other // 21)  # inside a replica
    graph = segments.index[0]
    n = sizes[graph].float()
    p = torch.where(graph[:, None] == graph[None, :], n.clamp_max(K) / n, 0)
    error = 5 * (p * (1 - p) / F).sqrt()
    assert bool(((paired / F - p).abs() <= error + 1e-9).all())
    for row in (0, 7, 9):  # u is any of the n numbers, each as often
        share = torch.bincount(samples.start[row::21], minlength=12) / F
        p = torch.where(torch.arange(12) < n[row], 1 / n[row], 0)
        assert bool(((share - p).abs() <= 5 * (p / F).sqrt()).all())
    for a, b in ((0, 3), (9, 20)):  # pairs that are not sampled have no number
        pair = torch.arange(F) * 21
        number = samples.matching_of(pair + a, pair + b)
        together = sum((samples.partner(every, k)[pair + a] == pair + b).sum() for k in range(K))
        assert int((number < K).sum()) == int(together)


def test_a_replica_draws_the_same_alone_as_among_others() -> None:
    graphs = random_graphs([8, 30, 21], density=2.0)
    store, keys = graphs.as_store(), _keys(3)
    batch = store.batch(graphs.x, torch.tensor([[2, 0], [1, 2], [0, -1]]))
    z = _vectors(batch)
    together = _both(sampled_reconstruction_loss, z, batch, keys=keys, up_to=10, pairs=2)
    for r, chosen in enumerate([[2, 0], [1, 2], [0]]):
        alone = store.batch(graphs.x, torch.tensor(chosen))
        V = alone.segments.num_rows
        actual = _both(sampled_reconstruction_loss, z[r, :V], alone, keys=keys[r], up_to=10, pairs=2)
        assert_equal(actual[0], together[0][r], "loss", 1e-12)
        assert_equal((r + 1) * actual[1], together[1][r, :V], "gradient", 1e-12)


def test_draws_follow_their_keys() -> None:
    """The same keys, the same bits; other steps, other pairs; without keys one draw for ever."""
    batch = random_graphs([60], density=2.0).as_batch()
    z = _vectors(batch, scale=0.3)
    seed, step = torch.tensor(7), torch.tensor(0)
    first, second = next_step_keys(seed, step, None), next_step_keys(seed, step, None)
    actual = [
        _both(sampled_reconstruction_loss, z, batch, keys=keys, up_to=9, pairs=2)
        for keys in (first, second, first, None, None)
    ]
    assert torch.equal(actual[0][0], actual[2][0])
    assert torch.equal(actual[0][1], actual[2][1])
    assert torch.equal(actual[3][1], actual[4][1])
    assert float(actual[0][0]) != float(actual[1][0])


def test_the_same_draw_gives_the_same_bits_where_many_edges_meet() -> None:
    """On a GPU too, where edges of a hub are added up by many threads."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    nodes = 3000
    leaves = torch.arange(1, nodes)
    others = torch.randint(0, nodes, (2, 4 * nodes), generator=torch.Generator().manual_seed(2))
    ends = torch.cat([torch.stack([torch.zeros_like(leaves), leaves]), others], 1).to(device)
    segments = Segments.from_sizes(torch.tensor([nodes], device=device))
    z = (torch.rand(nodes, 32, generator=torch.Generator().manual_seed(3)) * 0.2).to(device)
    batch = GraphBatch(z, segments, edge_table(ends, nodes))
    first, *more = (
        _both(sampled_reconstruction_loss, z, batch, keys=_keys().to(device), up_to=9) for _ in range(5)
    )
    for again in more:
        assert torch.equal(again[0], first[0])
        assert torch.equal(again[1], first[1])


def test_small_graphs_never_change() -> None:
    """Not a bit, whatever is drawn, where the host knows the sizes and where it does not."""
    graphs = random_graphs([12, 33, 5])
    batch = graphs.as_batch()
    unknown = Segments(batch.segments.ptr, batch.segments.index, padded=False)
    z = _vectors(batch)
    for segments in (batch.segments, unknown):
        same = GraphBatch(batch.x, segments, batch.edges)
        exact = _both(reconstruction_loss, z, same)
        actual = _both(sampled_reconstruction_loss, z, same, up_to=33, keys=_keys())
        assert torch.equal(actual[0], exact[0])
        assert torch.equal(actual[1], exact[1])


@pytest.mark.parametrize("up_to", [0, 20, 40])
def test_a_shift_of_graphs_is_added_to_their_rows(up_to: int) -> None:
    graphs = random_graphs([30, 4, 40])
    batch = with_padding(graphs.as_batch())
    z = _vectors(batch, scale=0.3)
    shift = torch.rand(5, 7, dtype=torch.float64, requires_grad=True)
    actual = []
    for loss in (
        reconstruction_loss(z, batch.edges, batch.segments, PAPER, shift),
        sampled_reconstruction_loss(z, batch.edges, batch.segments, PAPER, shift, up_to=up_to, pairs=ALL),
    ):
        actual.append((loss.detach(), torch.autograd.grad(loss, shift)[0]))
    assert_equal(actual[1][0], actual[0][0], "loss")
    assert_equal(actual[1][1], actual[0][1], "gradient of the shift")


def test_a_loss_without_a_gradient() -> None:
    batch = random_graphs([30, 4]).as_batch()
    z = _vectors(batch)
    with torch.no_grad():
        bare = sampled_reconstruction_loss(z, batch.edges, batch.segments, up_to=9, pairs=3)
    assert torch.equal(bare, _both(sampled_reconstruction_loss, z, batch, up_to=9, pairs=3)[0])


def test_messages() -> None:
    batch = tiny_graphs().as_batch()
    with pytest.raises(ShapeError, match=r"'z' must have one row per node of the batch, \[7\], got \[6\]\."):
        sampled_reconstruction_loss(torch.zeros(6, 2), batch.edges, batch.segments)
    with pytest.raises(ArgumentError, match=r"'pairs' must be at least 1, got 0\."):
        sampled_reconstruction_loss(torch.zeros(7, 2), batch.edges, batch.segments, pairs=0)
