"""A product with normalised activation by kernels against the torch form in float64."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.nn import RaggedBatchNorm
from graphcaps.ops._triton.dispatch import KernelMode, use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from tests.graphs import assert_equal
from tests.ops.norms import random_norm

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
    clear = (before.chunk(2, -1)[0] if gated else before).abs() > 0.1
    return clear if mask is None else clear | ~mask.unsqueeze(-1)  # padding has a residual only


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
    norm, reference = (random_norm(N, lead).train(training) for _ in range(2))
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


@pytest.mark.parametrize("gated", [False, True], ids=["relu", "gated"])
def test_without_a_residual_padding_is_zero(gated: bool, kernel_device: str) -> None:
    torch.manual_seed(0)
    norm, reference = random_norm(8, ()).to(kernel_device), random_norm(8, ()).double()
    x, matrix, mask = torch.randn(40, 6) + 0.5, torch.randn(6, 8), torch.rand(40) < 0.8
    exact, leaf = x.double().requires_grad_(), x.clone().to(kernel_device).requires_grad_()
    clear = _away_from_kinks(reference, exact @ matrix.double(), mask, gated)
    expected = reference.activate_product((exact,), matrix.double(), mask, gated=gated)
    with use_kernels("always"):
        actual = norm.activate_product((leaf,), matrix.to(kernel_device), mask.to(kernel_device), gated=gated)
    expected.backward(clear.double())
    actual.backward(clear.float().to(kernel_device))
    assert_equal(actual.detach().cpu().double(), expected.detach(), "result", TOLERANCE)
    assert leaf.grad is not None
    assert exact.grad is not None
    assert_equal(leaf.grad.cpu().double(), exact.grad, "gradient", TOLERANCE)
    assert bool((actual.detach().cpu()[~mask] == 0).all())


def test_nan_of_a_real_row_stays_nan(kernel_device: str) -> None:
    norm = random_norm(4, ()).to(kernel_device).eval()
    x = torch.randn(3, 4, device=kernel_device)
    x[1, 2] = float("nan")
    with use_kernels("always"):
        rows = norm.activate_product((x,), torch.randn(4, 4, device=kernel_device))
    assert rows.isnan().all(-1).tolist() == [False, True, False]
    assert rows.isnan().sum() == 4


@pytest.mark.parametrize("tiles", [2048, 1], ids=["moments of tiles", "too many tiles"])
def test_parts_of_the_rows_are_combined(
    tiles: int, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tiles have statistics, or the rows are read once more for them; several parts have a gradient."""
    from graphcaps.ops.activated_product import row_product_triton as module

    monkeypatch.setattr(module, "_MOST_TILES", tiles)
    monkeypatch.setattr("graphcaps.ops._triton.row_products.PROGRAMS", 5)
    monkeypatch.setattr(module, "MATRIX_TILES", replace(module.MATRIX_TILES, step=16))
    torch.manual_seed(0)
    norm, reference = random_norm(16, ()).to(kernel_device), random_norm(16, ()).double()
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


