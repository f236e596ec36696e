"""ReLU, dropout and squash by a kernel against the torch form in float64, dropped numbers bit by bit."""

import pytest
import torch
from torch import Tensor

from graphcaps.nn import PrimaryCapsules, ReplicaDropout
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.activation.activation import BiasPosition, activate
from graphcaps.ops.activation.hashed_dropout import HashedDropout, next_step_keys
from tests.graphs import assert_equal

TOLERANCE = 2e-6


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """A number that a kernel forgets to write shows."""


def _case(
    lead: tuple[int, ...], V: int, d: int, padded: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    torch.manual_seed(V)
    z, slope, bias = torch.randn(*lead, V, d), torch.randn(*lead, V, d), torch.randn(*lead, d)
    z[..., 0, :] = -1e3  # nothing passes the ReLU
    if not padded:
        return z, slope, bias, None
    mask = torch.rand(*lead, V) < 0.7
    if lead:
        mask[1] = False
    return z, slope, bias, mask


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("place", "epsilon"), [("inside", 1e-7), ("outside", 0.0), ("inside", 0.0)])
@pytest.mark.parametrize(
    ("lead", "V", "d", "padded"),
    [
        ((), 31, 8, False),
        ((), 33, 128, True),
        ((3,), 65, 20, True),
        ((2,), 63, 130, False),
        ((3,), 1, 5, True),
    ],
)
def test_values_and_gradients(
    lead: tuple[int, ...],
    V: int,
    d: int,
    padded: bool,
    place: BiasPosition,
    epsilon: float,
    p: float,
    kernel_device: str,
) -> None:
    z, slope, bias, mask = _case(lead, V, d, padded)
    keys = torch.randint(-(1 << 31), 1 << 31, (*lead, 2)).to(torch.int32)
    how = {"bias_position": place, "epsilon": epsilon}
    poisoned, poisoned_slope = z, slope
    if mask is not None:
        away = ~mask.unsqueeze(-1)
        poisoned, poisoned_slope = (t.masked_fill(away, float("nan")) for t in (z, slope))
    given = [t.to(kernel_device).requires_grad_() for t in (poisoned, bias)]
    with use_kernels("always"):
        dropped = HashedDropout(keys.to(kernel_device), p) if p else None
        there = None if mask is None else mask.to(kernel_device)
        found = activate(*given, dropout=dropped, mask=there, **how)  # type: ignore[arg-type]
        slopes = torch.autograd.grad(found, given, poisoned_slope.to(kernel_device))
    true = [t.double().requires_grad_() for t in (z, bias)]
    with use_kernels("off"):
        expected = activate(*true, dropout=HashedDropout(keys, p) if p else None, mask=mask, **how)  # type: ignore[arg-type]
        true_slopes = torch.autograd.grad(expected, true, slope.double())
    assert torch.equal(found.cpu() == 0, expected == 0)
    assert_equal(found.cpu().double(), expected, "value", TOLERANCE)
    assert_equal(slopes[0].cpu().double(), true_slopes[0], "gradient of z", TOLERANCE)
    assert_equal(slopes[1].cpu().double(), true_slopes[1], "gradient of the bias", TOLERANCE)


def test_rows_as_short_as_epsilon(kernel_device: str) -> None:
    """There ε decides the slope; compared relative to the largest, which is small."""
    z, slope, bias = torch.randn(31, 8) * 1e-4, torch.randn(31, 8), torch.zeros(8)
    found, expected = z.to(kernel_device).requires_grad_(), z.double().requires_grad_()
    with use_kernels("always"):
        one = torch.autograd.grad(activate(found, bias.to(kernel_device)), found, slope.to(kernel_device))[0]
    with use_kernels("off"):
        two = torch.autograd.grad(activate(expected, bias.double()), expected, slope.double())[0]
    scale = 1 / float(two.abs().max())
    assert_equal(one.cpu().double() * scale, two * scale, "gradient of z", TOLERANCE)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("padded", [False, True])
def test_keys_and_steps(lead: tuple[int, ...], padded: bool, kernel_device: str) -> None:
    torch.manual_seed(5)
    seed = torch.randint(1 << 62, lead)
    mask = None
    if padded:
        mask = torch.zeros(*lead, 1500, dtype=torch.bool)
        mask[..., -1] = True
        if lead:
            mask[1] = False
    step = torch.full(lead, 7)
    there = step.clone().to(kernel_device)
    for _ in range(2):
        with use_kernels("off"):
            expected = next_step_keys(seed, step, mask)
        with use_kernels("always"):
            found = next_step_keys(
                seed.to(kernel_device), there, None if mask is None else mask.to(kernel_device)
            )
        assert found.dtype == expected.dtype == torch.int32
        assert torch.equal(found.cpu(), expected)
        assert torch.equal(there.cpu(), step)
    assert step.reshape(-1).tolist() == [9, 7, 9][: step.numel()] if padded else [9] * step.numel()


@pytest.mark.parametrize("formulation", ["released", "paper"])
def test_primary_capsules(formulation: str, kernel_device: str) -> None:
    def run(mode: str, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
        torch.manual_seed(0)
        layer = PrimaryCapsules(33, 8, dropout=0.4, formulation=formulation, lead=(2,))  # type: ignore[arg-type]
        x, mask = torch.randn(2, 20, 33), torch.arange(20) < torch.tensor([[20], [13]])
        x = x.masked_fill(~mask.unsqueeze(-1), 0)
        layer = layer.to(device, dtype)
        with use_kernels(mode):  # type: ignore[arg-type]
            layer(x.to(device, dtype), mask.to(device))  # a step before
            out = layer(x.to(device, dtype), mask.to(device))
            (out * torch.linspace(-1, 1, 8, device=device, dtype=dtype)).square().sum().backward()
        found = {f"gradient of {n}": p.grad for n, p in layer.named_parameters() if p.grad is not None}
        return {"value": out, **found, **dict(layer.named_buffers())}

    found, expected = run("always", torch.float32, kernel_device), run("off", torch.float64, "cpu")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_equal(found[name].cpu().double(), value.double(), name, 2e-5)


def test_the_module_steps_the_same(kernel_device: str) -> None:
    torch.manual_seed(0)
    layer = ReplicaDropout(0.5, lead=(2,))
    seed = layer.seed.clone()
    x = torch.ones(2, 9, 5)
    with use_kernels("off"):
        expected = [layer(x), layer(x)]
    there = ReplicaDropout(0.5, lead=(2,))
    there.seed.copy_(seed)
    there = there.to(kernel_device)
    with use_kernels("always"):
        for value in expected:
            assert torch.equal(there(x.to(kernel_device)).cpu(), value)
