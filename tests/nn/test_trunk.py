"""Trunk: message passing layers before the linear votes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GINConv, GINEConv, SAGEConv
from torch_geometric.utils import coalesce

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN, Trunk
from graphcaps.ops import edge_table
from graphcaps.ops._triton.dispatch import WIDEST_ATTENTION
from graphcaps.ops.edge_kinds import edge_kind, one_hot_kinds
from tests.graphs import assert_equal, random_graphs

KINDS = (3, 2)
OWN_LAYERS = [("gin", ()), ("sage", ()), ("gat", ()), ("gat", KINDS), ("gine", KINDS)]


class _Identity(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


class _Narrow(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x[:, :1]


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5))


def _reference(kind: str, edge_kinds: tuple[int, ...]) -> nn.Module:
    """The layer of torch-geometric that a layer of a trunk equals; self-loops have no edge label."""
    return {
        "gin": lambda: GINConv(_mlp(), train_eps=True),
        "gine": lambda: GINEConv(_mlp(), train_eps=True, edge_dim=sum(edge_kinds)),
        "sage": lambda: SAGEConv(5, 5),
        "gat": lambda: GATConv(5, 5, edge_dim=sum(edge_kinds) or None, fill_value=0.0),
    }[kind]().double()  # fmt: skip


def _label_pairs(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    return [(ours["label"], theirs["lin.weight"].mT), (ours["label_bias"], theirs["lin.bias"])]


def _pairs(kind: str, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Our parameters, or their gradients, each with the part of those of torch-geometric that it equals."""
    if kind in ("gin", "gine"):
        labels = _label_pairs(ours, theirs) if kind == "gine" else []
        return [
            *labels,
            (ours["epsilon"].flatten(), theirs["eps"].flatten()),
            (ours["mlp.linears.0.weight"], theirs["nn.0.weight"].mT),
            (ours["mlp.linears.0.bias"], theirs["nn.0.bias"]),
            (ours["mlp.linears.1.weight"], theirs["nn.2.weight"].mT),
            (ours["mlp.linears.1.bias"], theirs["nn.2.bias"]),
        ]
    if kind == "sage":
        return [
            (ours["neighbours.weight"], theirs["lin_l.weight"].mT),
            (ours["neighbours.bias"], theirs["lin_l.bias"]),
            (ours["root.weight"], theirs["lin_r.weight"].mT),
        ]
    pairs = [
        (ours["weight"], theirs["lin.weight"].mT),
        (ours["attention"][:, 0], theirs["att_dst"].flatten()),
        (ours["attention"][:, 1], theirs["att_src"].flatten()),
        (ours["bias"], theirs["bias"]),
    ]
    if "lin_edge.weight" in theirs:
        # With att_edge 1 and all other rows 0, the first row is one number per label.
        pairs.append((ours["label"][:, 0], theirs["lin_edge.weight"][0]))
    return pairs


@pytest.mark.parametrize(("kind", "edge_kinds"), OWN_LAYERS, ids=str)
def test_named_trunks_equal_torch_geometric_layers(kind: str, edge_kinds: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1])
    edge_index = coalesce(graphs.edge_index)
    labels = torch.stack([edge_index.sum(0) % 4 - 1, edge_index.prod(0) % 2], -1)  # −1 has no column
    attributes = [one_hot_kinds(KINDS)[edge_kind(labels, KINDS)].double()] if edge_kinds else []
    trunk = Trunk(kind, 5, num_layers=2, edge_kinds=edge_kinds).double()
    references = [_reference(kind, edge_kinds) for _ in range(2)]
    both = [
        (dict(ours.named_parameters()), dict(theirs.named_parameters()))
        for ours, theirs in zip(trunk.layers, references, strict=True)
    ]
    with torch.no_grad():
        for ours, theirs in both:
            if "lin_edge.weight" in theirs:
                theirs["lin_edge.weight"].zero_()
                theirs["att_edge"].fill_(1)
            for one, two in _pairs(kind, ours, theirs):
                two.copy_(one.add_(torch.randn_like(one)))
    x, y = (graphs.x.clone().requires_grad_() for _ in range(2))
    value = trunk(x, edge_index, graphs.batch, edge_attr=labels if edge_kinds else None)
    expected = references[1](references[0](y, edge_index, *attributes).relu(), edge_index, *attributes)
    assert_equal(value, expected)
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert_equal(x.grad, y.grad, "gradient of x")
    for number, layers in enumerate(both):
        ours, theirs = ({name: p.grad for name, p in parameters.items()} for parameters in layers)
        pairs = _pairs(kind, ours, theirs)
        assert sum(one.numel() for one, _ in pairs) == sum(gradient.numel() for gradient in ours.values())
        for one, two in pairs:
            assert float(two.abs().max()) > 1e-9
            assert_equal(one, two, f"gradient of layer {number}")


