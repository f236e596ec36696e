"""RandomPool: its scores are those of the seed, and the rest is the network of SAGPool."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.nn import GCNConv, global_max_pool, global_mean_pool
from torch_geometric.utils import coalesce, subgraph

from graphcaps.models.random_pool import RandomPool
from graphcaps.ops.node_hash import hash_nodes
from tests.graphs import assert_equal, random_graphs


def test_equals_a_loop_over_graphs_that_keeps_the_best_half() -> None:
    """Each graph alone, with nodes removed instead of masked; values and gradients."""
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 9], classes=2)
    model = RandomPool(5, 2, hidden=8, dropout=0.0).double()
    convs = [GCNConv(width, 8).double() for width in (5, 8, 8)]
    for ours, theirs in zip(model.convs, convs, strict=True):
        theirs.lin.weight.data.copy_(ours.weight.mT)
    score = hash_nodes(graphs.x, graphs.edges, model.seed, 3)
    assert len(score.unique()) == len(score)
    readouts = []
    for g in range(4):
        one = graphs.one(g)
        x, edge_index, left = one.x, coalesce(one.edge_index), score[graphs.batch == g]
        total = 0.0
        for conv in convs:
            x = conv(x, edge_index).relu()
            best = left.argsort(descending=True)[: -(-len(left) // 2)].sort().values
            edge_index, _ = subgraph(best, edge_index, relabel_nodes=True, num_nodes=len(left))
            x, left = x[best], left[best]
            batch = torch.zeros(len(x), dtype=torch.long)
            total = total + torch.cat([global_max_pool(x, batch), global_mean_pool(x, batch)], -1)
        readouts.append(total)
    hidden = model.second(model.first(torch.cat(readouts)).relu()).relu()
    expected = model.last(hidden)
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    assert_equal(output.class_scores, expected, "logits")
    model.loss(output, graphs.y).total.backward()
    nn.functional.cross_entropy(expected, graphs.y).backward(inputs=[conv.lin.weight for conv in convs])
    for number, (ours, theirs) in enumerate(zip(model.convs, convs, strict=True)):
        assert_equal(ours.weight.grad.mT, theirs.lin.weight.grad, f"gradient of convolution {number}")


def test_another_seed_keeps_other_nodes() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([20])
    model = RandomPool(5, 2, hidden=8).double().eval()
    first = model(graphs.x, graphs.edge_index).class_scores
    assert torch.equal(model(graphs.x, graphs.edge_index).class_scores, first)
    model.seed += 1
    assert not torch.allclose(model(graphs.x, graphs.edge_index).class_scores, first)
