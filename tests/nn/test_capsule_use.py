"""Capsules in use: counted from the capsule of each node, for one model and for replicas."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from graphcaps.data import planted_parts
from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN, CapsuleLayer
from graphcaps.nn.capsule_use import CapsuleUse, collapse_warning, count_nodes, measure_capsule_use
from graphcaps.nn.hard_assignment import hard_assignment
from graphcaps.nn.primary_capsules import Formulation
from tests.one_capsule import FORCED, force_one_capsule


@pytest.mark.parametrize(
    ("counts", "in_use"),
    [
        ([100, 0, 0], 1),
        ([96, 4, 0], 1),
        ([95, 5, 0], 2),
        ([34, 33, 33], 3),
        ([50] * 40, 40),  # 2.5 % each: half of an equal share is enough
        ([961] + [1] * 39, 1),
        ([0, 0, 0], 0),
    ],
)
def test_threshold(counts: list[int], in_use: int) -> None:
    use = CapsuleUse.from_counts(torch.tensor(counts))
    assert use == CapsuleUse(in_use, len(counts))
    assert use.collapsed == (in_use == 1)


def test_a_model_with_one_capsule_has_not_collapsed() -> None:
    assert not CapsuleUse(1, 1).collapsed
    assert CapsuleUse(1, 1).warning == ""


def test_warning() -> None:
    rest = (
        "nly 1 of 10 capsules is in use: almost all nodes belong to it, so the parts in explanations say little. "
        "Try another seed or fewer capsules (docs/parts.md)."
    )
    one, some = CapsuleUse(1, 10), CapsuleUse(4, 10)
    assert one.warning == f"O{rest}"
    assert collapse_warning([one, some, one]) == f"In 2 of 3 trainings o{rest}"
    assert some.warning == collapse_warning([some, some]) == collapse_warning([]) == ""


def test_nodes_of_each_capsule() -> None:
    """Padding does not count."""
    capsule = torch.tensor([0, 1, 0, 2])
    assert count_nodes(capsule, 4).tolist() == [2, 1, 1, 0]
    mask = torch.tensor([[True, True, True, False], [False, True, True, True]])
    assert count_nodes(capsule.expand(2, 4), 3, mask).tolist() == [[2, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_routing_that_is_forced_to_one_capsule(formulation: Formulation) -> None:
    """Of two replicas the second is forced; each is counted as the single model with its weights."""
    store = planted_parts(num_graphs=15)
    x = torch.eye(6)[torch.arange(store.num_nodes) % 6]
    options: dict[str, Any] = {"capsule_dim": 16, "num_capsules": (6, 3), "disentangle": False}
    model = HGCN(6, 3, formulation=formulation, lead=(2,), **options)
    layer = cast(CapsuleLayer, model.layers[0])
    force_one_capsule(layer)
    with torch.no_grad():
        layer.bias[0] = 0
        for j in range(6):
            layer.weight[0, j, j, j] = 5.0  # a vote of the free replica: one feature, for its own capsule
    graphs = torch.stack([torch.arange(15), torch.arange(15).flip(0)])
    graphs[1, 13:] = -1
    batches = [store.batch(x, part) for part in graphs.split(5, 1)]
    free, forced = measure_capsule_use(model, batches, batches)
    assert forced == CapsuleUse(1, 6)
    assert model.training
    output = model.eval().forward_batch(store.batch(x, graphs))
    c = output.levels[0].assignment
    assert (c[1].argmax(-1)[: int(store.sizes[graphs[1, :13]].sum())] == FORCED).all()
    tops = hard_assignment(c[0], c[0].double().mean(0))
    assert free == CapsuleUse.from_counts(tops.bincount(minlength=6))
    assert free == CapsuleUse(6, 6)


def test_capsules_are_in_use_where_nodes_differ_from_the_average() -> None:
    """One capsule has the largest coefficient of all nodes; compared with averages, several are in use."""
    torch.manual_seed(0)
    store = planted_parts(num_graphs=12)
    batch = store.batch(torch.rand(store.num_nodes, 4))
    model = HGCN(4, 3, capsule_dim=8, num_capsules=(5,)).eval()
    with torch.no_grad():
        cast(CapsuleLayer, model.layers[0]).bias[3] = 0.3
    (use,) = measure_capsule_use(model, [batch], [batch])
    assert use.in_use > 1
    c = model.forward_batch(batch).levels[0].assignment
    assert c.argmax(-1).unique().tolist() == [3]
    model.mean_coefficients = (c.double().mean(0, keepdim=True),)
    assert measure_capsule_use(model, [batch], []) == [use]


def test_a_model_without_capsules_has_none_in_use() -> None:
    store = planted_parts(num_graphs=3)
    model = GIN(2, 3)
    assert measure_capsule_use(model, [store.batch(torch.rand(store.num_nodes, 2))], []) == []
