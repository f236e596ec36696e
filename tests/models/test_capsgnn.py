"""CapsGNN against the same network of dense operations, one graph at a time, with every vote stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.utils import to_dense_adj

from graphcaps.errors import ArgumentError
from graphcaps.models.capsgnn import CapsGNN, CapsGNNOutput
from graphcaps.ops.routing.naive import route_votes
from graphcaps.types import LossOptions, Segments
from tests.graphs import Graphs, assert_equal, random_graphs


def _route(u: Tensor, weight: Tensor, nodes: int) -> Tensor:
    """Output capsules ``[J, d]`` of all capsules ``u [V, C, d]`` of one graph."""
    votes = torch.einsum("vcd,jcde->vcje", u, weight).flatten(0, 1)
    segments = Segments.from_sizes(torch.tensor([len(votes)]))
    return route_votes(votes, segments, 3, divisor=torch.tensor([nodes])).capsules[0]


def _class_capsules(model: CapsGNN, normed: Tensor, graph: Graphs) -> Tensor:
    n, d = len(normed), model.capsule_dim
    A = to_dense_adj(graph.edge_index, max_num_nodes=n)[0].clamp_max(1).double() + torch.eye(n).double()
    scale = A.sum(-1).rsqrt()
    hop = scale.unsqueeze(-1) * A * scale
    h, outputs = model.embedding(normed), []
    for layer in model.layers:
        h = (hop @ layer(h)).tanh()
        outputs.append(h)
    joined = torch.cat(outputs, -1)
    attention = model.attention_scores(model.attention(joined).tanh()).softmax(0) * n
    u = joined.unflatten(-1, (-1, d)) * attention.unsqueeze(-1)
    return _route(_route(u, model.graph_votes, n).unsqueeze(0), model.class_votes, 1)


def test_equals_dense_operations_with_votes() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 12, 1, 4], classes=3, density=2)
    model = CapsGNN(5, 3, capsule_dim=3, num_layers=2, num_capsules=4, dropout=0.0).double()
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    normed = model.input_norm(graphs.x).split(graphs.sizes.tolist())
    capsules = torch.stack([_class_capsules(model, rows, graphs.one(g)) for g, rows in enumerate(normed)])
    assert_equal(output.class_capsules, capsules, "class capsules")
    assert_equal(output.class_scores, capsules.norm(dim=-1), "class scores")

    def gradients(values: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(values.sin().sum(), list(model.parameters()), allow_unused=True)
        return [gradient for gradient in found if gradient is not None]

    names = [name for name, _ in model.named_parameters() if not name.startswith("decoder")]
    for name, one, two in zip(names, gradients(output.class_capsules), gradients(capsules), strict=True):
        assert_equal(one, two, f"gradient of {name}", 1e-9)


def test_a_channel_of_a_node_is_dropped_as_a_whole() -> None:
    """Without a bias and edges, the first layer of a node is 0 if and only if all three channels are dropped."""
    torch.manual_seed(0)
    model = CapsGNN(2, 2, num_layers=1, dropout=0.5, reconstruction=False).double()
    graphs = random_graphs([400], channels=2, density=0)
    rows: list[Tensor] = []
    model.layers[0].register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0]))
    model(graphs.x, graphs.edge_index)
    channels = rows[0].unflatten(-1, (3, 8)) == 0
    dropped = channels.all(-1)
    assert torch.equal(channels.any(-1), dropped)
    assert 0.4 < float(dropped.double().mean()) < 0.6


def test_loss_has_two_terms() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 5])
    model = CapsGNN(5, 2, dropout=0.0)
    output = model(graphs.x.float(), graphs.edge_index, graphs.batch, y=graphs.y)
    assert isinstance(output, CapsGNNOutput)
    both = model.loss(output, graphs.y, LossOptions(reconstruction_weight=0.5))
    torch.testing.assert_close(both.total, both.terms["margin"] + 0.5 * both.terms["reconstruction"])
    assert set(model.loss(output, graphs.y, LossOptions(reconstruction_weight=0.0)).terms) == {"margin"}
    bare = CapsGNN(5, 2, reconstruction=False)
    assert bare.decoder is None
    output = bare(graphs.x.float(), graphs.edge_index, graphs.batch, y=graphs.y)
    assert set(bare.loss(output, graphs.y).terms) == {"margin"}


@pytest.mark.parametrize(
    "option", ["capsule_dim", "channels", "num_layers", "num_capsules", "routing_iterations"]
)
def test_invalid_options_are_refused(option: str) -> None:
    options: Any = {option: 0}
    with pytest.raises(ArgumentError, match=f"^CapsGNN: '{option}' must be at least 1, got 0"):
        CapsGNN(5, 2, **options)
