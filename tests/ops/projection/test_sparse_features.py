"""Projection by the entries of a table on a CPU, against gathered rows."""

import pytest
import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.projection.projection import (
    feature_statistics,
    project,
    project_gathered,
    projects_without_gather,
)
from graphcaps.ops.projection.sparse_features import sparse_product
from graphcaps.types import FeatureRows
from tests.ops.projection.test_projection_triton import DRAWN, _rows


def _project_sparse(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    return sparse_product(rows, scale.unsqueeze(-1) * weight, mean)


HOW = {"training": True, "momentum": 0.1, "epsilon": 1e-5}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize(("channels", "d"), [(3, 1), (40, 24)])
def test_values_and_gradients(
    drawn: str, channels: int, d: int, dtype: torch.dtype, tolerance: float
) -> None:
    rows, exact = (_rows(DRAWN[drawn], channels, "cpu", kind) for kind in (dtype, torch.float64))
    lead = rows.node.shape[:-1]
    torch.manual_seed(0)
    weight, scale = torch.randn(*lead, channels, d), torch.randn(*lead, channels)
    gradient = torch.randn(*rows.node.shape, d)
    actual: list[dict[str, Tensor]] = []
    for inputs, multiply, poison in ((rows, _project_sparse, float("nan")), (exact, project_gathered, 0.0)):
        x = inputs.table.x
        running = (x.new_zeros(*lead, channels), x.new_ones(*lead, channels))
        W, s = (t.to(x).requires_grad_() for t in (weight, scale))
        with use_kernels("off"):
            mean, rstd = feature_statistics(inputs, running, **HOW)  # type: ignore[arg-type]
            z = multiply(inputs, W, s * rstd, mean)
        away = gradient.to(x).masked_fill((inputs.node < 0).unsqueeze(-1), poison)
        dW, ds = torch.autograd.grad(z, (W, s), away)
        result = {"z": z, "gradient of W": dW, "gradient of s": ds, "running variance": running[1]}
        actual.append({name: value.detach().double() for name, value in result.items()})
    for name, value in actual[1].items():
        error, scale_ = float((actual[0][name] - value).abs().max()), max(1.0, float(value.abs().max()))
        assert error <= tolerance * scale_, f"{name} differs by {error:.3g} (largest {scale_:.3g})"


def test_columns_beyond_short_numbers() -> None:
    """Many replicas have more columns together than 15 bits count."""
    rows = _rows([[0, 2]] * 250, 140, "cpu", torch.float64)
    weight = torch.randn(250, 140, 2, dtype=torch.float64, requires_grad=True)
    mean, one = torch.zeros(250, 140).double(), torch.ones(250, 140).double()
    grads = []
    for z in (sparse_product(rows, weight, mean), project_gathered(rows, weight, one, mean)):
        grads.append(torch.autograd.grad(z, weight, torch.ones_like(z) * 0.5)[0])
    assert float((grads[0] - grads[1]).abs().max()) <= 1e-12 * float(grads[1].abs().max())


def test_sparse_features_are_projected_by_their_entries() -> None:
    for channels, rare in ((10, False), (250, True)):
        rows = _rows(DRAWN["replicas"], channels, "cpu", torch.float32)
        weight, one, mean = torch.randn(4, channels, 3), torch.ones(4, channels), torch.randn(4, channels)
        assert projects_without_gather(rows, weight) == rare
        expected = project_gathered(rows, weight, one, mean)
        assert float((project(rows, weight, one, mean) - expected).abs().max()) < 1e-4 * float(
            expected.abs().max()
        )
