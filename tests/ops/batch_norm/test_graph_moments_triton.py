"""Statistics, means and weighted sums of graphs in one pass, against those of float64."""

from __future__ import annotations

import pytest
import torch

from tests.graphs import assert_equal
from tests.ops.ragged_rows import SIZES, moved, poisoned, rows

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("divisor", [None, 0.0, 40.0], ids=["no means", "own number", "fixed number"])
@pytest.mark.parametrize(
    ("sizes", "width"),
    [(SIZES, 16), (SIZES, 33), ([[1, 600, 0, 2], [4, 0, 9, 1030]], 16)],
    ids=["small", "odd width", "several chunks"],
)
def test_weighted_sums(sizes: list[list[int]], width: int, divisor: float | None, kernel_device: str) -> None:
    from graphcaps.ops.batch_norm.graph_moments_triton import graph_statistics

    segments = rows(sizes)
    F, B = len(sizes), len(sizes[0])
    x = poisoned(segments, width, seed=4) + 2
    generator = torch.Generator().manual_seed(1)
    gamma, beta = torch.randn(2, F, width, generator=generator)
    weights = 2 * torch.rand(segments.index.shape, generator=generator) - 1
    weights[:, :2] = 0
    running = torch.zeros(F, width), torch.ones(F, width)
    there = moved(segments, kernel_device)
    found = graph_statistics(
        x.to(kernel_device),
        there.ptr,
        gamma.to(kernel_device),
        beta.to(kernel_device),
        (running[0].to(kernel_device), running[1].to(kernel_device)),
        momentum=0.1,
        epsilon=1e-5,
        divisor=divisor,
        max_size=segments.max_size,
        row_weights=weights.to(kernel_device),
    )
    assert found.sums is not None
    assert (found.means is None) == (divisor is None)
    for f in range(F):
        real = segments.index[f] < B
        if not real.any():
            continue
        values = x[f][real].double()
        hat = (values - values.mean(0)) / (values.var(0, unbiased=False) + 1e-5).sqrt()
        hat = hat * gamma[f].double() + beta[f].double()
        graph = segments.index[f][real]
        expected = torch.zeros(B, width, dtype=torch.float64)
        expected.index_add_(0, graph, hat * weights[f][real].double()[:, None])
        assert_equal(found.sums[f].cpu().double(), expected, "sums", 2e-5)
        if found.means is not None:
            total = torch.zeros(B, width, dtype=torch.float64).index_add_(0, graph, hat)
            under = (
                torch.tensor(sizes[f]).clamp_min(1).double() if divisor == 0 else torch.full((B,), divisor)
            )
            assert_equal(found.means[f].cpu().double(), total / under[:, None], "means", 2e-5)
