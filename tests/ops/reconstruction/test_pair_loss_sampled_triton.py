"""The sampled loss by kernels is that of the torch form in float64, with the same pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.ops import PAPER, RELEASED, PairRule
from graphcaps.ops._triton.dispatch import MOST_SAMPLED_PAIRS, supports, use_kernels
from graphcaps.ops.reconstruction.pair_loss_sampled import sampled_reconstruction_loss
from graphcaps.ops.reconstruction.pair_sampling import sample_pairs
from graphcaps.types import EdgeTable, Segments
from tests.graphs import assert_equal
from tests.ops.reconstruction.test_pair_loss_triton import (
    TOLERANCE,
    batch_of,
    check_parts,
    parted,
    vectors,
    without_lead,
)

TIGHT = PairRule(0.2, 0.9, 1e-13, True, "graphs")
SIZES = [1, 31, 9, 40, 2]


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _keys(lead: tuple[int, ...], device: str, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (*lead, 2), generator=generator).to(torch.int32).to(device)


def _check(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, up_to: int, pairs: int, shifted: bool
) -> None:
    options = {"keys": _keys(tuple(z.shape[:-2]), str(z.device)), "up_to": up_to, "pairs": pairs}

    def loss(
        rows: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, shift: Tensor | None
    ) -> Tensor:
        value = sampled_reconstruction_loss(rows, edges, segments, rule, shift, **options)
        by_kernel = "_RowLoss" in type(value.grad_fn).__name__
        assert by_kernel == (rows.dtype == torch.float32 and value.requires_grad)  # else the torch form
        return value

    rows, moved = parted(z, segments) if shifted else (z, None)
    check_parts(rows, moved, edges, segments, rule, TOLERANCE, loss)


@pytest.mark.parametrize("bits", [True, False], ids=["bits", "listed"])
@pytest.mark.parametrize(
    ("rule", "up_to", "pairs"),
    [(RELEASED, 9, 8), (PAPER, 8, 3), (TIGHT, 1, 2), (RELEASED, 39, 1), (PAPER, 0, 8)],
    ids=["released", "paper", "tight", "one-large-graph", "all-graphs"],
)
def test_kernel_is_torch_for_replicas(
    rule: PairRule, up_to: int, pairs: int, bits: bool, kernel_device: str
) -> None:
    """Small and large graphs in one batch; one replica has no large graph, and one nothing but padding."""
    edges, segments = batch_of([[0, 1, 2], [3, 0], [], [4, 2]], SIZES, 44, kernel_device, bits=bits)
    z = vectors(4 * 44, 16, seed=2).reshape(4, 44, 16).to(kernel_device)
    _check(z, edges, segments, rule, up_to, pairs, shifted=True)


@pytest.mark.parametrize(("d", "shifted"), [(3, True), (20, False), (250, True), (250, False)])
def test_kernel_is_torch_at_each_width(d: int, shifted: bool, kernel_device: str) -> None:
    edges, segments = batch_of([[0, 1, 2]], [7, 1, 9], 19, kernel_device, bits=False)
    z = vectors(19, d, seed=3).to(kernel_device)
    _check(z, *without_lead(edges, segments), RELEASED, 5, 4, shifted)


def test_hubs(kernel_device: str) -> None:
    """A node has more neighbours than one step takes, and most partners are edges."""
    from graphcaps.ops.reconstruction import pair_loss_sampled_triton

    edges, segments = batch_of([[0]], [40], 40, kernel_device, bits=False, density=60.0)
    assert int((edges.ptr[1:] - edges.ptr[:-1]).max()) > pair_loss_sampled_triton._EDGES
    z = vectors(40, 16, seed=4).to(kernel_device)
    _check(z, *without_lead(edges, segments), PAPER, 9, 7, shifted=False)


@pytest.mark.parametrize("lead", [True, False])
def test_the_shuffle_is_that_of_the_torch_form(kernel_device: str, lead: bool) -> None:
    """Integers, equal bit by bit: the pairs of a step do not depend on the device."""
    from graphcaps.ops.reconstruction.pair_loss_sampled_triton import _shuffle

    edges, segments = batch_of([[0, 1, 2], [3, 0], [], [4, 2]], SIZES, 44, kernel_device, bits=False)
    if not lead:
        _, segments = without_lead(edges, segments)
    for seed in range(3):
        keys = _keys(tuple(segments.index.shape[:-1]), kernel_device, seed)
        expected, actual = sample_pairs(keys, segments, 3), _shuffle(keys, segments)
        V, B = segments.num_rows, segments.num_graphs
        replica = torch.arange(actual.order.size(0), device=kernel_device).unsqueeze(-1)
        real = (segments.index < B).reshape(-1)
        assert torch.equal((actual.order + replica * V).reshape(-1), expected.order)
        position = (actual.position + replica * V).reshape(-1) - expected.first
        assert torch.equal(position[real], expected.position[real])
        graph = (segments.index.clamp_max(B - 1).reshape(-1, V) + replica * B).reshape(-1)
        assert torch.equal(actual.start.reshape(-1)[graph][real].long(), expected.start[real])


def test_small_graphs_never_change(kernel_device: str) -> None:
    """The loss of graphs below the limit is that of all pairs, bit by bit, whatever is sampled."""
    from graphcaps.ops.reconstruction.pair_loss_sampled_triton import sampled_reconstruction_loss as kernel
    from graphcaps.ops.reconstruction.pair_loss_triton import reconstruction_loss as exact

    edges, segments = batch_of([[0, 1], [2]], [5, 33, 9], 40, kernel_device, bits=True)
    z = vectors(80, 8, seed=5).reshape(2, 40, 8).to(kernel_device)
    leaves = [z.clone().requires_grad_() for _ in range(2)]
    one = exact(leaves[0], edges, segments, RELEASED, None)
    two = kernel(leaves[1], edges, segments, RELEASED, None, _keys((2,), kernel_device), 33, 2)
    one.sum().backward()
    two.sum().backward()
    assert torch.equal(one, two)
    assert torch.equal(leaves[0].grad, leaves[1].grad)  # type: ignore[arg-type]


def test_the_same_keys_give_the_same_bits_and_other_keys_other_pairs(kernel_device: str) -> None:
    edges, segments = batch_of([[0, 1], [1]], [40, 30], 70, kernel_device, bits=True)
    z = vectors(140, 8, seed=7).reshape(2, 70, 8).to(kernel_device)
    losses, grads = [], []
    for seed in (1, 1, 2):
        leaf = z.clone().requires_grad_()
        with use_kernels("always"):
            loss = sampled_reconstruction_loss(
                leaf, edges, segments, keys=_keys((2,), kernel_device, seed), up_to=9, pairs=2
            )
        loss.sum().backward()
        losses.append(loss.detach())
        grads.append(leaf.grad)
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(grads[0], grads[1])  # type: ignore[arg-type]
    assert not torch.equal(losses[0], losses[2])


def test_a_replica_is_the_same_alone_as_among_others(kernel_device: str) -> None:
    edges, segments = batch_of([[1, 0], [2, 1]], [8, 30, 21], 55, kernel_device, bits=True)
    z, keys = vectors(110, 8, seed=7).reshape(2, 55, 8).to(kernel_device), _keys((2,), kernel_device)
    alone, one = batch_of([[2, 1]], [8, 30, 21], 60, kernel_device, bits=True)  # more padding, too
    with use_kernels("always"):
        together = sampled_reconstruction_loss(z, edges, segments, keys=keys, up_to=9, pairs=2)
        padded = torch.nn.functional.pad(z[1:], (0, 0, 0, 5), value=float("nan"))
        single = sampled_reconstruction_loss(padded, alone, one, keys=keys[1:], up_to=9, pairs=2)
    assert_equal(single[0], together[1], "loss", 1e-5)


def test_nan_of_a_real_row_reaches_the_loss(kernel_device: str) -> None:
    edges, segments = batch_of([[0], [0]], [15], 15, kernel_device, bits=True)
    z = vectors(30, 8, seed=6).reshape(2, 15, 8).to(kernel_device)
    z[1, 2, 3] = float("nan")
    with use_kernels("always"):
        loss = sampled_reconstruction_loss(z, edges, segments, up_to=9, rule=PAPER)
    assert loss.isnan().tolist() == [False, True]


def test_which_numbers_of_pairs_have_a_kernel(kernel_device: str) -> None:
    z = torch.zeros(3, 4, device=kernel_device)
    with use_kernels("always"):
        for pairs, has in ((MOST_SAMPLED_PAIRS, True), (MOST_SAMPLED_PAIRS + 1, False)):
            assert supports("sampled_reconstruction_loss", z, None, num_rows=3, pairs=pairs) is has
        assert not supports("sampled_reconstruction_loss", z, None, num_rows=2**29, pairs=8)
