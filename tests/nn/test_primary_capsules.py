"""PrimaryCapsules: factors, dropout, folded normalisation and padding."""

import pytest
import torch

from graphcaps.nn import PrimaryCapsules
from graphcaps.nn.primary_capsules import FactorSquash
from tests.graphs import assert_equal, masked_segments


def test_joined_factors_equal_one_projection() -> None:
    """With equal weights the output does not depend on K, which only sets the bound of the initial weights."""
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


def test_separate_factors_are_each_shorter_than_their_bound() -> None:
    x = torch.randn(6, 5, dtype=torch.float64) * 10
    joined = PrimaryCapsules(5, 8, num_factors=4).double()
    separate = PrimaryCapsules(5, 8, num_factors=4, factor_squash="separate").double()
    separate.load_state_dict(joined.state_dict())
    capsules = separate(x)
    assert float((capsules - joined(x)).detach().abs().max()) > 1e-3
    lengths = capsules.unflatten(-1, (4, 2)).norm(dim=-1)
    assert bool((lengths < 0.5).all())  # each factor below 1/√K
    assert bool((capsules.norm(dim=-1) < 1).all())


def test_dropout_acts_in_training_only() -> None:
    x = torch.randn(50, 5, dtype=torch.float64)
    layer = PrimaryCapsules(5, 8, dropout=0.5, formulation="paper").double()
    torch.nn.init.constant_(layer.bias, 1.0)  # no zero without dropout
    assert 0.3 < float((layer(x) == 0).double().mean()) < 0.7
    assert_equal(layer.eval()(x), layer(x))
    assert float((layer(x) == 0).double().mean()) == 0


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("padded", [False, True], ids=["bare", "padded"])
@pytest.mark.parametrize("factor_squash", ["joined", "separate"])
def test_folded_normalisation_equals_separate_normalisation(
    training: bool, padded: bool, factor_squash: FactorSquash
) -> None:
    """γ and β are folded into the projection if the features need no gradient; otherwise rows are normalised."""
    x = torch.randn(2, 9, 5, dtype=torch.float64) * 2 + 1
    mask = torch.arange(9) < torch.tensor([[9], [6]]) if padded else None
    results = []
    for needs_gradient in (False, True):
        torch.manual_seed(0)
        layer = PrimaryCapsules(5, 8, dropout=0.3, factor_squash=factor_squash, lead=(2,)).double()
        assert layer.norm is not None
        for parameter in (layer.bias, layer.norm.weight, layer.norm.bias):
            torch.nn.init.normal_(parameter)
        torch.nn.init.uniform_(layer.norm.running_var, 0.5, 2)
        layer.train(training)
        batch = None if mask is None else masked_segments(mask)
        out = layer(x.clone().requires_grad_(needs_gradient), batch=batch)
        real = out if mask is None else out[mask]
        real.mul(torch.linspace(-1, 1, 8, dtype=torch.float64)).sin().sum().backward()
        gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
        results.append({"capsules": real, **gradients, **dict(layer.named_buffers())})
    folded, separate = results
    for name, value in separate.items():
        assert value is not None
        assert_equal(folded[name], value, name)


def test_padding_rows_are_zero() -> None:
    x = torch.randn(6, 5, dtype=torch.float64)
    mask = torch.arange(6) < 4
    for formulation in ("released", "paper"):
        layer = PrimaryCapsules(5, 8, formulation=formulation).double()  # type: ignore[arg-type]
        torch.nn.init.constant_(layer.bias, 1.0)
        assert bool((layer(x, batch=masked_segments(mask))[4:] == 0).all())