@pytest.mark.parametrize("needed", ["matrix", "norm"])
def test_only_needed_gradients_are_computed(
    needed: str, kernel_device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a matrix over features, or of a norm alone."""
    from graphcaps.ops.activated_product import activated_product_triton as module

    spies = {name: Mock(wraps=getattr(module, name)) for name in ("input_gradients", "matrix_gradient")}
    for name, spy in spies.items():
        monkeypatch.setattr(module, name, spy)
    torch.manual_seed(0)
    norm, reference = random_norm(8, ()).to(kernel_device), random_norm(8, ()).double()
    x, matrix = torch.randn(40, 6), torch.randn(6, 8)
    exact = matrix.double().requires_grad_(needed == "matrix")
    leaf = matrix.to(kernel_device).requires_grad_(needed == "matrix")
    with use_kernels("always"):
        norm.activate_product((x.to(kernel_device),), leaf).square().sum().backward()
    reference.activate_product((x.double(),), exact).square().sum().backward()
    assert not spies["input_gradients"].called
    assert spies["matrix_gradient"].called == (needed == "matrix")
    pairs = [(norm.weight.grad, reference.weight.grad), (leaf.grad, exact.grad)]
    for one, other in pairs if needed == "matrix" else pairs[:1]:
        assert one is not None
        assert other is not None
        assert_equal(one.cpu().double() / other.abs().max(), other / other.abs().max(), "gradient", TOLERANCE)


def test_a_later_step_does_not_change_the_gradient_in_evaluation(kernel_device: str) -> None:
    """Kernels update running averages in place; the backward pass has those of its forward pass."""
    torch.manual_seed(0)
    x, matrix = torch.randn(40, 6), torch.randn(6, 6)
    gradients = []
    for mode in ("off", "always"):
        for later in (False, True):
            norm, leaf = (
                random_norm(6, ()).to(kernel_device).eval(),
                x.clone().to(kernel_device).requires_grad_(),
            )
            with use_kernels(mode):  # type: ignore[arg-type]
                product = norm.activate_product((leaf,), matrix.to(kernel_device))
                total = product + norm(leaf)
                if later:
                    norm.train()(100 * x.to(kernel_device))
                total.square().sum().backward()
            assert leaf.grad is not None
            gradients.append(leaf.grad.cpu())
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["off", "always"])
@pytest.mark.parametrize(
    ("shapes", "matrix", "residual", "message"),
    [
        ([(5, 2), (6, 2)], (4, 4), None, r"'parts' must be one tensor, or two of equal shape"),
        ([(5, 2)] * 3, (6, 4), None, r"'parts' must be one tensor"),
        ([(5, 2)], (4, 4), None, r"'matrix' must end with the axes \[2, 4\], got \[4, 4\]"),
        ([(5, 2)], (2, 6), None, r"'matrix' must end with the axes \[2, 4\]"),
        ([(5, 2)], (2, 4), (5, 3), r"'residual' must have the shape \[5, 4\], got \[5, 3\]"),
    ],
)
def test_shapes_that_do_not_fit_raise(
    shapes: list[tuple[int, int]],
    matrix: tuple[int, int],
    residual: tuple[int, int] | None,
    message: str,
    mode: KernelMode,
) -> None:
    norm, parts = RaggedBatchNorm(4), tuple(torch.rand(shape) for shape in shapes)
    added = None if residual is None else torch.rand(residual)
    with use_kernels(mode), pytest.raises(ShapeError, match=message):
        norm.activate_product(parts, torch.rand(matrix), None, added)  # type: ignore[arg-type]


def test_gates_are_half_of_the_columns() -> None:
    with pytest.raises(ShapeError, match=r"'matrix' must have an even number of columns"):
        RaggedBatchNorm(5).activate_product((torch.rand(3, 2),), torch.rand(2, 5), gated=True)


def test_long_parts_have_offsets_of_32_bits(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcaps.ops._triton import row_products
    from graphcaps.ops.activated_product import row_product_triton as module

    torch.manual_seed(0)
    x, grad = (torch.randn(300, 16, device=kernel_device) for _ in range(2))
    whole = module.matrix_gradient([x], grad, "tf32x3")
    assert row_products.split_rows(300, 16, 1, 16) == (4, 5)
    monkeypatch.setattr("graphcaps.ops._triton.row_products.LARGEST_OFFSET", 2 * 16 * 16)
    assert row_products.split_rows(300, 16, 1, 16) == (2, 10)
    torch.testing.assert_close(module.matrix_gradient([x], grad, "tf32x3"), whole, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(whole, x.mT @ grad, rtol=1e-3, atol=1e-3)


def test_torch_decides_the_precision_inside_autocast(kernel_device: str) -> None:
    norm, x = (
        random_norm(8, ()).to(kernel_device),
        torch.randn(40, 8, device=kernel_device, requires_grad=True),
    )
    matrix = torch.randn(8, 8, device=kernel_device)
    with use_kernels("always"), torch.autocast(kernel_device, torch.bfloat16):
        y = norm.activate_product((x,), matrix)
    assert "_ActivatedProduct" not in type(y.grad_fn).__name__
