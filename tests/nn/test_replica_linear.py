"""ReplicaLinear against torch.nn.Linear."""

import pytest
import torch

from graphcaps.errors import ShapeError
from graphcaps.nn import ReplicaLinear
from tests.graphs import assert_equal


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_equals_torch_linear(bias: bool) -> None:
    torch.manual_seed(0)
    ours = ReplicaLinear(5, 3, bias=bias).double()
    theirs = torch.nn.Linear(5, 3, bias=bias).double()
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.T)
        if ours.bias is not None:
            theirs.bias.copy_(ours.bias)
    x = torch.randn(7, 5, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    value, expected = ours(one), theirs(two)
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert_equal(value, expected)
    assert_equal(one.grad, two.grad, "gradient of x")
    assert_equal(ours.weight.grad.T, theirs.weight.grad, "gradient of the weight")
    if ours.bias is not None:
        assert_equal(ours.bias.grad, theirs.bias.grad, "gradient of the bias")


def test_replicas_equal_separate_maps() -> None:
    layer = ReplicaLinear(5, 3, lead=(2, 4)).double()
    x = torch.randn(2, 4, 7, 5, dtype=torch.float64)
    y = layer(x)
    for f in range(2):
        for g in range(4):
            assert_equal(y[f, g], x[f, g] @ layer.weight[f, g] + layer.bias[f, g])


def test_initial_weights_have_the_bound_of_one_replica() -> None:
    torch.manual_seed(0)
    layer = ReplicaLinear(16, 3, lead=(50,))
    for parameter in layer.parameters():
        assert 0.24 < float(parameter.detach().abs().max()) <= 0.25


def test_wrong_width_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^ReplicaLinear: 'x' must have 5 columns, got 4\.$"):
        ReplicaLinear(5, 3)(torch.ones(7, 4))


def test_repr_shows_the_leading_axes() -> None:
    assert repr(ReplicaLinear(5, 3)) == "ReplicaLinear(5, 3)"
    assert repr(ReplicaLinear(5, 3, bias=False, lead=(2,))) == "ReplicaLinear(5, 3, bias=False, lead=(2,))"