@pytest.mark.parametrize("kind", ["gin", "sage", "gat"])
def test_graphs_of_a_batch_do_not_affect_each_other(kind: str) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1])
    trunk = Trunk(kind, 5, num_layers=2).double()
    together = trunk(graphs.x, graphs.edge_index, graphs.batch)
    parts = [graphs.one(number) for number in range(3)]
    assert_equal(together, torch.cat([trunk(part.x, part.edge_index) for part in parts]))


@pytest.mark.parametrize("kind", ["gin", "sage", "gat"])
def test_factored_and_naive_routing_are_equal_with_a_trunk(kind: str) -> None:
    graphs = random_graphs([6, 9, 3])
    scores = []
    for routing in ("factored", "naive"):
        torch.manual_seed(0)
        model = HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk=kind, routing=routing).double()
        output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
        model.loss(output, graphs.y).total.backward()
        assert all(p.grad is not None for p in model.layers[0].trunk.parameters())
        scores.append(output.class_scores)
    assert_equal(scores[0], scores[1])


@pytest.mark.parametrize(
    ("trunk", "edge_kinds", "capsule_dim", "capturable"),
    [
        ("gin", (), 8, True),
        ("sage", (), 8, True),
        ("gat", (), 8, True),
        ("gat", KINDS, 8, True),
        ("gin", (), 2 * WIDEST_ATTENTION, True),
        ("gat", (), WIDEST_ATTENTION, True),
        ("gat", (), 2 * WIDEST_ATTENTION, False),  # no kernel
        ("gine", KINDS, 8, True),
        ("gine", KINDS, 2 * WIDEST_ATTENTION, True),
        (_Identity(), (), 8, False),
    ],
    ids=str,
)
def test_steps_without_torch_geometric_can_be_captured(
    trunk: Any, edge_kinds: tuple[int, ...], capsule_dim: int, capturable: bool
) -> None:
    model = HGCN(5, 2, capsule_dim=capsule_dim, trunk=trunk, edge_kinds=edge_kinds)
    assert model.layers[0].trunk.capturable is capturable
    assert model.capturable is capturable
    sampled = HGCN(5, 2, capsule_dim=capsule_dim, trunk=trunk, edge_kinds=edge_kinds, reconstruct_up_to=4096)
    assert sampled.capturable is capturable


@pytest.mark.parametrize("kind", ["gin", "sage", "gat"])
def test_reset_draws_new_weights(kind: str) -> None:
    trunk = Trunk(kind, 5, num_layers=2, lead=(2,))
    before = [parameter.clone() for parameter in trunk.parameters()]
    torch.manual_seed(3)
    trunk.reset_parameters()
    matrices = [pair for pair in zip(before, trunk.parameters(), strict=True) if pair[0].shape[-2:] == (5, 5)]
    assert matrices
    assert not any(torch.equal(old, new) for old, new in matrices)


def test_a_custom_module_and_wrong_arguments() -> None:
    graphs = random_graphs([6])
    assert_equal(Trunk(_Identity(), 5)(graphs.x, graphs.edges, graphs.segments), graphs.x)
    with pytest.raises(ShapeError, match=r"Trunk: 'kind' must keep the width 5, got 1\."):
        Trunk(_Narrow(), 5)(graphs.x, graphs.edges, graphs.segments)
    with pytest.raises(
        ArgumentError, match=r"Trunk: 'kind' must be a name if there are leading axes, got _Identity\."
    ):
        Trunk(_Identity(), 5, lead=(2,))
    weighted = edge_table(graphs.edge_index, 6, torch.ones(graphs.edge_index.size(1)))
    for kind in ("gin", "sage", "gat", _Identity()):
        with pytest.raises(ArgumentError, match=r"'edge_weight' must be None with the trunk '\w+'"):
            Trunk(kind, 5).double()(graphs.x, weighted, graphs.segments)
