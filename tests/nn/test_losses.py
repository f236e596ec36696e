"""Margin loss and cross entropy, with padding and class weights."""

import pytest
import torch

from graphcaps.errors import ShapeError
from graphcaps.models.gcn import GCN
from graphcaps.nn import HGCN, cross_entropy, margin_loss
from tests.graphs import assert_equal


def test_margin_loss_by_hand() -> None:
    scores = torch.tensor([[0.7, 0.4, 0.05], [0.95, 0.2, 0.1]], dtype=torch.float64)
    y = torch.tensor([0, 1])
    # graph 0: (0.9 − 0.7)² + ½ (0.4 − 0.1)² + 0            = 0.04 + 0.045  = 0.085
    # graph 1: ½ (0.95 − 0.1)² + (0.9 − 0.2)² + 0           = 0.36125 + 0.49 = 0.85125
    expected = torch.tensor((0.085 + 0.85125) / 2, dtype=torch.float64)
    assert_equal(margin_loss(scores, y), expected, tolerance=1e-15)


def test_margins_and_weight_are_arguments() -> None:
    scores = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    actual = margin_loss(scores, torch.tensor([1]), upper=1.0, lower=0.2, absent_weight=2.0)
    assert_equal(actual, torch.tensor(2 * 0.09 + 0.25, dtype=torch.float64), tolerance=1e-15)


@pytest.mark.parametrize(
    "y", [torch.tensor([0.0, 1.0]), torch.tensor([True, False]), torch.zeros(2, dtype=torch.int32)]
)
def test_classes_that_are_not_indices_are_refused_in_one_sentence(y: torch.Tensor) -> None:
    """By both losses, which all models use, and by the forward pass of all models."""
    scores = torch.rand(2, 2)
    for loss in (margin_loss, cross_entropy):
        with pytest.raises(ShapeError) as caught:
            loss(scores, y)
        assert str(caught.value) == (
            f"loss: 'y' must hold class indices, torch.int64, got {y.dtype}. Convert it with y.long()."
        )
    x, edge_index = torch.rand(3, 2), torch.tensor([[0], [1]])
    for model in (HGCN(2, 2, capsule_dim=4, num_factors=2, num_capsules=(2,)), GCN(2, 2, hidden=4)):
        with pytest.raises(
            ShapeError, match=r": 'y' must hold class indices, torch\.int64, got torch\.\w+\. Convert"
        ):
            model(x, edge_index, torch.tensor([0, 0, 1]), y=y)


def test_padding_graphs_are_ignored() -> None:
    scores = torch.rand(2, 3, 2, dtype=torch.float64)
    y = torch.tensor([[0, 1, 1], [1, -1, -1]])
    for loss in (margin_loss, cross_entropy):
        actual = loss(scores, y)
        assert_equal(actual[0], loss(scores[0], y[0]))
        assert_equal(actual[1], loss(scores[1, :1], y[1, :1]))


def test_cross_entropy_equals_torch() -> None:
    scores = torch.randn(6, 4, dtype=torch.float64)
    y = torch.tensor([0, 3, 1, 2, 2, 0])
    assert_equal(cross_entropy(scores, y), torch.nn.functional.cross_entropy(scores, y))


def test_wrong_number_of_classes_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"loss: 'y' must have one class per graph, \[2\], got \[3\]\."):
        margin_loss(torch.zeros(2, 2), torch.zeros(3, dtype=torch.long))


def test_class_weights_by_hand() -> None:
    scores = torch.tensor([[0.5, 0.3], [0.2, 0.4], [0.9, 0.9]], dtype=torch.float64)
    y = torch.tensor([0, 1, -1])
    first, second = margin_loss(scores[:1], y[:1]), margin_loss(scores[1:2], y[1:2])
    weight = torch.tensor([3.0, 0.5])
    actual = margin_loss(scores, y, class_weight=weight)
    torch.testing.assert_close(actual, (3 * first + 0.5 * second) / 2)
    first, second = cross_entropy(scores[:1], y[:1]), cross_entropy(scores[1:2], y[1:2])
    torch.testing.assert_close(cross_entropy(scores, y, weight), (3 * first + 0.5 * second) / 2)
    assert torch.equal(margin_loss(scores, y, class_weight=torch.ones(2)), margin_loss(scores, y))
