"""hash_nodes: equal for equal colours, independent of node order and other graphs, and uniform."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphcaps.ops.edges import edge_table
from graphcaps.ops.node_hash import hash_nodes
from tests.graphs import random_graphs

SEED = torch.tensor(7)


def _path(n: int) -> Tensor:
    return torch.stack([torch.arange(n - 1), torch.arange(1, n)])


def test_a_path_has_the_numbers_of_its_colours() -> None:
    """Of nine equal nodes in a row, two iterations distinguish the ends, their neighbours, and the five inner nodes."""
    edges = edge_table(_path(9), 9)
    value = hash_nodes(torch.ones(9, 2), edges, SEED, 2).tolist()
    assert value[0] == value[8]
    assert value[1] == value[7]
    assert len({value[2], value[3], value[4], value[5], value[6]}) == 1
    assert len(set(value)) == 3
    assert len(set(hash_nodes(torch.ones(9, 2), edges, SEED, 0).tolist())) == 1
    assert len(set(hash_nodes(torch.ones(9, 2), edges, SEED, 4).tolist())) == 5


def test_node_order_and_edge_weights_do_not_matter() -> None:
    graphs = random_graphs([12, 7])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    order = torch.cat([order, torch.arange(12, 19)])
    value = hash_nodes(graphs.x, graphs.edges, SEED, 3)
    new_index = order.argsort()
    weight = torch.rand(graphs.edge_index.size(1), dtype=torch.float64)
    edges = edge_table(new_index[graphs.edge_index], 19, weight)
    assert torch.equal(hash_nodes(graphs.x[order], edges, SEED, 3), value[order])
    one = graphs.one(1)
    assert torch.equal(hash_nodes(one.x, one.edges, SEED, 3), value[12:])


def test_numbers_are_uniform_and_differ_between_seeds() -> None:
    x = torch.arange(4096.0).unsqueeze(-1)
    edges = edge_table(torch.zeros(2, 0, dtype=torch.long), 4096)
    first, second = (hash_nodes(x, edges, torch.tensor(seed), 1) for seed in (0, 1))
    for value in (first, second):
        counts = torch.histc(value, 16, 0, 1)
        assert float(((counts - 256) ** 2 / 256).sum()) < 45  # χ² of 15 degrees of freedom: one in 10,000
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.06


def test_replicas_have_the_numbers_of_their_seeds() -> None:
    x = torch.arange(6.0).unsqueeze(-1)
    edges = edge_table(_path(6), 6)
    value = hash_nodes(x, edges, SEED, 1)
    two = replace(edges, node=edges.node.expand(2, 6), first=edges.first.expand(2, 6), num_entries=20)
    stacked = hash_nodes(x.expand(2, 6, 1), two, torch.tensor([7, 8]), 1)
    assert torch.equal(stacked[0], value)
    assert not torch.equal(stacked[1], value)


def test_zero_has_no_sign() -> None:
    edges = edge_table(torch.zeros(2, 0, dtype=torch.long), 2)
    value = hash_nodes(torch.tensor([[0.0], [-0.0]]), edges, SEED, 0)
    assert value[0] == value[1]
