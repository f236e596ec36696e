"""Graphs without nodes in models: capsules of zero, no gradient, and no effect on the other graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.models.gin import GIN
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.types import GraphBatch, HGCNOutput, Segments
from tests.graphs import assert_equal, random_graphs, with_empty_graphs
from tests.ops.conftest import kernel_device  # noqa: F401

SIZES = [5, 1, 8, 3]
VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "divisor": {"residual_nodes": 7},
    "paper": {"formulation": "paper"},
    "features": {"disentangle": False},
    "sampled": {"reconstruct_up_to": 4},
    "blocks": {"parts": "blocks"},
    "naive": {"routing": "naive"},
}
counts = st.lists(st.integers(0, 2), min_size=5, max_size=5).filter(any)


def build(variant: str = "released", lead: tuple[int, ...] = ()) -> HGCN:
    """A model with two hidden levels in float64, in evaluation mode, whose biases are not zero."""
    torch.manual_seed(0)
    options = {"capsule_dim": 8, "num_capsules": (4, 3), "num_factors": 2} | VARIANTS[variant]
    model = HGCN(5, 2, **options, lead=lead).double().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model


def batches(inserted: list[int]) -> tuple[GraphBatch, GraphBatch, list[int], list[int]]:
    """The batch without and with graphs without nodes, and the indices of both kinds in the latter."""
    graphs = random_graphs(SIZES)
    store, kept = with_empty_graphs(graphs.as_store(), inserted)
    empty = [graph for graph in range(len(store)) if graph not in kept]
    return graphs.as_store().batch(graphs.x), store.batch(graphs.x), kept, empty


def tensors_per_graph(output: HGCNOutput) -> Iterator[tuple[str, Tensor]]:
    yield "class_scores", output.class_scores
    for number, level in enumerate(output.levels):
        yield f"capsules {number}", level.capsules
        if number:
            yield f"assignment {number}", level.assignment
        if level.adjacency is not None:
            yield f"adjacency {number}", level.adjacency


# ---------------------------------------------------------------------- batches
@given(counts)
def test_a_batch_with_graphs_without_nodes(inserted: list[int]) -> None:
    plain, batch, kept, empty = batches(inserted)
    assert torch.equal(batch.x, plain.x)
    assert batch.segments.may_be_empty
    assert not plain.segments.may_be_empty
    assert batch.segments.graph_mask is not None
    assert (~batch.segments.graph_mask).nonzero().flatten().tolist() == empty
    assert batch.y is not None
    assert plain.y is not None
    assert torch.equal(batch.y[kept], plain.y)


def test_segments_say_whether_a_graph_may_be_empty() -> None:
    assert Segments.from_sizes(torch.tensor([2, 0, 1])).may_be_empty
    assert not Segments.from_sizes(torch.tensor([2, 1])).may_be_empty
    index = torch.tensor([0, 0, 2])
    assert Segments.from_index(index).may_be_empty
    assert Segments.from_index(index, 5).may_be_empty
    assert not Segments.from_index(torch.tensor([0, 1])).may_be_empty


def test_a_batch_of_nothing_else_has_a_padding_row() -> None:
    graphs = random_graphs(SIZES)
    store, _ = with_empty_graphs(graphs.as_store(), [2, 0, 0, 0, 0], y=1)
    for batch in (store.batch(graphs.x, [0, 1]), store[:2].batch(graphs.x[:0])):
        assert (batch.segments.num_rows, batch.num_graphs) == (1, 2)
        assert batch.segments.row_mask is not None
        assert not batch.segments.row_mask.any()
        assert batch.y is not None
        assert batch.y.tolist() == [1, 1]
        assert not batch.x.any()
    replicas = store[:2].batch(graphs.x[:0], torch.tensor([[0, 1], [1, -1]]))
    assert replicas.y is not None
    assert replicas.y.tolist() == [[1, 1], [1, -1]]


# ---------------------------------------------------------------------- HGCN
@pytest.mark.parametrize("variant", VARIANTS)
@given(inserted=counts)
@settings(max_examples=15)
def test_capsules_are_zero_and_the_others_unchanged(variant: str, inserted: list[int]) -> None:
    plain, batch, kept, empty = batches(inserted)
    model = build(variant)
    with torch.no_grad():
        expected, output = model.forward_batch(plain, plain.y), model.forward_batch(batch, batch.y)
    for (name, before), (_, after) in zip(
        tensors_per_graph(expected), tensors_per_graph(output), strict=True
    ):
        assert not after[empty].any(), name
        assert_equal(after[kept], before, name, 1e-14)
    assert torch.equal(output.primary, expected.primary)
    assert_equal(output.levels[0].assignment, expected.levels[0].assignment, "assignment", 1e-14)
    if variant != "sampled":  # the sample is drawn by graph index
        assert output.reconstruction_loss is not None
        assert expected.reconstruction_loss is not None
        assert_equal(output.reconstruction_loss, expected.reconstruction_loss, "reconstruction", 1e-13)


@pytest.mark.parametrize("variant", VARIANTS)
def test_they_change_no_gradient_and_no_running_statistics(variant: str) -> None:
    plain, batch, kept, empty = batches([1, 0, 2, 0, 1])
    results = []
    for one, graphs in ((plain, list(range(4))), (batch, kept)):
        model = build(variant).train()
        output = model.forward_batch(one, one.y)
        # The same sum over the graphs with nodes, and anything over the others: it must not have a gradient.
        loss = output.class_scores[graphs].square().sum()
        if variant != "sampled":
            assert output.reconstruction_loss is not None
            loss = loss + output.reconstruction_loss
        if one is batch:
            loss = loss + 100 * output.class_scores[empty].sum() + output.class_capsules[empty].sum()
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append((gradients, dict(model.named_buffers())))
    for before, after in zip(*results, strict=True):
        for name, value in before.items():
            if value is not None:
                assert after[name] is not None
                assert_equal(after[name], value, name, 1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_but_graphs_without_nodes(variant: str) -> None:
    model = build(variant).train()
    output = model(
        torch.zeros(0, 5).double(), torch.zeros(2, 0).long(), num_graphs=3, y=torch.tensor([0, 1, 0])
    )
    for name, value in tensors_per_graph(output):
        assert value.size(0) == 3
        assert not value.any(), name
    terms = model.loss(output, torch.tensor([0, 1, 0]))
    terms.total.backward()
    assert float(terms.terms["margin"].detach()) == pytest.approx(0.81)
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or not parameter.grad.any(), name
    assert all(torch.isfinite(buffer).all() for buffer in model.buffers())
    alone = build(variant)(torch.zeros(0, 5).double(), torch.zeros(2, 0).long())
    assert alone.class_scores.tolist() == [[0, 0]]


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "sampled"])
def test_a_replica_equals_one_alone(variant: str) -> None:
    graphs = random_graphs(SIZES)
    store, _ = with_empty_graphs(graphs.as_store(), [1, 0, 2, 0, 1])
    chosen = torch.tensor([[0, 1, 4, 7], [6, 3, -1, -1], [0, 3, 4, -1]])  # the last has no nodes
    together = build(variant, (3,))
    with torch.no_grad():
        output = together.forward_batch(store.batch(graphs.x, chosen))
        for replica in range(3):
            single = build(variant)
            state = {name: value[replica] for name, value in together.state_dict().items()}
            single.load_state_dict(state)
            mine = chosen[replica][chosen[replica] >= 0]
            alone = single.forward_batch(store.batch(graphs.x, mine))
            for (name, one), (_, all_of_them) in zip(
                tensors_per_graph(alone), tensors_per_graph(output), strict=True
            ):
                assert_equal(all_of_them[replica, : len(mine)], one, name, 1e-13)


def test_a_batch_equals_one_at_a_time() -> None:
    _, batch, _, _ = batches([1, 0, 2, 0, 1])
    graphs = random_graphs(SIZES)
    store, _ = with_empty_graphs(graphs.as_store(), [1, 0, 2, 0, 1])
    model = build()
    with torch.no_grad():
        together = model.forward_batch(batch).class_scores
        rows = [graphs.x[store.node_ptr[graph] : store.node_ptr[graph + 1]] for graph in range(len(store))]
        single = [model.forward_batch(store[graph].batch(x)).class_scores for graph, x in enumerate(rows)]
    assert_equal(torch.cat(single), together, "scores", 1e-13)


# ---------------------------------------------------------------------- other models
@pytest.mark.parametrize("kind", [GIN, HGCN])
@given(inserted=counts)
@settings(max_examples=10)
def test_finite_scores_and_no_effect_on_others(kind: type[GraphModel], inserted: list[int]) -> None:
    plain, batch, kept, _ = batches(inserted)
    torch.manual_seed(1)
    model = kind(5, 3).double().eval()
    with torch.no_grad():
        expected, scores = model.forward_batch(plain).class_scores, model.forward_batch(batch).class_scores
    assert scores.isfinite().all()
    assert_equal(scores[kept], expected, "scores", 1e-13)


def test_the_store_knows_on_every_device_copy() -> None:
    store, _ = with_empty_graphs(random_graphs(SIZES).as_store(), [0, 1, 0, 0, 0])
    copy: GraphStore = store.to("cpu")
    assert copy.empty_graphs.tolist() == [1]


# ---------------------------------------------------------------------- kernels
@pytest.mark.parametrize("variant", ["released", "paper"])
def test_kernels_agree(variant: str, kernel_device: str) -> None:  # noqa: F811
    graphs = random_graphs(SIZES)
    store, _ = with_empty_graphs(graphs.as_store(), [1, 0, 2, 0, 1])
    chosen = torch.tensor([[0, 1, 4, 7], [6, 3, -1, -1]])
    results: list[dict[str, Tensor]] = []
    for mode, device, dtype in (("off", "cpu", torch.float64), ("always", kernel_device, torch.float32)):
        model = build(variant, (2,)).to(device, dtype).train()
        with use_kernels(mode):
            batch = store.to(device).batch(graphs.x.to(device, dtype), chosen)
            assert batch.y is not None
            output = model.forward_batch(batch, batch.y)
            model.loss(output, batch.y).total.sum().backward()
        result = {}
        for name, value in tensors_per_graph(output):
            for replica, empty in ((0, [0, 2]), (1, [1])):
                assert not value[replica, empty].any(), name
            result[name] = value.detach().cpu().double()[chosen >= 0]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            result[f"gradient of {name}"] = parameter.grad.cpu().double()
        results.append(result)
    for name, value in results[0].items():
        assert_equal(results[1][name], value, name, 1e-4)
