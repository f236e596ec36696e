"""``lead=(F,)`` is F separate models: values, gradients and running statistics."""

from typing import Any

import pytest
import torch
from torch import nn

from graphcaps.models import GIN
from graphcaps.nn import HGCN
from tests.graphs import assert_equal, random_graphs

SIZES = [7, 40, 1, 12, 33, 5]
# Each replica draws its own graphs: one row is shorter, and one has a graph less.
DRAWN = [[0, 1, 3], [5, 4, 2], [3, 0, -1]]
MAKERS: dict[str, Any] = {
    "hgcn": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), lead=lead),
    "hgcn, deep": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4, 3), residual_nodes=40, lead=lead),
    "hgcn, paper": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), formulation="paper", lead=lead),
    "hgcn, A1": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), disentangle=False, lead=lead),
    "hgcn, gin trunk": lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk="gin", lead=lead),
    "gin": lambda lead: GIN(5, 2, hidden=8, dropout=0.0, lead=lead),
}


def _copy_into(whole: nn.Module, parts: list[nn.Module]) -> None:
    """Stacks the parts' tensors into the replicas'; a trunk keeps a stack per replica."""
    state = whole.state_dict()
    for f, part in enumerate(parts):
        for name, value in part.state_dict().items():
            if ".replicas.0." in name:
                state[name.replace(".replicas.0.", f".replicas.{f}.")].copy_(value)
            else:
                state[name][f].copy_(value)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_replicas_are_separate_models(make: Any, training: bool) -> None:
    graphs = random_graphs(SIZES)
    store = graphs.as_store()
    F = len(DRAWN)
    parts = []
    for f in range(F):
        torch.manual_seed(f)
        parts.append(make(()).double().train(training))
    whole = make((F,)).double().train(training)
    _copy_into(whole, parts)

    batch = store.batch(graphs.x, torch.tensor(DRAWN))
    output = whole.forward_batch(batch, batch.y)
    total = whole.loss(output, batch.y).total
    assert total.shape == (F,)
    total.sum().backward()
    for f, part in enumerate(parts):
        drawn = [g for g in DRAWN[f] if g >= 0]
        own = store.batch(graphs.x, torch.tensor(drawn))
        alone = part.forward_batch(own, own.y)
        loss = part.loss(alone, own.y).total
        loss.backward()
        assert_equal(output.class_scores[f, : len(drawn)], alone.class_scores, "scores")
        assert_equal(total[f], loss, "loss")
        slopes = {name: parameter.grad for name, parameter in whole.named_parameters()}
        for name, parameter in part.named_parameters():
            if ".replicas.0." in name:
                found = slopes[name.replace(".replicas.0.", f".replicas.{f}.")]
            else:
                found = slopes[name][f]
            # A bias right before BatchNorm has a true gradient of zero.
            assert_equal(found, parameter.grad, f"gradient of {name}")
        buffers = dict(whole.named_buffers())
        for name, value in part.named_buffers():
            assert_equal(buffers[name][f], value, name)


def test_leading_axes_must_agree() -> None:
    from graphcaps.errors import ArgumentError, ShapeError

    graphs = random_graphs([4, 5])
    whole = HGCN(5, 2, capsule_dim=8, num_capsules=(4,), lead=(2,)).double()
    with pytest.raises(ShapeError, match=r"HGCN: 'x' must have the leading axes \(2,\), got \(\)\."):
        whole.forward_batch(graphs.as_batch())
    with pytest.raises(ArgumentError, match=r"Use forward_batch for replicas\."):
        whole(graphs.x, graphs.edge_index, graphs.batch)
