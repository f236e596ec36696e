"""Networks on precomputed levels against a dense implementation, graph by graph, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.data.structures.cliques import CliqueLevels
from graphcaps.errors import ArgumentError
from graphcaps.models.lookup import find_graph_model
from graphcaps.nn.coarsening_network import CoarseningNetwork
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.structure.structure import StoredLevel
from tests.graphs import assert_equal, random_graphs

NETWORKS = {
    "cliquepool": {},
    "cliquepool, mean": {"reduction": "mean", "num_pools": 3},
    "eigenpool": {"num_layers": 2, "cluster_sizes": (3, 2), "modes": 2, "final_modes": 2},
    "haarpool": {},
    "haarpool, one level": {"num_pools": 1},
}


def build(title: str) -> CoarseningNetwork:
    torch.manual_seed(0)
    model = find_graph_model(title.partition(",")[0])(5, 3, hidden=12, **NETWORKS[title]).double()
    assert isinstance(model, CoarseningNetwork)
    for parameter in model.parameters():  # no bias or shift stays 0
        torch.nn.init.normal_(parameter, std=0.5)
    for module in model.modules():
        if isinstance(module, RaggedBatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def dense(ptr: Tensor, neighbours: Tensor, weight: Tensor | None, n: int) -> Tensor:
    """Adjacency matrix of one graph from its entries."""
    A = torch.zeros(n, n, dtype=torch.float64)
    for node in range(n):
        entries = slice(int(ptr[node]), int(ptr[node + 1]))
        A[node, neighbours[entries].long()] = 1.0 if weight is None else weight[entries]
    return A


def membership(level: StoredLevel, graph: int, n: int) -> Tensor:
    """Weights of the members of one graph, ``[H, c, n]``; 1 if there are none."""
    first, end = level.node_ptr[graph : graph + 2].tolist()
    H = 1 if level.weights is None else level.weights.size(1)
    S = torch.zeros(H, end - first, n, dtype=torch.float64)
    for node in range(first, end):
        for entry in range(int(level.member_ptr[node]), int(level.member_ptr[node + 1])):
            S[:, node - first, int(level.members[entry])] = (
                1.0 if level.weights is None else level.weights[entry]
            )
    return S


def pool(x: Tensor, S: Tensor, reduction: str) -> Tensor:
    if reduction == "sum":
        return torch.cat([each @ x for each in S], 1)
    inside = S[0] > 0
    if reduction == "mean":
        return inside.double() @ x / inside.sum(1, keepdim=True)
    return torch.stack([x[row].amax(0) for row in inside])


def normalise(x: Tensor, norm: RaggedBatchNorm) -> Tensor:
    return torch.nn.functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)


def score_graph(model: CoarseningNetwork, store: GraphStore, x: Tensor, graph: int) -> Tensor:
    """Logits of one graph from dense matrices."""
    first, end = store.node_ptr[graph : graph + 2].tolist()
    H, n = x[first:end], end - first
    A = dense(store.edge_ptr[first : end + 1], store.neighbours, None, n)
    assert store.structure is not None
    levels = list(store.structure.levels)
    for number, block in enumerate(model.blocks):
        if number:
            level = levels.pop(0)
            H, (c, end_c) = (
                pool(H, membership(level, graph, n), model.reduction),
                level.node_ptr[graph : graph + 2],
            )
            n = int(end_c - c)
            A = dense(level.edge_ptr[c : end_c + 1], level.neighbours, level.edge_weight, n)
        loops = A + torch.eye(n, dtype=torch.float64)
        scale = loops.sum(1).rsqrt()
        hop = scale[:, None] * loops * scale
        for index, conv in enumerate(block.convs):
            H = H if not block.norms else normalise(H, block.norms[index])
            H = (hop @ H @ conv.weight + conv.bias).relu()
    for level in levels:
        H = pool(H, membership(level, graph, n), model.reduction)
        n = len(H)
    g = H.sum(0, keepdim=True)
    g = normalise(g, model.norms[0]) if model.norms else g
    g = (g @ model.inner.weight + model.inner.bias).relu()
    g = normalise(g, model.norms[1]) if model.norms else g
    return g @ model.outer.weight + model.outer.bias


@pytest.mark.parametrize("title", NETWORKS)
def test_equals_dense_matrices(title: str) -> None:
    model, graphs = build(title), random_graphs([6, 11, 1, 8], density=2.0)
    store = precompute(graphs.as_store(), model.precomputation, dtype=torch.float64)
    x = graphs.x.clone().requires_grad_()
    scores = model.forward_batch(store.batch(x)).class_scores
    expected = torch.cat([score_graph(model, store, x, graph) for graph in range(4)])
    assert_equal(scores, expected)
    direction = torch.randn_like(expected)
    inputs = [x, *model.parameters()]
    names = ["x", *(name for name, _ in model.named_parameters())]
    actual, wanted = (torch.autograd.grad((each * direction).sum(), inputs) for each in (scores, expected))
    for name, gradient, reference in zip(names, actual, wanted, strict=True):
        assert_equal(gradient, reference, f"gradient of {name}")
    assert all(bool(gradient.any()) for gradient in wanted)


def test_a_batch_without_levels_is_refused() -> None:
    graphs, model = random_graphs([4, 3]), build("cliquepool")
    expected = (
        r"'batch' must have 2 precomputed levels and 0 columns, got 0 and 0. Make batches from graphcaps"
    )
    with pytest.raises(ArgumentError, match=expected):
        model.forward_batch(graphs.as_batch())


def test_a_call_needs_no_node_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    model, graphs = build("cliquepool"), random_graphs([4, 3])
    monkeypatch.setattr(CliqueLevels, "reads_labels", True)
    with pytest.raises(
        ArgumentError, match="'x' must come with node labels, which are precomputed from, got none"
    ):
        model(graphs.x, graphs.edge_index, graphs.batch)


def test_a_call_without_nodes() -> None:
    model = build("cliquepool")
    scores = model(torch.zeros(0, 5, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.long), num_graphs=2)
    assert scores.class_scores.shape == (2, 3)
    assert scores.class_scores.isfinite().all()
