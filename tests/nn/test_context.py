"""Context: every kind of layer against a plain dense form, in values and gradients, and as an option of HGCN."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN, CapsuleLayer, Context
from graphcaps.ops.edge_kinds import one_hot_kinds
from graphcaps.types import GraphBatch, HGCNOutput
from tests.graphs import Graphs, assert_equal, random_graphs, with_kinds, with_padding

WIDTH, EDGE_KINDS = 5, (3, 2)
FORMS: list[dict[str, Any]] = [
    {"kind": "residual"},
    {"kind": "residual", "jumping": True, "hops": 0},
    {"kind": "residual", "edge_kinds": EDGE_KINDS},
    {"kind": "gated", "hops": 2},
    {"kind": "gated", "jumping": True, "edge_kinds": EDGE_KINDS},
    {"kind": "gin"},
    {"kind": "gin", "jumping": True},
    {"kind": "gin", "edge_kinds": EDGE_KINDS},
]


def _graphs() -> Graphs:
    return random_graphs([6, 9, 1, 12], channels=WIDTH, seed=2)


def _labelled_batch() -> GraphBatch:
    graphs = _graphs()
    store = with_kinds(graphs.as_store(), EDGE_KINDS)
    return store.batch(graphs.x, torch.arange(len(graphs.y)))


def _context(lead: tuple[int, ...] = (), **options: Any) -> Context:
    """Two layers, with parameters that are zero or one at the start drawn at random."""
    torch.manual_seed(1)
    context = Context(WIDTH, 2, lead=lead, **options).double()
    with torch.no_grad():
        for name, parameter in context.named_parameters():
            if name.endswith((".scale", ".shift", ".weight", ".bias")):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return context


# ------------------------------------------------------- plain form: dense matrices, one layer at a time
def _dense(batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Adjacency of all nodes, and the kind of each edge, ``[V, V]`` each."""
    edges = batch.edges
    V = batch.x.size(-2)
    A, kinds = torch.zeros(V, V, dtype=torch.float64), torch.zeros(V, V, dtype=torch.long)
    for row, (node, first) in enumerate(zip(edges.node.tolist(), edges.first.tolist(), strict=True)):
        for entry in range(int(edges.ptr[node]), int(edges.ptr[node + 1])):
            column = first + int(edges.neighbours[entry])
            A[row, column] = 1
            kinds[row, column] = 0 if edges.kind is None else int(edges.kind[entry])
    return A, kinds


def _plain_norm(x: Tensor, norm: nn.Module) -> Tensor:
    return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.epsilon)


def _plain_hop(h: Tensor, matrix: Tensor, kinds: Tensor, modulation: Any) -> Tensor:
    """``matrix [V, V]`` times h, or with labels the sum over all pairs of nodes."""
    if modulation is None:
        return matrix @ h
    labels = one_hot_kinds(EDGE_KINDS).double()[kinds]  # [V, V, n_1 + n_2]
    messages = h + (labels @ modulation.scale) * h + labels @ modulation.shift  # from column to row
    messages = torch.where(torch.eye(len(h), dtype=torch.bool).unsqueeze(-1), h, messages)
    return (matrix.unsqueeze(-1) * messages).sum(1)


def _plain_context(context: Context, x: Tensor, A: Tensor, kinds: Tensor) -> Tensor:
    loops = A + torch.eye(len(A), dtype=torch.float64)
    root = loops.sum(1).rsqrt()
    A_hat = root.unsqueeze(1) * loops * root
    h, outputs = x, [x]
    for number in range(2):
        modulation = context.modulations[number] if len(context.modulations) else None
        if context.kind == "gin":
            z = _plain_hop(h, loops, kinds, modulation) @ context.weights[number]
            z = _plain_norm(z, context.norms[number]).clamp_min(0) @ context.outer_weights[number]
            h = h + _plain_norm(z, context.outer_norms[number]).clamp_min(0)
        else:
            top, bottom = context.weights[number].split(WIDTH)
            z = _plain_norm(h @ top + _plain_hop(h, A_hat, kinds, modulation) @ bottom, context.norms[number])
            if context.kind == "gated":
                h = h + z[:, :WIDTH].clamp_min(0) / (1 + torch.exp(-z[:, WIDTH:]))
            else:
                h = h + z.clamp_min(0)
        outputs.append(h)
    if context.jump is not None:
        h = sum(each @ part for each, part in zip(outputs, context.jump.split(WIDTH), strict=True))
    for _ in range(context.hops):
        h = A_hat @ h
    return h


