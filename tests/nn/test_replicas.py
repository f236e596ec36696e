"""A model with ``lead=(F,)`` equals F separate models: values, gradients and running statistics."""

from typing import Any

import pytest
import torch
from torch import nn

from graphcaps.models.gin import GIN
from graphcaps.nn import HGCN
from tests.graphs import assert_equal, random_graphs, with_kinds

SIZES = [7, 40, 1, 12, 33, 5]
# Indices of each replica's graphs; −1 is padding.
DRAWN = [[0, 1, 3], [5, 4, 2], [3, 0, -1]]
KINDS = (3, 2)
MAKERS: dict[str, Any] = {
    "hgcn": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), lead=lead),
    "hgcn, deep": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4, 3), residual_nodes=40, lead=lead),
    "hgcn, paper": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), formulation="paper", lead=lead),
    "hgcn, A1": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), disentangle=False, lead=lead),
    "hgcn, gat trunk": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk="gat", lead=lead),
    "hgcn, gin trunk": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk="gin", lead=lead),
    "hgcn, gine trunk": lambda lead: HGCN(
        5, 2, capsule_dim=8, num_capsules=(4,), trunk="gine", edge_kinds=KINDS, lead=lead
    ),
    "hgcn, sage trunk": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk="sage", lead=lead),
    "gin": lambda lead: GIN(5, 2, hidden=8, dropout=0.0, lead=lead),
}


def _copy_into(stacked: nn.Module, singles: list[nn.Module]) -> None:
    """Copies the state of single models into a stacked one."""
    state = stacked.state_dict()
    for f, single in enumerate(singles):
        for name, value in single.state_dict().items():
            state[name][f].copy_(value)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_replicas_equal_separate_models(make: Any, training: bool) -> None:
    graphs = random_graphs(SIZES)
    store = with_kinds(graphs.as_store(), KINDS)
    F = len(DRAWN)
    singles = []
    for f in range(F):
        torch.manual_seed(f)
        singles.append(make(()).double().train(training))
    stacked = make((F,)).double().train(training)
    _copy_into(stacked, singles)

    batch = store.batch(graphs.x, torch.tensor(DRAWN))
    output = stacked.forward_batch(batch, batch.y)
    total = stacked.loss(output, batch.y).total
    assert total.shape == (F,)
    total.sum().backward()
    for f, single in enumerate(singles):
        indices = [g for g in DRAWN[f] if g >= 0]
        single_batch = store.batch(graphs.x, torch.tensor(indices))
        alone = single.forward_batch(single_batch, single_batch.y)
        loss = single.loss(alone, single_batch.y).total
        loss.backward()
        assert_equal(output.class_scores[f, : len(indices)], alone.class_scores, "scores")
        assert_equal(total[f], loss, "loss")
        gradients = {name: parameter.grad for name, parameter in stacked.named_parameters()}
        for name, parameter in single.named_parameters():
            # The gradient of a bias directly before BatchNorm is zero up to rounding.
            assert_equal(gradients[name][f], parameter.grad, f"gradient of {name}")
        buffers = dict(stacked.named_buffers())
        for name, value in single.named_buffers():
            assert_equal(buffers[name][f], value, name)


def test_wrong_leading_axes_are_refused() -> None:
    from graphcaps.errors import ArgumentError, ShapeError

    graphs = random_graphs([4, 5])
    stacked = HGCN(5, 2, capsule_dim=8, num_capsules=(4,), lead=(2,)).double()
    with pytest.raises(ShapeError, match=r"HGCN: 'x' must have the leading axes \(2,\), got \(\)\."):
        stacked.forward_batch(graphs.as_batch())
    with pytest.raises(ArgumentError, match=r"Use forward_batch for replicas\."):
        stacked(graphs.x, graphs.edge_index, graphs.batch)
