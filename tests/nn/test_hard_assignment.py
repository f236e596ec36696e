"""The capsule of a node: by lift over the means of training graphs, by hand, with its guards and invariances."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.data import planted_parts
from graphcaps.nn import HGCN
from graphcaps.nn.hard_assignment import MeanCoefficients, hard_assignment, lift, smallest_share

C = torch.tensor(  # the first capsule has the largest coefficient of every node
    [
        [0.60, 0.20, 0.20],
        [0.50, 0.30, 0.20],
        [0.52, 0.18, 0.30],
        [0.54, 0.26, 0.20],
    ],
    dtype=torch.float64,
)
MEAN = torch.tensor([0.54, 0.235, 0.225], dtype=torch.float64)


def test_example_by_hand() -> None:
    assert torch.allclose(C.mean(0), MEAN, rtol=0, atol=1e-15)
    assert C.argmax(-1).tolist() == [0, 0, 0, 0]
    # 0.60 / 0.54 = 1.11, 0.30 / 0.235 = 1.28, 0.30 / 0.225 = 1.33, 0.26 / 0.235 = 1.11
    assert hard_assignment(C, MEAN).tolist() == [0, 1, 2, 1]
    assert float(lift(C, MEAN)[1, 1]) == pytest.approx(0.30 / 0.235, abs=1e-15)


def test_without_means_the_largest_coefficient_counts() -> None:
    assert hard_assignment(C, None).tolist() == [0, 0, 0, 0]


def test_leading_axes_and_order_of_nodes() -> None:
    order = torch.tensor([2, 0, 3, 1])
    assert hard_assignment(C[order], MEAN).tolist() == hard_assignment(C, MEAN)[order].tolist()
    other = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    both = hard_assignment(C.expand(2, 4, 3), torch.stack([MEAN, other]))
    assert both.tolist() == [hard_assignment(C, mean).tolist() for mean in (MEAN, other)]


def test_order_of_capsules() -> None:
    order = torch.tensor([1, 2, 0])
    moved = hard_assignment(C[:, order], MEAN[order])
    assert order[moved].tolist() == hard_assignment(C, MEAN).tolist()


def test_an_unused_capsule_does_not_win_by_its_small_mean() -> None:
    """0.02 is twenty times its mean of 0.001; a node that is all of this capsule belongs to it."""
    mean = torch.tensor([0.599, 0.4, 0.001])
    c = torch.tensor([[0.68, 0.30, 0.02], [0.48, 0.50, 0.02], [0.02, 0.02, 0.96]])
    assert hard_assignment(c, mean).tolist() == [0, 1, 2]
    assert float(lift(c, mean)[0, 2]) == pytest.approx(0.02 / 0.05)
    assert smallest_share(4) == 0.05
    assert smallest_share(40) == 0.0125
    empty = torch.tensor([0.6, 0.4, 0.0])
    assert hard_assignment(c, empty).tolist() == [0, 1, 2]
    assert bool(lift(c, empty).isfinite().all())


@pytest.mark.parametrize("mean", [[0.4, 0.3, 0.3], [0.58, 0.41, 0.01]])
def test_rounding_does_not_distribute_equal_nodes(mean: list[float]) -> None:
    """All nodes have the means as coefficients, up to rounding: they share the capsule with the largest one."""
    means = torch.tensor(mean, dtype=torch.float64)
    noise = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    equal = means * (1 + 1e-4 * noise)
    assert set(lift(equal, means).argmax(-1).tolist()) != {0}
    assert hard_assignment(equal, means).tolist() == [0] * 50
    assert set(hard_assignment(means * (1 + 1e-2 * noise.abs()), means).tolist()) != {0}


@pytest.mark.parametrize("trace", [False, True])
def test_means_over_batches(trace: bool) -> None:
    """Means of batches are those over all nodes and graphs; padding and graphs without nodes do not count."""
    torch.manual_seed(0)
    store = planted_parts(num_graphs=9)[:7]
    x = torch.rand(store.num_nodes, 4, dtype=torch.float64)
    model = HGCN(4, 3, capsule_dim=8, num_capsules=(6, 3)).double().eval()
    means = MeanCoefficients()
    for chunk in torch.tensor([0, 1, 2, 3, 4, 5, 6, -1, -1]).split(3):
        batch = store.batch(x, chunk)
        means.add(model.forward_batch(batch, trace=trace), batch.segments)
    found = means.means()
    assert found is not None
    levels = model.forward_batch(store.batch(x), trace=trace).levels
    for mean, level in zip(found, levels, strict=True):
        assert mean.shape == ((3 if trace else 1), level.assignment.size(-1))
        expected = level.assignment.flatten(0, -2).mean(0)
        assert torch.allclose(mean[-1], expected, rtol=0, atol=1e-12)
        assert torch.allclose(mean.sum(-1), torch.ones(len(mean), dtype=torch.float64), rtol=0, atol=1e-12)
        if trace:
            assert level.iterations is not None
            assert torch.allclose(mean[1], level.iterations[1].flatten(0, -2).mean(0), rtol=0, atol=1e-12)


def test_means_of_replicas() -> None:
    """Of two replicas with graphs of their own, each has the means of its nodes, whatever padding holds."""
    torch.manual_seed(0)
    store = planted_parts(num_graphs=6)
    x = torch.rand(store.num_nodes, 4, dtype=torch.float64)
    model = HGCN(4, 3, capsule_dim=8, num_capsules=(4,), lead=(2,)).double().eval()
    graphs = torch.tensor([[0, 1, 2, 3], [4, 2, -1, -1]])
    batch, means = store.batch(x, graphs), MeanCoefficients()
    assert means.means() is None
    output = model.forward_batch(batch)
    mask = batch.segments.row_mask
    assert mask is not None
    undefined = output.levels[0].assignment.masked_fill(~mask.unsqueeze(-1), torch.nan)
    means.add(
        replace(output, levels=(replace(output.levels[0], assignment=undefined), *output.levels[1:])),
        batch.segments,
    )
    found = means.means()
    assert found is not None
    for replica, count in enumerate((4, 2)):
        nodes = int(store.sizes[graphs[replica, :count]].sum())
        expected = output.levels[0].assignment[replica, :nodes].mean(0)
        assert torch.allclose(found[0][0, replica], expected, rtol=0, atol=1e-12)
        classes = output.levels[1].assignment[replica, :count].flatten(0, 1).mean(0)
        assert torch.allclose(found[1][0, replica], classes, rtol=0, atol=1e-12)
