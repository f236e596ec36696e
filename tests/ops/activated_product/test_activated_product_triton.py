"""A product with normalised activation by kernels against the torch form in float64."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.nn import RaggedBatchNorm
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from tests.graphs import assert_equal
from tests.ops.batch_norm.test_batch_norm_triton import _norm

TOLERANCE = 1e-4
PRECISIONS: dict[Precision, float] = {"float32": TOLERANCE, "tf32": 1e-2, "bf16": 8e-2}
"""Errors of rounded factors, after the division by a standard deviation. The interpreter does not round to TF32."""

CASES = {
    "one model": ((), 100, 6, 10, False),
    "one model, padded": ((), 70, 20, 32, True),
    "several blocks of columns": ((), 65, 130, 272, True),
    "replicas": ((3,), 63, 16, 16, False),
    "replicas, padded": ((3,), 100, 32, 48, True),
    "long": ((3,), 700, 16, 8, True),
}


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


def _real(lead: tuple[int, ...], V: int, padded: bool) -> Tensor | None:
    """A mask; one replica has no real row, and one has a single one."""
    if not padded:
        return None
    mask = torch.rand(*lead, V) < 0.8
    mask[..., -2:] = False
    if lead:
        mask[1], mask[2] = False, torch.arange(V) == 3
    return mask


def _away_from_kinks(reference: RaggedBatchNorm, x: Tensor, mask: Tensor | None, gated: bool) -> Tensor:
    """Whether no column of a row is so close to the kink of ReLU that rounding decides its side, ``[*lead, V, C]``."""
    with torch.no_grad():
        before = deepcopy(reference)(x, mask)  # which updates running averages
    return (before.chunk(2, -1)[0] if gated else before).abs() > 0.1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["residual", "gated", "one part", "other residual", "eval"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_values_gradients_and_running_averages(
    case: tuple[tuple[int, ...], int, int, int, bool], kind: str, precision: Precision, kernel_device: str
) -> None:
    """Residuals are the first part, so that one kernel adds both gradients, or another tensor, or none."""
    lead, V, K, C, padded = case
    gated, count, training = kind == "gated", 1 if kind == "one part" else 2, kind != "eval"
    own = kind in ("residual", "gated", "eval")
    C = K if own else C
    N = 2 * C if gated else C
    torch.manual_seed(0)
    norm, reference = (_norm(N, lead).train(training) for _ in range(2))
    norm, reference = norm.to(kernel_device), reference.double()
    mask = _real(lead, V, padded)
    values = [torch.randn(*lead, V, K) + 0.5 for _ in range(count)]
    matrix = torch.randn(*lead, count * K, N) / K**0.5
    residual = torch.randn(*lead, V, C) if kind == "other residual" else None
    upstream = torch.randn(*lead, V, C)
    exact = [value.double().requires_grad_() for value in (*values, matrix)]
    clear = _away_from_kinks(reference, torch.cat(exact[:count], -1) @ exact[count], mask, gated)
    upstream *= clear
    leaves = [value.to(kernel_device).requires_grad_() for value in (*values, matrix)]
    if residual is not None:
        exact.append(residual.double().requires_grad_())
        leaves.append(residual.to(kernel_device).requires_grad_())
    there = None if mask is None else mask.to(kernel_device)

    def run(norm: RaggedBatchNorm, tensors: list[Tensor], mask: Tensor | None) -> Tensor:
        added = tensors[0] if own else tensors[-1] if residual is not None else None
        parts = (tensors[0],) if count == 1 else (tensors[0], tensors[1])
        return norm.activate_product(parts, tensors[count], mask, added, gated=gated)

    expected = run(reference, exact, mask)
    expected.backward(upstream.double())
    with use_kernels("always"), use_precision(precision):
        actual = run(norm, leaves, there)
        assert "_ActivatedProduct" in type(actual.grad_fn).__name__
    actual.backward(upstream.to(kernel_device))
    tolerance = PRECISIONS[precision]
    spread = float(expected.detach().abs().max())
    assert_equal(actual.detach().cpu().double() / spread, expected.detach() / spread, "result", tolerance)
    names = [*(f"part {i}" for i in range(count)), "matrix", "residual"][: len(exact)]
    pairs = {name: (one.grad, other.grad) for name, one, other in zip(names, leaves, exact, strict=True)}
    pairs |= {name: (getattr(norm, name).grad, getattr(reference, name).grad) for name in ("weight", "bias")}
    for name, (one, other) in pairs.items():
        assert one is not None
        assert other is not None
        scale = float(other.abs().max().clamp_min(1e-12))
        assert_equal(one.cpu().double() / scale, other / scale, f"gradient of {name}", tolerance)
    for name in ("running_mean", "running_var"):
        assert_equal(getattr(norm, name).cpu().double(), getattr(reference, name), name, tolerance)


@pytest.mark.parametrize("tiles", [2048, 1], ids=["moments of tiles", "too many tiles"])
def test_parts_of_the_rows_are_combined(
    tiles: int, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tiles have statistics, or the rows are read once more for them; several parts have a gradient."""
    from graphcaps.ops.activated_product import row_product_triton as module

    monkeypatch.setattr(module, "_MOST_TILES", tiles)
    monkeypatch.setattr(module, "_PROGRAMS", 5)
    monkeypatch.setattr(module, "MATRIX_TILES", replace(module.MATRIX_TILES, step=16))
    torch.manual_seed(0)
    norm, reference = _norm(16, ()).to(kernel_device), _norm(16, ()).double()
    x, matrix = torch.randn(500, 16), torch.randn(16, 16)
    exact = [value.double().requires_grad_() for value in (x, matrix)]
    leaves = [value.to(kernel_device).requires_grad_() for value in (x, matrix)]
    with use_kernels("always"):
        actual = norm.activate_product((leaves[0],), leaves[1])
    actual.square().sum().backward()
    reference.activate_product((exact[0],), exact[1]).square().sum().backward()
    for one, other in zip(leaves, exact, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        scale = float(other.grad.abs().max())
        assert_equal(one.grad.cpu().double() / scale, other.grad / scale, "gradient", TOLERANCE)
    assert_equal(norm.running_var.cpu().double(), reference.running_var, "running variance", TOLERANCE)


def test_gradient_of_the_matrix_alone(kernel_device: str) -> None:
    """Rows that need no gradient, as features, get none."""
    norm, x = _norm(8, ()).to(kernel_device), torch.randn(40, 6, device=kernel_device)
    matrix = torch.randn(6, 8, device=kernel_device, requires_grad=True)
    with use_kernels("always"):
        norm.activate_product((x,), matrix).sum().backward()
    assert matrix.grad is not None
    assert x.grad is None


def test_parts_of_different_shape_raise() -> None:
    norm = RaggedBatchNorm(4)
    with pytest.raises(ShapeError, match=r"'parts' must have the same shape"):
        norm.activate_product((torch.rand(5, 2), torch.rand(6, 2)), torch.rand(4, 4))


def test_torch_decides_the_precision_inside_autocast(kernel_device: str) -> None:
    norm, x = _norm(8, ()).to(kernel_device), torch.randn(40, 8, device=kernel_device, requires_grad=True)
    matrix = torch.randn(8, 8, device=kernel_device)
    with use_kernels("always"), torch.autocast(kernel_device, torch.bfloat16):
        y = norm.activate_product((x,), matrix)
    assert "_ActivatedProduct" not in type(y.grad_fn).__name__
