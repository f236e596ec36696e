"""A product of many rows: its weight gradient in chunks is the gradient of one product."""

import pytest
import torch

from graphcaps.ops.linear import _MatmulRows, chunks_of_rows, matmul_rows, weight_gradient
from tests.graphs import assert_equal


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("rows", [1, 7, 1024, 4224])
def test_values_and_gradient(lead: tuple[int, ...], rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(*lead, rows, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(*lead, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(*lead, rows, 4, generator=generator, dtype=torch.float64)
    (expected,) = torch.autograd.grad(x @ weight, weight, grad)
    for product in (matmul_rows, _MatmulRows.apply):
        actual = product(x, weight)
        assert_equal(actual, x @ weight, "product")
        assert_equal(torch.autograd.grad(actual, weight, grad)[0], expected, "gradient")


@pytest.mark.parametrize("chunks", [1, 2, 8])
def test_chunks_add_up(chunks: int) -> None:
    x, grad = torch.randn(2, 64, 3).double(), torch.randn(2, 64, 5).double()
    assert_equal(weight_gradient(x, grad, chunks), x.mT @ grad)


@pytest.mark.parametrize(
    ("rows", "width", "out", "chunks"),
    [(4224, 250, 128, 8), (17408, 190, 32, 32), (8192, 16, 128, 32), (512, 250, 128, 2), (250, 9, 9, 1)],
)
def test_chunks_fill_a_gpu_with_ten_replicas(rows: int, width: int, out: int, chunks: int) -> None:
    assert chunks_of_rows(torch.empty(10, rows, width, device="meta"), out) == chunks
    assert rows % chunks == 0
