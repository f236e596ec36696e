"""Softmax over graphs against torch-geometric's, and with padding."""

from __future__ import annotations

import torch
from torch_geometric.utils import softmax

from graphcaps.ops.ragged.segment_softmax import segment_softmax
from graphcaps.types import Segments
from tests.graphs import assert_equal


def test_equals_torch_geometric() -> None:
    batch = torch.tensor([0, 0, 0, 1, 3, 3])
    generator = torch.Generator().manual_seed(0)
    x = (100 * torch.randn(6, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    value, expected = segment_softmax(x, Segments.from_index(batch, 4)), softmax(x, batch)
    assert_equal(value, expected)
    weight = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    one, two = (torch.autograd.grad((weight * each).sum(), x)[0] for each in (value, expected))
    assert_equal(one, two, "gradient")


def test_padding_rows_are_zero() -> None:
    segments = Segments(torch.tensor([[0, 2], [0, 1]]), torch.tensor([[0, 0, 1], [0, 1, 1]]))
    x = torch.tensor([[[0.0], [0.0], [5.0]], [[3.0], [-1.0], [9.0]]], requires_grad=True)
    value = segment_softmax(x, segments)
    assert value.squeeze(-1).tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    value.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert not x.grad[1].any()
