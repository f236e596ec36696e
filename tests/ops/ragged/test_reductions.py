"""Mean and maximum over graphs, with replicas, padding and graphs without rows."""

import torch

from graphcaps.ops import clear_padding, segment_max, segment_mean
from graphcaps.types import Segments
from tests.graphs import assert_equal

# Two replicas of three graphs: the second has a graph without rows and padding rows.
SEGMENTS = Segments(
    torch.tensor([[0, 2, 3, 6], [0, 3, 3, 4]]),
    torch.tensor([[0, 0, 1, 2, 2, 2], [0, 0, 0, 2, 3, 3]]),
)


def _rows() -> torch.Tensor:
    return torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_mean_and_maximum_equal_a_loop_over_graphs() -> None:
    x = _rows()
    for f in range(2):
        for g in range(3):
            rows = x[f, SEGMENTS.ptr[f, g] : SEGMENTS.ptr[f, g + 1]]
            mean, maximum = segment_mean(x, SEGMENTS)[f, g], segment_max(x, SEGMENTS)[f, g]
            if not len(rows):
                assert not bool(mean.any() or maximum.any())
                continue
            assert_equal(mean, rows.mean(0), "mean")
            assert_equal(maximum, rows.amax(0), "maximum")


def test_gradients() -> None:
    x = _rows().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: segment_mean(t, SEGMENTS).square(), x)
    assert torch.autograd.gradcheck(lambda t: segment_max(t, SEGMENTS).square(), x)


def test_nan_in_padding_reaches_neither_values_nor_gradients() -> None:
    mask = SEGMENTS.row_mask
    assert mask is not None
    poisoned = _rows().masked_fill(~mask.unsqueeze(-1), float("nan")).requires_grad_()
    for reduce in (segment_mean, segment_max):
        value = reduce(poisoned, SEGMENTS)
        assert_equal(value, reduce(_rows(), SEGMENTS))
        (gradient,) = torch.autograd.grad(value.square().sum(), poisoned)
        assert bool(gradient.isfinite().all())
        assert bool((gradient[~mask] == 0).all())


def test_clear_padding() -> None:
    mask = SEGMENTS.row_mask
    assert mask is not None
    x = _rows()
    cleared = clear_padding(x.masked_fill(~mask.unsqueeze(-1), float("nan")), SEGMENTS)
    assert torch.equal(cleared[mask], x[mask])
    assert not bool(cleared[~mask].any())
    bare = Segments.from_sizes(torch.tensor([2, 4]))
    assert torch.equal(clear_padding(x[0], bare), x[0])
