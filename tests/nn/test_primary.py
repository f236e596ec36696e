"""What the factors do, and what they do not."""

import torch

from graphcaps.nn import PrimaryCapsules
from tests.graphs import assert_equal


def test_joined_factors_are_one_projection() -> None:
    """With the same weights K changes nothing: it only sets the bound of the starting weights."""
    x = torch.randn(6, 5, dtype=torch.float64)
    two = PrimaryCapsules(5, 8, num_factors=2).double()
    eight = PrimaryCapsules(5, 8, num_factors=8).double()
    eight.load_state_dict(two.state_dict())
    assert_equal(eight(x), two(x))
    for K in (1, 2, 8):
        bound = (6 / (5 + 8 / K)) ** 0.5
        largest = max(
            float(PrimaryCapsules(5, 8, num_factors=K).weight.detach().abs().max()) for _ in range(40)
        )
        assert 0.9 * bound < largest <= bound


def test_separate_factors_matter_and_stay_short() -> None:
    x = torch.randn(6, 5, dtype=torch.float64) * 10
    joined = PrimaryCapsules(5, 8, num_factors=4).double()
    separate = PrimaryCapsules(5, 8, num_factors=4, factor_squash="separate").double()
    separate.load_state_dict(joined.state_dict())
    found = separate(x)
    assert float((found - joined(x)).detach().abs().max()) > 1e-3
    lengths = found.unflatten(-1, (4, 2)).norm(dim=-1)
    assert bool((lengths < 0.5).all())  # each factor below 1/√K
    assert bool((found.norm(dim=-1) < 1).all())


def test_dropout_only_while_training() -> None:
    x = torch.randn(50, 5, dtype=torch.float64)
    layer = PrimaryCapsules(5, 8, dropout=0.5, formulation="paper").double()
    torch.nn.init.constant_(layer.bias, 1.0)  # no zero without dropout
    assert 0.3 < float((layer(x) == 0).double().mean()) < 0.7
    assert_equal(layer.eval()(x), layer(x))
    assert float((layer(x) == 0).double().mean()) == 0
