"""GCN against the same network of torch and torch-geometric's layers."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GCNConv

from graphcaps.errors import ArgumentError
from graphcaps.models.gcn import GCN
from tests.models.conv_reference import ConvReference, assert_equals_reference


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_equals_torch_geometric(training: bool, weighted: bool) -> None:
    torch.manual_seed(0)
    model = GCN(5, 3, hidden=8, num_layers=2).train(training)
    reference = ConvReference(
        lambda hidden: GCNConv(hidden, hidden),
        lambda layer, x, edge_index, weight: layer(x, edge_index, weight),
        *(5, 3, 8, 2),
    )
    assert_equals_reference(
        model,
        reference,
        lambda name: name.replace("weight", "lin.weight") if "convs" in name else name,
        weighted=weighted,
    )


def test_initial_parameters() -> None:
    """Glorot weights with the bound of one replica, and the small shift of every BatchNorm."""
    torch.manual_seed(0)
    model = GCN(10, 3, hidden=14, lead=(40,))
    for weight, bound in ((model.input.weight, 0.5), (model.convs[0].weight, (6 / 28) ** 0.5)):
        assert 0.97 * bound < float(weight.detach().abs().max()) <= bound
    shifts = [value for name, value in model.named_parameters() if "norm" in name and name.endswith("bias")]
    assert len(shifts) == 6
    assert all(bool((shift == 1e-4).all()) for shift in shifts)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^GCN: 'num_layers' must be at least 1, got 0\.$"):
        GCN(5, 2, num_layers=0)
