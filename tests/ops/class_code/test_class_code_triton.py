"""The code from the capsule of one class by kernels is that of the torch form in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.nn import AdjacencyDecoder
from graphcaps.nn.primary_capsules import Formulation
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from tests.graphs import assert_equal

TOLERANCE: dict[Precision, float] = {"float32": 2e-5, "tf32": 5e-3, "bf16": 4e-2}


def decoder_of(
    classes: int, class_dim: int, width: int, lead: tuple[int, ...], form: Formulation
) -> AdjacencyDecoder:
    torch.manual_seed(0)
    return AdjacencyDecoder(classes, class_dim, width, formulation=form, lead=lead)


def run(decoder: AdjacencyDecoder, u: Tensor, y: Tensor, outer: Tensor, kernels: bool) -> dict[str, Tensor]:
    decoder.zero_grad()
    leaf = u.clone().requires_grad_()
    with use_kernels("always" if kernels else "off"):
        code = decoder.code(leaf, y)
        code.backward(outer)
    actual = {"code": code, "capsules": leaf.grad, "weight": decoder.weight.grad, "bias": decoder.bias.grad}
    assert all(value is not None for value in actual.values())
    return {name: value.detach().double().cpu() for name, value in actual.items()}


def check(
    decoder: AdjacencyDecoder, u: Tensor, y: Tensor, device: str, tolerance: float = TOLERANCE["float32"]
) -> None:
    outer = torch.randn(*y.shape, decoder.capsule_dim, generator=torch.Generator().manual_seed(2)).to(device)
    # The derivative of ReLU is discontinuous at 0: gradients of entries close to 0 are not compared.
    linear = decoder_of(decoder.num_classes, decoder.class_dim, decoder.capsule_dim, decoder.lead, "paper")
    with torch.no_grad(), use_kernels("off"):
        outer = outer.masked_fill(linear.code(u, y).abs().to(device) < 1e-3, 0)
    actual = run(decoder.to(device), u.to(device), y.to(device), outer, kernels=True)
    exact = run(decoder.double(), u.to(device).double(), y.to(device), outer.double(), kernels=False)
    for name, expected in exact.items():
        scale = expected.abs().max().clamp_min(1e-30)
        assert_equal(actual[name] / scale, expected / scale, name, tolerance)


@pytest.mark.parametrize("form", ["released", "paper"])
@pytest.mark.parametrize(
    ("classes", "class_dim", "width", "graphs", "lead"),
    [(2, 8, 8, 5, ()), (6, 20, 40, 17, (2,)), (2, 128, 128, 16, (1,)), (1, 5, 3, 1, (1,))],
    ids=str,
)
def test_kernel_is_torch(
    classes: int,
    class_dim: int,
    width: int,
    graphs: int,
    lead: tuple[int, ...],
    form: Formulation,
    kernel_device: str,
    empty_is_nan: None,
) -> None:
    generator = torch.Generator().manual_seed(1)
    u = torch.randn(*lead, graphs, classes, class_dim, generator=generator)
    y = torch.randint(-1, classes, (*lead, graphs), generator=generator)
    check(decoder_of(classes, class_dim, width, lead, form), u, y, kernel_device)


@pytest.mark.parametrize("name", ["tf32", "bf16"])
def test_rounded_products(name: Precision, kernel_device: str, empty_is_nan: None) -> None:
    """Without ReLU, whose derivative is discontinuous at 0."""
    u = torch.randn(2, 9, 3, 40, generator=torch.Generator().manual_seed(1))
    y = torch.randint(0, 3, (2, 9), generator=torch.Generator().manual_seed(1))
    with use_precision(name):
        check(decoder_of(3, 40, 20, (2,), "paper"), u, y, kernel_device, TOLERANCE[name])


def test_other_classes_are_not_read(kernel_device: str, empty_is_nan: None) -> None:
    """Capsules of other classes than the graph's are not read, and get no gradient."""
    u = torch.randn(6, 2, 8, generator=torch.Generator().manual_seed(1)).to(kernel_device)
    y = torch.tensor([0, 1, 1, 0, 1, 0], device=kernel_device)
    decoder = decoder_of(2, 8, 16, (), "released").to(kernel_device)
    outer = torch.ones(6, 16, device=kernel_device)
    other = torch.nn.functional.one_hot(1 - y, 2).bool().unsqueeze(-1)
    clean = run(decoder, u, y, outer, kernels=True)
    actual = run(decoder, u.masked_fill(other, float("nan")), y, outer, kernels=True)
    for name, value in actual.items():
        assert torch.equal(value, clean[name]), name
    assert float(clean["capsules"].masked_select(other.cpu()).abs().max()) == 0


def test_a_class_without_graphs(kernel_device: str, empty_is_nan: None) -> None:
    u = torch.randn(2, 4, 3, 8, generator=torch.Generator().manual_seed(1)).to(kernel_device)
    y = torch.tensor([[0, 2, 2, 0], [-1, -1, -1, -1]], device=kernel_device)
    decoder = decoder_of(3, 8, 16, (2,), "released").to(kernel_device)
    actual = run(decoder, u, y, torch.ones(2, 4, 16, device=kernel_device), kernels=True)
    assert float(actual["weight"][:, 8:16].abs().max()) == 0
    assert float(actual["weight"][0, 16:].abs().max()) > 0


def test_zero_graphs(kernel_device: str, empty_is_nan: None) -> None:
    decoder = decoder_of(2, 8, 16, (2,), "released").to(kernel_device)
    y = torch.zeros(2, 0, dtype=torch.int64, device=kernel_device)
    actual = run(
        decoder,
        torch.zeros(2, 0, 2, 8, device=kernel_device),
        y,
        torch.zeros(2, 0, 16, device=kernel_device),
        True,
    )
    assert actual["code"].shape == (2, 0, 16)
    assert float(actual["weight"].abs().max()) == 0
    assert float(actual["bias"].abs().max()) == 0
