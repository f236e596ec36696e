"""RaggedBatchNorm equals torch.nn.BatchNorm1d on the rows that are not padding."""

import pytest
import torch

from graphcaps.nn import RaggedBatchNorm, mean_pool
from tests.graphs import assert_equal, random_graphs, with_padding


def _torch_reference(x: torch.Tensor, steps: int) -> tuple[torch.nn.BatchNorm1d, torch.Tensor]:
    reference = torch.nn.BatchNorm1d(3).double()
    for _ in range(steps):
        out = reference(x)
    return reference, out


def test_equals_torch_with_and_without_padding() -> None:
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4 + 2
    reference, expected = _torch_reference(x, 3)
    bare, masked = RaggedBatchNorm(3).double(), RaggedBatchNorm(3).double()
    padded = torch.cat([x, torch.full((4, 3), 1e6, dtype=torch.float64)])
    mask = torch.arange(13) < 9
    for _ in range(3):
        one, two = bare(x), masked(padded, mask)
    assert_equal(one, expected)
    assert_equal(two[:9], expected)
    for norm in (bare, masked):
        assert_equal(norm.running_mean, reference.running_mean, "mean")
        assert_equal(norm.running_var, reference.running_var, "variance")
    reference.eval()
    assert_equal(masked.eval()(x), reference(x), "evaluation")


def test_gradient_of_the_masked_form() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, True, True, False, True])
    norm = RaggedBatchNorm(3).double()
    assert torch.autograd.gradcheck(
        lambda t: norm(t, mask)[mask].square() * torch.arange(12.0).reshape(4, 3), x
    )


def test_first_and_second_derivatives_of_replicas() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    norm = RaggedBatchNorm(3, lead=(2,)).double()
    weight, bias = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    for mask in (None, torch.tensor([[True, True, True, False, True], [False, True, True, True, True]])):

        def normalised(*tensors: torch.Tensor, mask: torch.Tensor | None = mask) -> torch.Tensor:
            parameters = {"weight": tensors[1], "bias": tensors[2]}
            return torch.func.functional_call(norm, parameters, (tensors[0], mask)).square()

        assert torch.autograd.gradcheck(normalised, (x, weight, bias))
        assert torch.autograd.gradgradcheck(normalised, (x, weight, bias))


def test_a_replica_without_rows_keeps_its_running_statistics() -> None:
    norm = RaggedBatchNorm(3, lead=(2,)).double()
    norm(torch.randn(2, 4, 3, dtype=torch.float64), torch.tensor([[True] * 4, [False] * 4]))
    assert torch.equal(norm.running_mean[1], torch.zeros(3, dtype=torch.float64))
    assert torch.equal(norm.running_var[1], torch.ones(3, dtype=torch.float64))
    assert not torch.equal(norm.running_mean[0], torch.zeros(3, dtype=torch.float64))


def test_a_single_row_becomes_the_bias() -> None:
    norm = RaggedBatchNorm(3).double()
    torch.nn.init.constant_(norm.bias, 0.5)
    assert_equal(norm(torch.randn(1, 3, dtype=torch.float64)), torch.full((1, 3), 0.5, dtype=torch.float64))
    assert bool(norm.running_var.isfinite().all())


def test_nan_in_padding_rows_becomes_zero() -> None:
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    poisoned = x.masked_fill(~mask.unsqueeze(-1), float("nan")).requires_grad_()
    for training in (True, False):
        norm = RaggedBatchNorm(3, lead=(2,)).double().train(training)
        torch.nn.init.constant_(norm.bias, 0.5)
        for rows in (norm(poisoned, mask), norm.standardise(poisoned, mask)):
            assert bool((rows[1, 4:] == 0).all())
            assert bool(rows.isfinite().all())
        assert bool(norm.running_var.isfinite().all())
    norm.train()
    (gradient,) = torch.autograd.grad(norm(poisoned, mask).square().sum(), poisoned)
    assert bool((gradient[1, 4:] == 0).all())
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("lead", "mask"),
    [((), None), ((3,), None), ((3,), torch.arange(7) < torch.tensor([[7], [3], [0]]))],
    ids=["one model", "replicas", "padded replicas"],
)
def test_standardise_equals_forward_with_unit_weights(
    lead: tuple[int, ...], mask: torch.Tensor | None, training: bool
) -> None:
    one, two = (RaggedBatchNorm(4, lead=lead).double().train(training) for _ in range(2))
    for norm in (one, two):
        torch.nn.init.constant_(norm.running_mean, 0.3)
        torch.nn.init.constant_(norm.running_var, 1.7)
    x = torch.randn(*lead, 7, 4, dtype=torch.float64) * 3 + 2
    before = x.clone()
    standardised = two.standardise(x, mask)
    assert_equal(standardised, one(x, mask))
    assert not standardised.requires_grad
    assert torch.equal(x, before)
    assert_equal(two.running_mean, one.running_mean, "running mean")
    assert_equal(two.running_var, one.running_var, "running variance")


def test_rows_can_be_the_graphs_of_a_padded_batch() -> None:
    """After pooling, padding graphs are left out: values, gradients and running averages of the real graphs."""
    batch = random_graphs([6, 9, 1, 4]).as_batch()
    reference = torch.nn.BatchNorm1d(5).double()
    x = batch.x.clone().requires_grad_()
    expected = reference(mean_pool(x, batch.segments))
    expected.sin().sum().backward()
    padded = with_padding(batch)
    norm = RaggedBatchNorm(5).double()
    rows = padded.x.clone().requires_grad_()
    value = norm(mean_pool(rows, padded.segments), padded.segments.graph_mask)
    value[:4].sin().sum().backward()
    assert_equal(value[:4], expected)
    assert bool((value[4:] == 0).all())
    assert rows.grad is not None
    assert x.grad is not None
    assert_equal(rows.grad[:20], x.grad, "gradient")
    assert_equal(norm.weight.grad, reference.weight.grad, "gradient of the weight")
    assert_equal(norm.running_mean, reference.running_mean, "mean")
    assert_equal(norm.running_var, reference.running_var, "variance")
