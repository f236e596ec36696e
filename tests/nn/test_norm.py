"""RaggedBatchNorm is torch's BatchNorm1d on the real rows."""

import torch

from graphcaps.nn import RaggedBatchNorm
from tests.graphs import assert_equal


def _torch_twin(x: torch.Tensor, steps: int) -> tuple[torch.nn.BatchNorm1d, torch.Tensor]:
    twin = torch.nn.BatchNorm1d(3).double()
    for _ in range(steps):
        out = twin(x)
    return twin, out


def test_equals_torch_with_and_without_padding() -> None:
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4 + 2
    twin, expected = _torch_twin(x, 3)
    bare, masked = RaggedBatchNorm(3).double(), RaggedBatchNorm(3).double()
    padded = torch.cat([x, torch.full((4, 3), 1e6, dtype=torch.float64)])
    mask = torch.arange(13) < 9
    for _ in range(3):
        one, two = bare(x), masked(padded, mask)
    assert_equal(one, expected)
    assert_equal(two[:9], expected)
    for norm in (bare, masked):
        assert_equal(norm.running_mean, twin.running_mean, "mean")
        assert_equal(norm.running_var, twin.running_var, "variance")
    twin.eval()
    assert_equal(masked.eval()(x), twin(x), "evaluation")


def test_gradient_of_the_masked_form() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, True, True, False, True])
    norm = RaggedBatchNorm(3).double()
    assert torch.autograd.gradcheck(
        lambda t: norm(t, mask)[mask].square() * torch.arange(12.0).reshape(4, 3), x
    )


def test_a_replica_without_rows_learns_nothing() -> None:
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
