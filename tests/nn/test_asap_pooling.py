"""ASAPooling against torch-geometric's, on ragged graphs and on the dense graphs that it makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import ASAPooling as TheirPooling
from torch_geometric.nn import GCNConv
from torch_geometric.utils import coalesce, to_dense_adj, to_dense_batch

from graphcaps.nn.asap_pooling import ASAPooling
from graphcaps.nn.collate import collate
from graphcaps.ops.neighbourhoods import RaggedNeighbourhoods
from tests.graphs import assert_equal, random_graphs

# torch-geometric multiplies sparse matrices, and torch warns once per process that these are in beta state.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR tensor support|invariant checks)")

NAMES = {
    "conv.weight": "gnn_intra_cluster.lin.weight",
    "conv.bias": "gnn_intra_cluster.bias",
    "query": "lin",
    "attention": "att",
    "fitness_member": "gnn_score.lin1",
    "fitness_centre": "gnn_score.lin2",
    "fitness_own": "gnn_score.lin3",
}
"""Names of parameters, or of the modules that have a weight and a bias, and their names in torch-geometric."""


def their_name(name: str) -> str:
    module, _, parameter = name.partition(".")
    return NAMES[name] if name in NAMES else f"{NAMES[module]}.{parameter}"


def pair(channels: int, ratio: float) -> tuple[ASAPooling, TheirPooling]:
    """Both modules with the same weights in float64."""
    ours = ASAPooling(channels, ratio).double()
    theirs = TheirPooling(channels, ratio, GNN=GCNConv).double()
    with torch.no_grad():
        nn.init.normal_(ours.conv.bias)
        theirs.select.weight.fill_(1)  # a weight of one number, of which only the sign acts
        targets = dict(theirs.named_parameters())
        for name, value in ours.named_parameters():
            targets[their_name(name)].copy_(value.mT if value.dim() == 2 else value)
    return ours, theirs


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(("ratio", "entries"), [(0.5, None), (0.8, None), (0.5, 300)])
def test_two_poolings_equal_torch_geometric(ratio: float, weighted: bool, entries: int | None) -> None:
    """Rows, edges and gradients after a pooling of ragged graphs and one of the dense graphs that follow.

    Also with a fixed number of entries, as in captured steps.
    """
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 9])
    edge_index = coalesce(graphs.edge_index)
    i, j = edge_index
    # The same in both directions.
    weight = 0.5 + ((i + 1) * (j + 1)).double().sin().square() if weighted else torch.ones(len(i)).double()
    pools = [pair(5, ratio) for _ in range(2)]
    one, two = graphs.x.clone().requires_grad_(), graphs.x.clone().requires_grad_()

    batch = collate("test", one, edge_index, graphs.batch, weight if weighted else None, None, torch.float64)
    edges = batch.edges
    if entries is not None:
        assert edge_index.size(1) < entries
        edges = replace(edges, num_entries=None, max_entries=entries)
    first = pools[0][0](one, RaggedNeighbourhoods.of(edges, batch.segments), None)
    second = pools[1][0](first.x.tanh(), first, first.used.flatten(-2))

    x, index, values, graph, _ = pools[0][1](two, edge_index, weight, graphs.batch)
    values = values.detach()
    _check(first.per_graph(first.x), first.adjacency, x, index, values, graph)
    x, index, values, graph, _ = pools[1][1](x.tanh(), index, values, graph)
    _check(second.per_graph(second.x), second.adjacency, x, index, values, graph)

    second.x.sin().sum().backward()
    x.sin().sum().backward()
    assert_equal(one.grad, two.grad, "gradient of x")
    for ours, theirs in pools:
        gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
        for name, parameter in ours.named_parameters():
            gradient = gradients[their_name(name)]
            assert gradient is not None
            assert_equal(
                parameter.grad, gradient.mT if gradient.dim() == 2 else gradient, f"gradient of {name}"
            )


def _check(
    rows: Tensor, adjacency: Tensor | None, x: Tensor, edge_index: Tensor, weight: Tensor, graph: Tensor
) -> None:
    dense, _ = to_dense_batch(x, graph)
    assert_equal(rows, dense, "rows")
    assert adjacency is not None
    assert_equal(adjacency, to_dense_adj(edge_index, graph, weight, max_num_nodes=dense.size(1)), "edges")


def test_a_path_by_hand() -> None:
    """A path of three equal nodes without attention logits: means over neighbourhoods, and the middle one is kept.

    The neighbourhoods of the ends have the weights ½, ½, the middle one ⅓, ⅓, ⅓.
    """
    pool = ASAPooling(1, 0.5).double()
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter.zero_()
        pool.fitness_member.bias.fill_(1)  # fitness σ(number of members)
    edge_index = torch.tensor([[0, 1], [1, 2]])
    x = torch.tensor([[1.0], [2.0], [6.0]]).double()
    batch = collate("test", x, edge_index, None, None, None, torch.float64)
    pooled = pool(x, RaggedNeighbourhoods.of(batch.edges, batch.segments), None)
    fitness = torch.tensor([3.0, 2.0]).double().sigmoid()
    assert_equal(pooled.x, torch.stack([3 * fitness[0], 1.5 * fitness[1]]).unsqueeze(-1), "rows")
    # ⅓ (1 1 1) (A + I) (½ ½ 0)ᵀ = ⅓ · (1 + 1 + ½)
    assert pooled.adjacency is not None
    assert_equal(pooled.adjacency[0], torch.tensor([[0.0, 2.5], [2.5, 0.0]]).double() / 3, "edges")


def test_attention_dropout_does_not_depend_on_the_number_of_entries() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 9])
    batch = collate("test", graphs.x, coalesce(graphs.edge_index), graphs.batch, None, None, torch.float64)
    bounded = replace(batch.edges, num_entries=None, max_entries=300)
    pool, pooled = ASAPooling(5, 0.5, dropout=0.4).double().train(), []
    for edges in (batch.edges, bounded):
        torch.manual_seed(1)
        pool.dropout.reset_parameters()
        pooled.append(pool(graphs.x, RaggedNeighbourhoods.of(edges, batch.segments), None))
    assert pooled[0].adjacency is not None
    assert_equal(pooled[0].x, pooled[1].x, "rows")
    assert_equal(pooled[0].adjacency, pooled[1].adjacency, "edges")
    assert (
        pool.eval()(graphs.x, RaggedNeighbourhoods.of(bounded, batch.segments), None).x != pooled[1].x
    ).any()
