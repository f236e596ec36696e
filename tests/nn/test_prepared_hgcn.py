"""Class scores of small graphs from prepared constants equal those of the ordinary forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphcaps.data.store import GraphStore
from graphcaps.nn import HGCN
from graphcaps.nn.prepared_hgcn import PreparedHGCN, SmallGraphs
from graphcaps.ops.edges import clean_edges

KINDS = (3, 2)


def random_store(sizes: list[int], *, kinds: bool = False) -> tuple[GraphStore, torch.Tensor]:
    """Random graphs, one of them without edges if it has a single node, and features of their nodes in float64."""
    generator = torch.Generator().manual_seed(len(sizes))
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    ends = []
    for first, size in zip(ptr.tolist(), sizes, strict=False):
        pairs = torch.randint(0, size, (2, 2 * size), generator=generator)
        ends.append(first + pairs[:, pairs[0] != pairs[1]])
    source, target = torch.cat(ends, 1)
    kind = torch.randint(0, 12, (source.numel(), 1), generator=generator)
    edges = clean_edges(source, target, int(ptr[-1]), labels=kind)
    store = GraphStore.from_clean_edges("random", ptr, edges)
    assert edges.labels is not None
    if kinds:
        store = store.with_edge_kind(edges.labels.squeeze(-1).int())
    return store, torch.randn(int(ptr[-1]), 5, generator=generator, dtype=torch.float64)


def trained(**options: Any) -> HGCN:
    """A model in evaluation mode in which no parameter or running average has its initial value."""
    torch.manual_seed(0)
    model = HGCN(5, 3, capsule_dim=8, **({"num_capsules": (4,), "num_factors": 2} | options)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.rand_like(parameter))
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.add_(torch.rand_like(buffer))
    return model


def scores_of(model: HGCN, store: GraphStore, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The scores of the ordinary forward pass, and those of the prepared constants."""
    arrays = (store.node_ptr.numpy(), store.edge_ptr.numpy(), store.neighbours.numpy())
    prepared = PreparedHGCN.prepare(model).class_scores(SmallGraphs(x, *arrays, store.edge_kind))
    with torch.no_grad():
        return model.forward_batch(store.batch(x)).class_scores, prepared


@pytest.mark.parametrize("sizes", [[1], [7], [40], [6, 1, 9], [40, 3, 1, 17]], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"edge_kinds": KINDS},
        {"num_capsules": (5, 3)},
        {"residual": False},
        {"class_residual": False, "residual_nodes": 20},
        {"routing_iterations": 1},
        {"edge_kinds": KINDS, "num_capsules": (5, 3), "routing_iterations": 4},
    ],
    ids=str,
)
def test_scores_are_those_of_the_forward_pass(sizes: list[int], options: dict[str, Any]) -> None:
    model = trained(**options)
    assert PreparedHGCN.supports(model)
    expected, prepared = scores_of(model, *random_store(sizes, kinds="edge_kinds" in options))
    torch.testing.assert_close(prepared, expected, rtol=1e-11, atol=1e-12)


def test_scores_in_float32() -> None:
    store, x = random_store([12, 30, 5])
    expected, prepared = scores_of(trained().float(), store, x.float())
    torch.testing.assert_close(prepared, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"formulation": "paper"},
        {"trunk": "gin"},
        {"context": "gin"},
        {"parts": "blocks"},
        {"disentangle": False, "num_factors": 1},
        {"factor_squash": "separate"},
        {"lead": (2,)},
    ],
    ids=str,
)
def test_other_forms_are_left_to_the_forward_pass(options: dict[str, Any]) -> None:
    assert not PreparedHGCN.supports(trained(**options))


def test_a_derived_class_is_left_to_the_forward_pass() -> None:
    model = trained()
    model.__class__ = type("Derived", (HGCN,), {})
    assert not PreparedHGCN.supports(model)


@pytest.mark.parametrize("name", ["primary.weight", "layers.0.norm.running_var", "layers.1.bias"])
def test_constants_are_computed_again_when_a_weight_changes(name: str) -> None:
    model, (store, x) = trained(), random_store([6, 9])
    before = PreparedHGCN.prepare(model)
    assert PreparedHGCN.prepare(model, before) is before
    with torch.no_grad():
        model.get_submodule(name.rpartition(".")[0]).__getattr__(name.rpartition(".")[2]).mul_(1.5)
    assert PreparedHGCN.prepare(model, before) is not before
    expected, prepared = scores_of(model, store, x)
    torch.testing.assert_close(prepared, expected, rtol=1e-11, atol=1e-12)


def test_another_model_or_type_has_constants_of_its_own() -> None:
    model = trained()
    before = PreparedHGCN.prepare(model)
    assert PreparedHGCN.prepare(trained(), before) is not before
    model.float()
    assert PreparedHGCN.prepare(model, before) is not before
