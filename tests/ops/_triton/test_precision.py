"""Products of tiles in three precisions, each held to the error it may have."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.ops._triton.precision import Precision, current_precision, dot_precision, use_precision

# Share of the largest magnitude: 24, 11 and 8 bits of a number count.
TOLERANCE = {"tf32x3": 2e-6, "tf32": 2e-3, "bfloat16": 1.6e-2}


def test_the_default_precision_is_float32(monkeypatch):
    monkeypatch.delenv("GRAPHCAPS_PRECISION", raising=False)
    assert current_precision() == "float32"
    assert dot_precision() == "tf32x3"
    monkeypatch.setenv("GRAPHCAPS_PRECISION", "bf16")
    assert current_precision() == "bf16"
    with use_precision("tf32"):
        assert dot_precision() == "tf32"
    assert current_precision() == "bf16"


def test_no_name_of_a_kernel_is_a_type_of_triton(kernel_device):
    """Compiled before its launch, a kernel would get the type in the place of the name."""
    import triton.language as tl

    for precision in get_args(Precision):
        with use_precision(precision):
            assert not tl.dtype.is_dtype(dot_precision())


def test_another_precision_is_refused(monkeypatch):
    with pytest.raises(ArgumentError, match="float32, tf32, bf16"), use_precision("float8"):  # type: ignore[arg-type]
        pass
    monkeypatch.setenv("GRAPHCAPS_PRECISION", "half")
    with pytest.raises(ArgumentError, match="GRAPHCAPS_PRECISION"):
        current_precision()


@pytest.mark.parametrize("name", list(TOLERANCE))
def test_error_is_within_the_bound_of_the_precision(kernel_device, name):
    from tests.ops._triton.product_kernel import one_product

    torch.manual_seed(0)
    a, b = torch.randn(2, 64, 64, device=kernel_device)
    out = torch.empty_like(a)
    one_product[(1,)](a, b, out, N=64, PRECISION=name)
    expected = a.double() @ b.double() + 1
    error = float((out - expected).abs().max() / expected.abs().max())
    assert error < TOLERANCE[name]
    if name == "bfloat16":
        assert error > TOLERANCE["tf32x3"]  # the rounding is really done
