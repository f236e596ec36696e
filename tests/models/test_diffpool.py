"""DiffPool against the same network on padded batches with torch-geometric's dense_diff_pool."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import dense_diff_pool
from torch_geometric.utils import coalesce, to_dense_adj, to_dense_batch

from graphcaps.errors import ArgumentError
from graphcaps.models.diffpool import DiffPool
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.edges import edge_table_from_list
from graphcaps.registry import DatasetSize
from graphcaps.types import EdgeList, GraphBatch, ModelOutput
from tests.graphs import Graphs, assert_equal, random_graphs


class _Convolutions(nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_layers: int) -> None:
        super().__init__()
        widths = [in_channels] + [hidden] * (num_layers - 1)
        self.linears = nn.ModuleList(nn.Linear(width, hidden) for width in widths)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(num_layers - 1))

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> Tensor:
        results = []
        for number, linear in enumerate(self.linears):
            x = linear(adjacency @ x)
            x = x / x.norm(dim=-1, keepdim=True)
            if number < len(self.norms):
                real = self.norms[number](x.relu()[mask])
                x = torch.zeros_like(x).masked_scatter(mask.unsqueeze(-1), real)
            results.append(x * mask.unsqueeze(-1))
        return torch.cat(results, -1)


def _renamed(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters or buffers of ``DiffPool`` under the names of the reference, whose weights are transposed."""
    renamed: dict[str, Tensor] = {}
    for name, value in values.items():
        if name.startswith("nodes."):  # both networks of the nodes, stacked
            rest = name.removeprefix("nodes.")
            renamed |= {f"embedding.{rest}": value[0], f"assigning.{rest}": value[1]}
        elif "dropout" not in name:
            renamed[name] = value
    return {name: value.mT if value.dim() == 2 else value for name, value in renamed.items()}


class _Reference(nn.Module):
    """The network on padded batches; two networks of the nodes, which ``DiffPool`` stacks."""

    def __init__(self, model: DiffPool, hidden: int, num_layers: int) -> None:
        super().__init__()
        width = hidden * num_layers
        self.embedding = _Convolutions(model.in_channels, hidden, num_layers)
        self.assigning = _Convolutions(model.in_channels, hidden, num_layers)
        self.clusters = nn.Linear(width, model.num_clusters)
        self.coarse = _Convolutions(width, hidden, num_layers)
        self.head = nn.Module()
        self.head.linears = nn.ModuleList([nn.Linear(2 * width, 50), nn.Linear(50, model.num_classes)])
        self.double()
        own = self.state_dict()
        for name, value in _renamed(model.state_dict()).items():
            own[name].copy_(value)

    def forward(
        self, x: Tensor, adjacency: Tensor, mask: Tensor, sizes: list[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and the mean link loss and entropy of single graphs."""
        z = self.embedding(x, adjacency, mask)
        logits = self.clusters(self.assigning(x, adjacency, mask))
        pooled, coarse, _, _ = dense_diff_pool(z, adjacency, logits, mask)
        graphs = torch.ones(pooled.shape[:2], dtype=torch.bool)
        above = self.coarse(pooled, coarse, graphs)
        below = z.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
        first, last = self.head.linears
        scores = last(first(torch.cat([below, above.amax(1)], -1)).relu())
        losses = [
            dense_diff_pool(z[g, :n], adjacency[g, :n, :n], logits[g, :n])[2:] for g, n in enumerate(sizes)
        ]
        link, entropy = (torch.stack(values).mean() for values in zip(*losses, strict=True))
        return scores, link, entropy


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_equals_torch_geometric(training: bool) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1, 4], classes=3, density=3)
    model = DiffPool(5, 3, hidden=4, num_clusters=3, link_weight=0.7, entropy_weight=0.3).double()
    for value in model.buffers():
        if value.is_floating_point():
            nn.init.uniform_(value, 0.5, 2)
    model.train(training)
    reference = _Reference(model, 4, 3).train(training)
    edge_index = coalesce(graphs.edge_index)
    output = model(graphs.x, edge_index, graphs.batch)
    terms = model.loss(output, graphs.y)
    x, mask = to_dense_batch(graphs.x, graphs.batch)
    adjacency = to_dense_adj(edge_index, graphs.batch).double()
    expected, link, entropy = reference(x, adjacency, mask, graphs.sizes.tolist())
    assert_equal(output.class_scores, expected, "logits")
    assert_equal(terms.terms["link"], link, "link loss")
    assert_equal(terms.terms["entropy"], entropy, "entropy")
    total = nn.functional.cross_entropy(expected, graphs.y) + 0.7 * link + 0.3 * entropy
    assert_equal(terms.total, total, "loss")
    terms.total.backward()
    total.backward()
    ours = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    gradients = _renamed(ours)
    assert len(ours) == len(list(model.parameters()))
    for name, parameter in reference.named_parameters():
        assert parameter.grad is not None
        assert_equal(gradients[name], parameter.grad, f"gradient of {name}")
    running = _renamed(dict(model.named_buffers()))
    for name, value in reference.named_buffers():
        if "num_batches" not in name:
            assert_equal(running[name], value, name)


def test_edges_from_a_list_give_the_same_scores() -> None:
    """As exported models read them."""
    torch.manual_seed(0)
    graphs = random_graphs([6, 9])
    model = DiffPool(5, 2, hidden=4, num_clusters=2).double()
    i, j = coalesce(graphs.edge_index)
    weight = 0.5 + ((i + 1) * (j + 1)).double().sin().square()
    expected = model(graphs.x, torch.stack([i, j]), graphs.batch, edge_weight=weight)
    table = edge_table_from_list(EdgeList(i, j, weight), len(graphs.x))
    with use_kernels("reference"):
        output = model.forward_batch(GraphBatch(graphs.x, graphs.segments, table))
    assert_equal(output.class_scores, expected.class_scores)


def test_loss_of_scores_alone_is_the_cross_entropy() -> None:
    model = DiffPool(5, 2, hidden=4, num_clusters=2).double()
    graphs: Graphs = random_graphs([3, 4])
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    alone = model.loss(ModelOutput(output.class_scores), graphs.y)
    assert set(alone.terms) == {"cross-entropy"}
    assert_equal(alone.total, model.loss(output, graphs.y).terms["cross-entropy"])


def test_number_of_clusters_is_a_tenth_of_the_largest_graph() -> None:
    rule = DiffPool.data_options["num_clusters"].rule
    assert [rule(DatasetSize((1, n), 2)) for n in (5, 28, 126, 3000)] == [1, 2, 12, 100]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clusters": 0}, r"^DiffPool: 'num_clusters' must be at least 1, got 0\.$"),
        ({"link_weight": -1.0}, r"^DiffPool: 'link_weight' must be at least 0, got -1\.0\.$"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        DiffPool(5, 2, **options)
