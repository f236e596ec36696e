"""MinCutPool against the same network on padded batches with torch-geometric's dense_mincut_pool."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import dense_mincut_pool
from torch_geometric.utils import coalesce, to_dense_adj, to_dense_batch

from graphcaps.errors import ArgumentError
from graphcaps.models.mincut import MinCut
from graphcaps.registry import DatasetSize
from graphcaps.types import ModelOutput
from tests.graphs import assert_equal, random_graphs

_HIDDEN, _CLUSTERS = 4, (3, 2)


class _Reference(nn.Module):
    """The network on padded batches; parameters have the names of ``MinCut``."""

    def __init__(self, model: MinCut) -> None:
        super().__init__()
        widths = [model.in_channels] + [_HIDDEN] * len(_CLUSTERS)
        self.input_norm = nn.BatchNorm1d(model.in_channels)
        self.convolutions = nn.ModuleList(
            nn.ModuleDict({"neighbours": nn.Linear(w, _HIDDEN), "root": nn.Linear(w, _HIDDEN, bias=False)})
            for w in widths
        )
        self.assigning = nn.ModuleList(
            nn.ModuleDict({"linears": nn.ModuleList([nn.Linear(_HIDDEN, 16), nn.Linear(16, k)])})
            for k in _CLUSTERS
        )
        self.head = nn.Linear(_HIDDEN, model.num_classes)
        self.double()
        own = self.state_dict()
        for name, value in model.state_dict().items():
            if "dropout" not in name:
                own[name].copy_(value.mT if value.dim() == 2 else value)

    def _convolve(self, level: int, x: Tensor, adjacency: Tensor) -> Tensor:
        layer: Any = self.convolutions[level]
        h: Tensor = layer["neighbours"](adjacency @ x) + layer["root"](x)
        return h.relu()

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, and the sums of both losses over levels."""
        x = torch.zeros_like(x).masked_scatter(mask.unsqueeze(-1), self.input_norm(x[mask]))
        degree = adjacency.sum(-1)
        scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
        adjacency = scale.unsqueeze(-1) * adjacency * scale.unsqueeze(-2)
        losses = []
        for level, layer in enumerate(self.assigning):
            x = self._convolve(level, x, adjacency)
            first, last = layer["linears"]  # type: ignore[index]
            x, adjacency, cut, orthogonality = dense_mincut_pool(
                x, adjacency, last(first(x).relu()), mask if level == 0 else None
            )
            losses.append(torch.stack([cut, orthogonality]))
        scores = self.head(self._convolve(-1, x, adjacency).mean(1))
        cut, orthogonality = torch.stack(losses).sum(0)
        return scores, cut, orthogonality


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_equals_torch_geometric(weighted: bool) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 5, 4], classes=3, density=3)
    options: dict[str, Any] = {"hidden": _HIDDEN, "num_clusters": _CLUSTERS}
    model = MinCut(5, 3, **options, cut_weight=0.7, orthogonality_weight=0.3).double()
    reference = _Reference(model)
    edge_index = coalesce(graphs.edge_index)
    weight = None
    if weighted:
        i, j = edge_index
        weight = 0.5 + ((i + 1) * (j + 1)).double().sin().square()  # the same in both directions
    output = model(graphs.x, edge_index, graphs.batch, edge_weight=weight)
    terms = model.loss(output, graphs.y)
    x, mask = to_dense_batch(graphs.x, graphs.batch)
    expected, cut, orthogonality = reference(x, to_dense_adj(edge_index, graphs.batch, weight).double(), mask)
    assert_equal(output.class_scores, expected, "logits")
    assert_equal(terms.terms["cut"], cut, "cut loss")
    assert_equal(terms.terms["orthogonality"], orthogonality, "orthogonality loss")
    total = nn.functional.cross_entropy(expected, graphs.y) + 0.7 * cut + 0.3 * orthogonality
    assert_equal(terms.total, total, "loss")
    terms.total.backward()
    total.backward()
    gradients: dict[str, Any] = {name: p.grad for name, p in reference.named_parameters()}
    for name, parameter in model.named_parameters():
        theirs = gradients[name]
        assert parameter.grad is not None
        assert_equal(parameter.grad, theirs.mT if theirs.dim() == 2 else theirs, f"gradient of {name}")


def test_loss_of_scores_alone_is_the_cross_entropy() -> None:
    model = MinCut(5, 2, hidden=4).double()
    graphs = random_graphs([3, 4])
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    alone = model.loss(ModelOutput(output.class_scores), graphs.y)
    assert set(alone.terms) == {"cross-entropy"}
    assert_equal(alone.total, model.loss(output, graphs.y).terms["cross-entropy"])


def test_numbers_of_clusters_follow_from_the_mean_number_of_nodes() -> None:
    rule = MinCut.data_options["num_clusters"].rule
    assert [rule(DatasetSize(counts, 2)) for counts in ((1,), (17, 18), (10, 30))] == [
        (1, 1),
        (9, 4),
        (10, 5),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clusters": ()}, "'num_clusters' must name at least one number, each at least 1, got"),
        ({"num_clusters": (3, 0)}, "'num_clusters' must name at least one number, each at least 1, got"),
        ({"hidden": 0}, "'hidden' must be at least 1, got 0"),
        ({"cut_weight": -1.0}, "'cut_weight' must be at least 0, got -1.0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^MinCut: {message}"):
        MinCut(5, 2, **options)
