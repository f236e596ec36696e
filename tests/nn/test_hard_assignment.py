"""The capsule of a node: by lift over the means of training graphs, by hand, with its guards and invariances."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.data import planted_parts
from graphcaps.explanation import explain
from graphcaps.nn import HGCN
from graphcaps.nn.hard_assignment import (
    MeanCoefficients,
    group_nodes,
    hard_assignment,
    lift,
    smallest_share,
)

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


def test_nodes_of_a_group_belong_to_one_capsule() -> None:
    # Means of nodes 0 and 1: 0.55 / 0.54 = 1.02, 0.25 / 0.235 = 1.06; of 2 and 3: 0.25 / 0.225 = 1.11 is the largest.
    groups = torch.tensor([0, 0, 2, 2])
    assert hard_assignment(C, MEAN, groups).tolist() == [1, 1, 2, 2]
    assert hard_assignment(C, MEAN, torch.arange(4)).tolist() == hard_assignment(C, MEAN).tolist()
    several = hard_assignment(C.expand(2, 4, 3), MEAN, torch.stack([groups, torch.arange(4)]))
    assert several.tolist() == [[1, 1, 2, 2], [0, 1, 2, 1]]


def test_groups_of_a_padded_batch_are_those_of_its_graphs() -> None:
    store = planted_parts(num_graphs=9)
    x = torch.zeros(store.num_nodes, 1)
    drawn = torch.tensor([[0, 3, 7], [5, 2, -1]])
    batch = store.batch(x, drawn)
    groups, segments = group_nodes(batch), batch.segments
    for f, b in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        rows = slice(*segments.ptr[f, b : b + 2].tolist())
        one = store[int(drawn[f, b])]
        alone = group_nodes(one.batch(torch.zeros(one.num_nodes, 1)))
        assert (groups[f, rows] - rows.start).tolist() == alone.tolist()
        assert alone.unique().numel() > 2
    padding = torch.arange(segments.num_rows)[int(segments.ptr[1, -1]) :]
    assert padding.numel()
    assert groups[1, padding].tolist() == padding.tolist()


def test_with_parts_every_node_has_its_own_capsule() -> None:
    store = planted_parts(num_graphs=3)
    x = torch.rand(store.num_nodes, 4, generator=torch.Generator().manual_seed(0))
    for parts, grouped in (("blocks", False), (None, True)):
        torch.manual_seed(0)
        model = HGCN(4, 3, capsule_dim=8, num_capsules=(5,), parts=parts).eval()
        explained = explain(model, store, x=x)
        assert model.assigns_groups is grouped
        assert (explained.groups is not None) is grouped
        assert (explained[1].levels[0].groups is not None) is grouped
        single = hard_assignment(explained.assignments[0], None, graph=explained.node_graph)
        assert torch.equal(explained.capsule, single) is not grouped


def test_reference_is_between_the_averages_of_training_graphs_and_graph() -> None:
    mean = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    assert float(lift(C, mean)[1, 1]) == pytest.approx(0.30 / (0.2 * 0.235**2) ** (1 / 3), abs=1e-12)
    # Without means, the average of the graph alone, which MEAN is.
    assert torch.allclose(lift(C, None), lift(C, MEAN), rtol=0, atol=1e-12)
    graph = torch.tensor([0, 0, 1, 1])
    expected = torch.cat([lift(C[:2], mean), lift(C[2:], mean)])
    assert torch.allclose(lift(C, mean, graph), expected, rtol=0, atol=1e-15)
    both = hard_assignment(C.expand(2, 4, 3), mean, graph=torch.stack([graph, torch.zeros_like(graph)]))
    assert both.tolist() == [
        hard_assignment(C, mean, graph=graph).tolist(),
        hard_assignment(C, mean).tolist(),
    ]


def test_a_graph_of_one_node_is_compared_with_the_training_graphs() -> None:
    alone = torch.arange(4)
    assert hard_assignment(C, MEAN, graph=alone).tolist() == [0, 1, 2, 1]
    assert (
        hard_assignment(C, None, graph=alone).tolist() == [0] * 4
    )  # without them, the largest coefficient counts


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
    graph = torch.arange(3)
    assert hard_assignment(c, mean, graph=graph).tolist() == [0, 1, 2]
    assert float(lift(c, mean, graph)[0, 2]) == pytest.approx(0.02 / 0.05)
    assert smallest_share(4) == 0.05
    assert smallest_share(40) == 0.0125
    empty = torch.tensor([0.6, 0.4, 0.0])
    assert hard_assignment(c, empty, graph=graph).tolist() == [0, 1, 2]
    assert bool(lift(c, empty, graph).isfinite().all())


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