def _gradients(result: Tensor, tensors: list[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(9)
    direction = torch.randn(*result.shape, dtype=torch.float64, generator=generator)
    return torch.autograd.grad((result * direction).sum(), tensors)


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_layers_equal_the_plain_form(options: dict[str, Any]) -> None:
    batch, context = _labelled_batch(), _context(**options)
    x = batch.x.clone().requires_grad_()
    tensors = [x, *context.parameters()]
    actual = context(x, batch.edges, batch.segments)
    expected = _plain_context(context, x, *_dense(batch))
    assert_equal(actual, expected, "values")
    names = ["x", *(name for name, _ in context.named_parameters())]
    for name, one, two in zip(names, _gradients(actual, tensors), _gradients(expected, tensors), strict=True):
        assert_equal(one, two, f"gradient of {name}")
        assert float(two.abs().max()) > 1e-4, name


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_padding_does_not_change_results(options: dict[str, Any]) -> None:
    context, bare = _context(**options), _labelled_batch()
    padded = with_padding(bare, value=3.0)
    V = bare.x.size(-2)
    tensors = list(context.parameters())
    expected = context(bare.x, bare.edges, bare.segments)
    wanted = _gradients(
        expected, tensors
    )  # before the second call, which updates running statistics in place
    actual = context(padded.x, padded.edges, padded.segments)[:V]
    assert_equal(actual, expected)
    for one, two in zip(_gradients(actual, tensors), wanted, strict=True):
        assert_equal(one, two, "gradient")


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_a_replica_equals_the_context_alone(options: dict[str, Any]) -> None:
    graphs, drawn = _graphs(), torch.tensor([[0, 1, 3], [3, 2, -1]])
    store = with_kinds(graphs.as_store(), EDGE_KINDS)
    together, batch = _context((2,), **options), store.batch(graphs.x, drawn)
    actual = together(batch.x, batch.edges, batch.segments)
    for f in range(2):
        alone, own = _context(**options), store.batch(graphs.x, drawn[f][drawn[f] >= 0])
        alone.load_state_dict({name: value[f] for name, value in together.state_dict().items()})
        expected = alone(own.x, own.edges, own.segments)
        assert_equal(actual[f, : own.x.size(-2)], expected)


# ------------------------------------------------------------------ the option of HGCN
def _model(**options: Any) -> HGCN:
    torch.manual_seed(0)
    return HGCN(WIDTH, 2, capsule_dim=8, num_capsules=(4,), **options).double()


@pytest.mark.parametrize("formulation", ["released", "paper"])
@pytest.mark.parametrize("kind", ["residual", "gated", "gin"])
def test_context_without_the_loss_of_parts(kind: str, formulation: str) -> None:
    graphs = _graphs()
    model = _model(context=kind, formulation=formulation)
    output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
    assert type(output) is HGCNOutput
    terms = model.loss(output, graphs.y)
    assert list(terms.terms) == ["margin", "reconstruction"]
    terms.total.backward()
    first = model.layers[0]
    assert isinstance(first, CapsuleLayer)
    assert isinstance(first.context, Context)
    assert (first.context.kind, len(first.context.weights), first.context.hops) == (kind, 2, 1)
    assert all(layer.context is None for layer in model.layers[1:])
    for name, parameter in first.context.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
    assert model.capturable


def test_votes_read_the_context() -> None:
    """The hop of the first layer is the context of the normalised capsules."""
    graphs = _graphs()
    model = _model(context="gin", context_layers=1, context_jumping=True)
    layer = model.layers[0]
    u = torch.randn(len(graphs.x), 8, dtype=torch.float64)
    hop = layer.hop(u, graphs.edges, graphs.segments)
    assert_equal(hop.h, layer.context(layer.norm(u), graphs.edges, graphs.segments))
    assert layer.context.jump.shape == (16, 8)
    assert "num_layers=1, kind='gin', hops=1, jumping=True" in repr(layer.context)


def test_parts_keep_their_layers() -> None:
    context = _model(parts="blocks", context_layers=1, context_jumping=True).layers[0].context
    assert (context.kind, len(context.weights), context.hops, context.jump) == ("residual", 3, 3, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "'num_layers' must be at least 1, got 0"),
        ({"hops": -1}, "'hops' must be at least 0, got -1"),
        ({"kind": "gcn"}, "'kind' must be one of residual, gated, gin, got 'gcn'"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Context(**({"channels": WIDTH, "num_layers": 1} | options))
