"""Covariances of ragged rows against torch's, and padding."""

from __future__ import annotations

import torch

from graphcaps.ops.ragged.covariance import segment_covariance
from graphcaps.ops.ragged.reductions import segment_mean
from graphcaps.types import Segments
from tests.graphs import assert_equal, random_graphs

_SIZES = [5, 40, 1]


def test_equals_torch() -> None:
    graphs = random_graphs(_SIZES)
    one, two = graphs.x.clone().requires_grad_(), graphs.x.clone().requires_grad_()
    covariance = segment_covariance(one, segment_mean(one, graphs.segments), graphs.segments)
    expected = torch.stack([rows.T.cov(correction=0) for rows in two.split(_SIZES)])
    assert_equal(covariance, expected)
    weight = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    (covariance * weight).sum().backward()
    (expected * weight).sum().backward()
    assert one.grad is not None
    assert two.grad is not None
    assert_equal(one.grad, two.grad, "gradient")


def test_padding_is_left_out() -> None:
    x = torch.tensor([[1.0, 0.0], [3.0, 0.0], [99.0, 99.0]], dtype=torch.float64)
    segments = Segments(torch.tensor([0, 2, 2]), torch.tensor([0, 0, 2]))
    covariance = segment_covariance(x, segment_mean(x, segments), segments)
    assert covariance.tolist() == [[[1, 0], [0, 0]], [[0, 0], [0, 0]]]
