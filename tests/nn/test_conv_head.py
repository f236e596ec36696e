"""ConvHead against torch's Conv1d and MaxPool1d."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.conv_head import ConvHead
from tests.graphs import assert_equal


def _torch(head: ConvHead, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The same head of torch's modules, and its parameters in the order and shape of ``head``."""
    d, channels, wide = head.in_channels, head.rows.out_channels, head.windows.out_channels
    first = nn.Conv1d(1, channels, d, d).double()
    second = nn.Conv1d(channels, wide, 5).double()
    inner, outer = (
        nn.Linear(each.in_channels, each.out_channels).double() for each in (head.inner, head.outer)
    )
    # Our rows are joined position by position, those of a Conv1d channel by channel.
    windows = head.num_rows // 2 - 4

    def by_position(weight: Tensor) -> Tensor:
        return weight.unflatten(1, (wide, windows)).transpose(1, 2).flatten(1)

    with torch.no_grad():
        first.weight.copy_(head.rows.weight.mT.unsqueeze(1))
        second.weight.copy_(head.windows.weight.mT.unflatten(1, (channels, 5)))
        inner.weight.copy_(head.inner.weight.mT.unflatten(1, (windows, wide)).transpose(1, 2).flatten(1))
        outer.weight.copy_(head.outer.weight.mT)
        for ours, theirs in zip(
            (head.rows, head.windows, head.inner, head.outer), (first, second, inner, outer), strict=True
        ):
            assert ours.bias is not None
            assert theirs.bias is not None
            theirs.bias.copy_(ours.bias)
    rows = nn.MaxPool1d(2)(first(x.flatten(1).unsqueeze(1)).relu())
    scores = outer(inner(second(rows).relu().flatten(1)).relu())
    scores.sin().sum().backward()
    gradients = [first.weight.grad, second.weight.grad, inner.weight.grad, outer.weight.grad]
    a, b, c, e = (gradient for gradient in gradients if gradient is not None)
    return scores, [a.squeeze(1).mT, b.flatten(1).mT, by_position(c).mT, e.mT]


@pytest.mark.parametrize("rows", [10, 15])
def test_equals_torch(rows: int) -> None:
    torch.manual_seed(0)
    head = ConvHead(3, rows, 2, channels=(4, 6), hidden=7, dropout=0.0).double()
    one = torch.randn(5, rows, 3, dtype=torch.float64, requires_grad=True)
    two = one.detach().clone().requires_grad_()
    expected, gradients = _torch(head, two)
    value = head(one)
    assert_equal(value, expected, "logits")
    value.sin().sum().backward()
    assert one.grad is not None
    assert two.grad is not None
    assert_equal(one.grad, two.grad, "gradient of x")
    for part, gradient in zip((head.rows, head.windows, head.inner, head.outer), gradients, strict=True):
        assert part.weight.grad is not None
        assert_equal(part.weight.grad, gradient, "gradient of a weight")


def test_replicas_equal_single_heads() -> None:
    torch.manual_seed(0)
    heads = ConvHead(3, 10, 2, dropout=0.0, lead=(2,)).double()
    x = torch.randn(2, 4, 10, 3, dtype=torch.float64)
    together = heads(x)
    for f in range(2):
        single = ConvHead(3, 10, 2, dropout=0.0).double()
        with torch.no_grad():
            for name, parameter in single.named_parameters():
                parameter.copy_(heads.get_parameter(name)[f])
        assert_equal(together[f], single(x[f]))


def test_sizes_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"^ConvHead: 'num_rows' must be at least 10, got 9\.$"):
        ConvHead(3, 9, 2)
    with pytest.raises(ShapeError, match=r"^ConvHead: 'x' must have 10 rows of 3 columns, got \[11, 3\]\.$"):
        ConvHead(3, 10, 2)(torch.rand(4, 11, 3))
