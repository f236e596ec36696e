"""Pooling and top-k against torch-geometric."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.nn.pool.select.topk import topk

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import max_pool, mean_pool, sum_pool, top_k
from graphcaps.types import Segments
from tests.graphs import assert_equal, random_graphs, with_padding

POOLS = {
    "sum": (sum_pool, global_add_pool),
    "mean": (mean_pool, global_mean_pool),
    "max": (max_pool, global_max_pool),
}
Pool = Callable[..., Tensor]


@pytest.mark.parametrize("name", POOLS)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), seed=st.integers(0, 100))
def test_pooling_equals_torch_geometric(name: str, sizes: list[int], seed: int) -> None:
    """Also graphs without nodes, before, between and after others."""
    ours, theirs = POOLS[name]
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(batch), 3, generator=generator, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    value = ours(one, batch, num_graphs=len(sizes))
    expected = theirs(two, batch, size=len(sizes))
    assert_equal(value, expected)
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert_equal(one.grad, two.grad, "gradient")


@pytest.mark.parametrize("name", POOLS)
def test_without_batch_there_is_one_graph(name: str) -> None:
    ours, theirs = POOLS[name]
    x = torch.randn(5, 3, dtype=torch.float64)
    assert_equal(ours(x), theirs(x, torch.zeros(5).long()))
    assert_equal(ours(x[:0]), torch.zeros(1, 3, dtype=torch.float64), "a graph without nodes")


@pytest.mark.parametrize("name", POOLS)
def test_padding_of_a_batch_does_not_matter(name: str) -> None:
    ours, _ = POOLS[name]
    batch = random_graphs([6, 9, 1]).as_batch()
    padded = with_padding(batch)
    one, two = batch.x.clone().requires_grad_(), padded.x.clone().requires_grad_()
    value, expected = ours(two, padded.segments), ours(one, batch.segments)
    assert_equal(value[:3], expected)
    assert bool((value[3:] == 0).all())
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert_equal(two.grad[:16], one.grad, "gradient")
    assert bool((two.grad[16:] == 0).all())


@pytest.mark.parametrize("name", POOLS)
def test_replicas_equal_separate_batches(name: str) -> None:
    ours, _ = POOLS[name]
    graphs = random_graphs([7, 4, 1, 12])
    store = graphs.as_store()
    drawn = [[0, 1], [3, 2], [2, -1]]
    batch = store.batch(graphs.x, torch.tensor(drawn))
    together = ours(batch.x, batch.segments)
    for f, indices in enumerate(drawn):
        alone = store.batch(graphs.x, torch.tensor([i for i in indices if i >= 0]))
        assert_equal(together[f, : alone.num_graphs], ours(alone.x, alone.segments), f"replica {f}")


def test_tied_maxima_share_the_gradient() -> None:
    """Also where the maximum is 0, as after a ReLU."""
    x = torch.tensor([[0.0], [0.0], [-1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    max_pool(x, torch.tensor([0, 0, 0, 1])).sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [0.5, 0.5, 0, 1]


scores = st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 3.0]), max_size=6), min_size=1, max_size=5)


def _top_k_by_sorting(graph_scores: list[list[float]], kept: Callable[[int], int]) -> list[list[int]]:
    """Rows to keep in each graph, in order, by Python's stable sort."""
    first, chosen = 0, []
    for values in graph_scores:
        order = sorted(range(len(values)), key=lambda i: -values[i])
        chosen.append([first + i for i in order[: kept(len(values))]])
        first += len(values)
    return chosen


