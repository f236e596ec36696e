"""Rows of length 1 against torch's normalize."""

from __future__ import annotations

import torch

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.unit_rows.unit_rows import unit_rows
from tests.graphs import assert_equal


def test_equals_torch() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 7, 4, dtype=torch.float64)
    x[0, 0] = 0  # stays 0
    weight = torch.randn_like(x)
    weight[0, 0] = 0
    results = []
    for function in (unit_rows, lambda x: torch.nn.functional.normalize(x, dim=-1)):
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        (y * weight).sum().backward()
        assert leaf.grad is not None
        results.append((y, leaf.grad))
    for name, one, other in zip(("rows", "gradient"), *results, strict=True):
        assert_equal(one, other, name)
    with use_kernels("reference"):
        assert_equal(unit_rows(x), results[0][0], "reference form")
