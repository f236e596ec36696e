"""Operations whose gradient is written out for a CPU equal their plain tensor operations: values, first and second
derivatives, with one model and with replicas and padding; float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.data.convert.array_graphs import from_arrays
from graphcaps.data.step_batches import collate_steps
from graphcaps.data.store import GraphStore
from graphcaps.nn import HGCN
from graphcaps.ops import coarsen, reconstruction_loss, route, route_dense, squash
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.activation.activation import activate
from graphcaps.ops.activation.hashed_dropout import HashedDropout, hash_rows, next_step_keys
from graphcaps.ops.lengths.lengths import lengths
from graphcaps.ops.linear import fold_norm
from graphcaps.ops.margin_loss.margin_loss import margin_loss
from graphcaps.ops.propagation.adjacency_tiles import adjacency_tiles
from graphcaps.ops.propagation.normalised_hop import normalised_hop
from graphcaps.ops.propagation.propagation import dense_hop
from graphcaps.types import GraphBatch
from tests.graphs import assert_equal

SIZES = [3, 9, 1, 7, 20, 5]


def make(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def small_store(sizes: list[int] = SIZES) -> GraphStore:
    """Random graphs of these sizes, the first nodes of which are joined; with classes."""
    generator = np.random.default_rng(0)
    matrices = [np.triu(generator.random((n, n)) < 0.4, 1).astype(float) for n in sizes]
    store = from_arrays([matrix + matrix.T for matrix in matrices])
    return replace(store, y=torch.arange(len(sizes)) % 2)


def small_batch(padded: bool) -> GraphBatch:
    store = small_store()
    graphs = [[0, 1, 2], [4, -1, 3]] if padded else [[4, 0, 1, 2]]
    return store.batch(make(store.num_nodes, 3).detach(), torch.tensor(graphs))


def check(form: Callable[..., Tensor], *inputs: Tensor, twice: bool = True) -> None:
    """Equal values and gradients of both forms, and equal gradients of a function of the gradients."""
    results = []
    for mode in ("auto", "reference"):
        leaves = [value.detach().clone().requires_grad_() for value in inputs]
        with use_kernels(mode):
            value = form(*leaves)
            weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape).cos()
            # Only a gradient without a graph of its own is the written one.
            loss = (value * weights).sum()
            listed = [value, *torch.autograd.grad(loss, leaves, retain_graph=twice)]
            if twice:
                grads = torch.autograd.grad(loss, leaves, create_graph=True)
                listed += grads
                total = sum(grad.square().sum() for grad in grads)
                listed += torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        results.append(listed)
    for number, (fast, plain) in enumerate(zip(*results, strict=True)):
        assert_equal(fast, plain, f"result {number}")


@pytest.mark.parametrize("epsilon", [1e-7, 0.0])
def test_squash_and_lengths(epsilon: float) -> None:
    z = make(4, 3, 5).detach()
    z[1, 2] = 0
    check(lambda z: squash(z, epsilon), z)
    check(lambda z: squash(z.transpose(0, 1), epsilon), z)
    check(lengths, z[2:])
    u = z[:2].clone().requires_grad_()
    (grad,) = torch.autograd.grad(lengths(u).sum(), u)
    assert grad[1, 2].eq(0).all()  # of length 0


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_activation(dropped: bool, masked: bool) -> None:
    z, bias, keys = make(2, 6, 5), make(2, 5, seed=1), torch.tensor([[7, -9], [2**31 - 1, 3]]).int()
    mask = torch.arange(6) < torch.tensor([[4], [6]]) if masked else None
    dropout = HashedDropout(keys, 0.4) if dropped else None
    check(lambda z, bias: activate(z, bias, dropout=dropout, mask=mask), z, bias)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_hashes_and_keys_are_those_of_tensor_operations(lead: tuple[int, ...]) -> None:
    seed = torch.randint(-(2**63), 2**63 - 1, lead, generator=torch.Generator().manual_seed(0))
    found = []
    for mode in ("auto", "reference"):
        with use_kernels(mode):
            step = torch.full(lead, 41)
            keys = next_step_keys(seed, step, None)
            found.append((keys, hash_rows(keys, 250, 4), step))
    for fast, plain in zip(*found, strict=True):
        assert torch.equal(fast, plain)
        assert fast.dtype == plain.dtype


@pytest.mark.parametrize("lead", [(), (2,)])
def test_fold_norm(lead: tuple[int, ...]) -> None:
    scale, shift, bias = make(*lead, 3), make(*lead, 3, seed=1), make(*lead, 4, seed=2)
    weight = make(*lead, 3, 4, seed=3)
    check(
        lambda *values: torch.cat([one.flatten() for one in fold_norm(*values)]), scale, shift, weight, bias
    )


def test_margin_loss() -> None:
    y = torch.tensor([[0, 2, 1, -1], [1, 1, -1, -1]])
    scores = make(2, 4, 3).sigmoid()
    weight = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    check(lambda scores: margin_loss(scores, y, 0.9, 0.1, 0.5, weight), scores)
    margins = torch.tensor([0.9, 0.8]), torch.tensor([0.1, 0.2])
    check(lambda scores: margin_loss(scores, y, *margins, 0.5), scores)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("divisor", [None, 7])
def test_hop_and_coarse_graph_of_small_graphs(padded: bool, divisor: int | None) -> None:
    batch = small_batch(padded)
    F = batch.segments.index.size(0)
    assert adjacency_tiles(batch.edges, batch.segments, torch.float64) is not None
    with use_kernels("reference"):
        assert adjacency_tiles(batch.edges, batch.segments, torch.float64) is None
    mask = batch.segments.row_mask
    rows = make(F, batch.segments.num_rows, 4)
    if mask is not None:
        rows = rows.detach().masked_fill(~mask.unsqueeze(-1), 0)

    def hop(u: Tensor) -> Tensor:
        running = torch.zeros(F, 4, dtype=torch.float64), torch.ones(F, 4, dtype=torch.float64)
        ones, zeros = torch.ones(F, 4, dtype=torch.float64), torch.zeros(F, 4, dtype=torch.float64)
        result = normalised_hop(
            u, ones, zeros, running, batch.edges, batch.segments,
            training=True, momentum=0.1, epsilon=1e-5, divisor=divisor,
        )  # fmt: skip
        assert result.mean is not None
        sizes = batch.segments.sizes.unsqueeze(-1)
        return torch.cat([result.h, result.mean.masked_fill(sizes == 0, 0)], -2)

    check(hop, rows)
    check(lambda c: coarsen(c, batch.edges, batch.segments), rows)


@pytest.mark.parametrize("padded", [False, True])
def test_reconstruction_of_small_graphs(padded: bool) -> None:
    batch = small_batch(padded)
    F, V = batch.segments.index.shape
    z, shift = 0.3 * make(F, V, 4), 0.3 * make(F, batch.segments.num_graphs, 4, seed=1)

    def loss(z: Tensor, shift: Tensor) -> Tensor:
        return reconstruction_loss(z, batch.edges, batch.segments, shift=shift)

    check(loss, z, shift, twice=False)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("residual", [False, True])
def test_routing(padded: bool, iterations: int, residual: bool) -> None:
    batch = small_batch(padded)
    F, V = batch.segments.index.shape
    mean = make(F, batch.segments.num_graphs, 1, 3, seed=3) if residual else None
    real = (batch.segments.sizes > 0)[..., None, None]
    parameters = make(F, 2, 4, 3, seed=1), make(F, 2, 3, seed=2)

    def ragged(h: Tensor, weight: Tensor, bias: Tensor, *r: Tensor) -> Tensor:
        routing = route(h, weight, bias, batch.segments, iterations, residual=r[0] if r else None)
        return routing.capsules.masked_fill(~real, 0)

    h = make(F, V, 4)
    if batch.segments.row_mask is not None:
        h = h.detach().masked_fill(~batch.segments.row_mask.unsqueeze(-1), 0)
    check(ragged, h, *parameters, *([] if mean is None else [mean]))
    dense = make(F, batch.segments.num_graphs, 5, 4)
    check(
        lambda h, w, e, *r: route_dense(h, w, e, iterations, *r).capsules,
        *(dense, *parameters, *([] if mean is None else [mean])),
    )


def test_dense_hop() -> None:
    adjacency = make(2, 3, 4, 4).detach().abs()
    check(lambda x: torch.cat(dense_hop(x, adjacency + adjacency.mT), -2), make(2, 3, 4, 5), twice=False)


def test_batches_of_several_steps_are_those_of_single_steps() -> None:
    store = small_store([*SIZES, 30])
    x = make(store.num_nodes, 3).detach()
    steps = [torch.tensor([graphs]) for graphs in ([0, 5, 2], [4, 1], [6], [3])]
    for together, graphs in zip(collate_steps(store, x, steps), steps, strict=True):
        alone = store.batch(x, graphs)
        for one, other in (
            (together, alone),
            (together.segments, alone.segments),
            (together.edges, alone.edges),
        ):
            for name, value in vars(one).items():
                if isinstance(value, Tensor):
                    assert torch.equal(value, getattr(other, name)), name
        assert together.segments.max_size == alone.segments.max_size
        assert together.edges.num_entries == alone.edges.num_entries
        tiles = adjacency_tiles(together.edges, together.segments, torch.float64)
        lone = adjacency_tiles(alone.edges, alone.segments, torch.float64)
        assert tiles is not None
        assert lone is not None
        t = lone.tiles.height
        assert torch.equal(tiles.adjacency[:, :t, :t], lone.adjacency)
        assert_equal(tiles.hop[:, :t, :t], lone.hop)
        assert tiles.adjacency[:, t:].eq(0).all()


def test_a_step_of_several_steps_trains_as_a_single_one() -> None:
    store = small_store()
    x = make(store.num_nodes, 3).detach()
    steps = [torch.tensor([[0, 4, 2]]), torch.tensor([[3, 1]])]
    results = []
    for batches in (collate_steps(store, x, steps), (store.batch(x, graphs) for graphs in steps)):
        torch.manual_seed(0)
        model = HGCN(3, 2, capsule_dim=8, num_capsules=(4,), num_factors=2, lead=(1,)).double()
        for batch in batches:
            assert batch.y is not None
            model.loss(model.forward_batch(batch, batch.y), batch.y).total.sum().backward()
        results.append([parameter.grad for parameter in model.parameters()])
    for fast, plain in zip(*results, strict=True):
        assert fast is not None
        assert_equal(fast, plain)
