"""The network of Chen, Bian and Sun without graphcaps, and its comparison with a model in values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import coalesce

from graphcaps.nn.graph_model import GraphModel
from tests.graphs import assert_equal, random_graphs

__all__ = ["ConvReference", "assert_equals_reference"]

Call = Callable[[nn.Module, Tensor, Tensor, Tensor | None], Tensor]


class ConvReference(nn.Module):
    """BatchNorm, linear map, layers with BatchNorm before them, sum over nodes, two linear maps; ReLU between them.

    Args:
        layer (callable): Builds a layer of a given width.
        call (callable): Calls a layer with features, edges and edge weights.
    """

    def __init__(
        self,
        layer: Callable[[int], nn.Module],
        call: Call,
        in_channels: int,
        num_classes: int,
        hidden: int,
        num_layers: int,
    ) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(in_channels)
        self.input = nn.Linear(in_channels, hidden, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(num_layers))
        self.convs = nn.ModuleList(layer(hidden) for _ in range(num_layers))
        self.inner_norm = nn.BatchNorm1d(hidden)
        self.inner = nn.Linear(hidden, hidden)
        self.outer_norm = nn.BatchNorm1d(hidden)
        self.outer = nn.Linear(hidden, num_classes)
        self.call = call

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, weight: Tensor | None) -> Tensor:
        x = self.input(self.input_norm(x)).relu()
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = self.call(conv, norm(x), edge_index, weight).relu()
        g = global_add_pool(x, batch)
        g = self.inner(self.inner_norm(g)).relu()
        logits: Tensor = self.outer(self.outer_norm(g))
        return logits


def assert_equals_reference(
    model: GraphModel, reference: nn.Module, names: Callable[[str], str] = str, *, weighted: bool = False
) -> None:
    """Compares logits, loss, gradients and running statistics of two networks in float64, for five input features.

    Args:
        model (GraphModel): The model, without dropout, in training or evaluation mode.
        reference (Module): The same network, called with features, edges, graphs of nodes and edge weights. It takes
            over the parameters and buffers of the model; torch stores weights transposed.
        names (callable): Name of a tensor of the model in the reference. (default: the same)
        weighted (bool): Whether edges have weights. (default: False)
    """
    graphs = random_graphs([6, 9, 1, 4], classes=model.num_classes)
    model.double()
    for name, value in model.named_buffers():
        if "running" in name:
            nn.init.uniform_(value, 0.5, 2)
    reference.double().train(model.training)
    theirs = reference.state_dict()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if "dropout" not in name:
                target = theirs[names(name)]
                target.copy_(value.mT if target.dim() == 2 else value.view_as(target))
    edge_index = coalesce(graphs.edge_index)
    weight = None
    if weighted:
        i, j = edge_index
        weight = 0.5 + ((i + 1) * (j + 1)).double().sin().square()  # the same in both directions
    output = model(graphs.x, edge_index, graphs.batch, edge_weight=weight)
    expected = reference(graphs.x, edge_index, graphs.batch, weight)
    assert_equal(output.class_scores, expected, "logits")
    loss = model.loss(output, graphs.y).total
    expected_loss = nn.functional.cross_entropy(expected, graphs.y)
    assert_equal(loss, expected_loss, "loss")
    loss.backward()
    expected_loss.backward()
    parameters = dict(reference.named_parameters())
    assert len(parameters) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        gradient = parameters[names(name)].grad
        assert parameter.grad is not None
        assert gradient is not None
        gradient = gradient.mT if gradient.dim() == 2 else gradient.view_as(parameter)
        assert_equal(parameter.grad, gradient, f"gradient of {name}")
    running = dict(reference.named_buffers())
    for name, value in model.named_buffers():
        if "running" in name:
            assert_equal(value, running[names(name)], name)
