"""The terms of the loss from parts of their sums, against sums in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.ops.ragged_rows import assert_close

pytest.importorskip("triton")

WEIGHTS = torch.tensor([0.3, 2.0, 0.7])


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _inputs(num_graphs: int, num_parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Parts of margin loss and of the sum over pairs, and sizes, of three replicas; the second one has no nodes."""
    generator = torch.Generator().manual_seed(num_graphs)
    sizes = torch.randint(0, 40, (3, num_graphs), generator=generator)
    margin, parts = (torch.rand(3, count, generator=generator) for count in (2 * num_graphs, num_parts))
    sizes[1], margin[1], parts[1] = 0, 0, 0
    return margin, parts, sizes


@pytest.mark.parametrize("weight", [0.25, WEIGHTS], ids=["one weight", "weight per replica"])
@pytest.mark.parametrize(("num_graphs", "num_parts"), [(5, 9), (1030, 3), (7, 2500)])
def test_reconstruction_is_an_average_over_pairs(
    num_graphs: int, num_parts: int, weight: float | Tensor, kernel_device: str
) -> None:
    """Of all pairs of nodes of the same graph; the total is the margin loss plus the weighted average."""
    from graphcaps.ops.fused_loss.loss_terms_triton import loss_terms

    margin, parts, sizes = _inputs(num_graphs, num_parts)
    pairs = sizes.double().square().sum(1)
    reconstruction = torch.where(pairs > 0, parts.double().sum(1) / pairs, 0)
    each = weight.double() if isinstance(weight, Tensor) else weight
    expected = torch.stack(
        [margin.double().sum(1) + each * reconstruction, margin.double().sum(1), reconstruction]
    )
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    found = loss_terms(
        *(tensor.to(kernel_device) for tensor in (margin, parts, ptr)),
        weight.to(kernel_device) if isinstance(weight, Tensor) else weight,
    )
    for name, term, value in zip(("total", "margin", "reconstruction"), found, expected, strict=True):
        assert_close(term, value, name)


@pytest.mark.parametrize("num_graphs", [5, 1030])
def test_without_pairs_the_margin_loss_is_the_total(num_graphs: int, kernel_device: str) -> None:
    """The weight is not read."""
    from graphcaps.ops.fused_loss.loss_terms_triton import loss_terms

    margin, _, sizes = _inputs(num_graphs, 1)
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    found = loss_terms(margin.to(kernel_device), None, ptr.to(kernel_device), float("nan"))
    assert_close(found, margin.double().sum(1).expand(2, 3), "total and margin loss")