@given(scores, st.integers(1, 8))
def test_top_k_with_ties_equals_stable_sorting(graph_scores: list[list[float]], k: int) -> None:
    expected = _top_k_by_sorting(graph_scores, lambda n: min(k, n))
    batch = torch.tensor([g for g, values in enumerate(graph_scores) for _ in values], dtype=torch.long)
    flat = torch.tensor([s for values in graph_scores for s in values], dtype=torch.float64)
    best = top_k(flat, batch, k=k, num_graphs=len(graph_scores))
    mask, ptr = best.segments.row_mask, best.segments.ptr.tolist()
    assert mask is not None
    assert [best.index[a:b].tolist() for a, b in pairwise(ptr)] == expected
    assert int(mask.sum()) == ptr[-1]
    assert best.mask.nonzero().flatten().tolist() == sorted(chain(*expected))
    assert best.score[mask].tolist() == flat[best.index[mask]].tolist()
    assert bool((best.score[~mask] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    ratio=st.one_of(st.floats(0.01, 0.999), st.sampled_from([0.1, 0.2, 0.5, 0.7, 0.9])),
    seed=st.integers(0, 100),
)
def test_top_k_equals_torch_geometric(dtype: torch.dtype, sizes: list[int], ratio: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(sum(sizes), generator=generator, dtype=dtype)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    best = top_k(score, batch, ratio=ratio)
    mask = best.segments.row_mask
    assert mask is not None
    assert best.index[mask].tolist() == topk(score, ratio, batch).tolist()
    assert best.segments.index[mask].tolist() == batch[best.index[mask]].tolist()
    for k in (1, 7):
        fixed = top_k(score, batch, k=k)
        assert fixed.index[fixed.segments.row_mask].tolist() == topk(score, k, batch).tolist()
        assert fixed.segments.max_size == k


def test_the_ratio_one_keeps_all_nodes() -> None:
    """In torch-geometric it is the number 1 and keeps one node."""
    best = top_k(torch.tensor([0.3, 0.1, 0.8, 0.5]), torch.tensor([0, 0, 0, 1]), ratio=1.0)
    assert best.index.tolist() == [2, 0, 1, 3]
    assert bool(best.mask.all())


@pytest.mark.parametrize("how", [{"k": 3}, {"ratio": 0.4}], ids=["k", "ratio"])
def test_top_k_of_replicas_and_padding(how: dict[str, float]) -> None:
    """A replica among others equals the replica alone; padding rows may hold NaN or the highest score."""
    graphs = random_graphs([7, 4, 1, 12])
    store = graphs.as_store()
    drawn = [[0, 1], [3, 2], [2, -1], [-1, -1]]
    batch = store.batch(graphs.x, torch.tensor(drawn))
    row_mask = batch.segments.row_mask
    assert row_mask is not None
    for value in (float("nan"), 1e9, -1e9):
        score = batch.x[..., 0].masked_fill(~row_mask, value)
        best = top_k(score, batch.segments, **how)  # type: ignore[arg-type]
        rows = best.select(batch.x)
        kept = best.segments.row_mask
        assert kept is not None
        assert not bool((best.mask & ~row_mask).any())
        for f, indices in enumerate(drawn):
            real = [i for i in indices if i >= 0]
            if not real:
                assert not bool(kept[f].any())
                continue
            alone = store.batch(graphs.x, torch.tensor(real))
            single = top_k(alone.x[..., 0], alone.segments, **how)  # type: ignore[arg-type]
            single_mask = single.segments.row_mask
            assert single_mask is not None
            assert best.index[f, kept[f]].tolist() == single.index[single_mask].tolist()
            assert_equal(rows[f, kept[f]], single.select(alone.x)[single_mask])
            V = alone.segments.num_rows
            assert torch.equal(best.mask[f, :V], single.mask)


def test_top_k_is_differentiable_in_its_scores() -> None:
    score = torch.tensor([0.3, -0.2, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    best = top_k(score, torch.tensor([0, 0, 0, 1]), k=2)
    (best.score * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert score.grad is not None
    assert score.grad.tolist() == [2, 0, 1, 3]


def test_shapes_depend_on_sizes_alone() -> None:
    """As many rows as can be needed, whatever the graphs are."""
    for sizes in ([1, 1, 1, 9], [3, 3, 3, 3]):
        batch = torch.arange(4).repeat_interleave(torch.tensor(sizes))
        assert top_k(torch.rand(12), batch, k=2).index.shape == (8,)
        assert top_k(torch.rand(12), batch, ratio=0.25).index.shape == (8,)
        assert top_k(torch.rand(12), batch, k=5).index.shape == (12,)


def test_wrong_arguments_are_refused() -> None:
    x, batch = torch.rand(4, 2), torch.tensor([0, 0, 1, 1])
    for call, message in (
        (lambda: sum_pool(x, batch.flip(0)), "sum_pool: 'batch' must be sorted"),
        (lambda: mean_pool(x, batch[1:]), "mean_pool: 'batch' must have one entry per node, 4, got [3]."),
        (
            lambda: max_pool(x, batch, num_graphs=1),
            "max_pool: 'batch' must name graphs below 'num_graphs', 1",
        ),
        (lambda: sum_pool(x, batch.float()), "sum_pool: 'batch' must be an integer tensor"),
        (
            lambda: sum_pool(x, Segments.from_index(batch[1:])),
            "sum_pool: 'x' must have one row per node of the batch, [3], got [4].",
        ),
    ):
        with pytest.raises(ShapeError, match=re.escape(message)):
            call()
    with pytest.raises(
        ArgumentError, match=r"sum_pool: 'num_graphs' must be None if 'batch' is Segments, got 2\."
    ):
        sum_pool(x, Segments.from_index(batch), num_graphs=2)
