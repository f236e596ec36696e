"""ReLU, dropout and squash by a kernel against the torch form in float64, dropped numbers bit by bit."""

import pytest
import torch
from torch import Tensor

from graphcaps.nn import PrimaryCapsules, ReplicaDropout
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.activation.activation import BiasPosition, activate
from graphcaps.ops.activation.hashed_dropout import HashedDropout, apply_dropout, next_step_keys
from tests.graphs import assert_equal, masked_segments

TOLERANCE = 2e-6


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected, and uses few programs of the
    backward pass, each with several tiles."""
    monkeypatch.setattr("graphcaps.ops.activation.activation_triton._BACKWARD_PROGRAMS", 6)


def _case(
    lead: tuple[int, ...], V: int, d: int, padded: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    torch.manual_seed(V)
    z, grad, bias = torch.randn(*lead, V, d), torch.randn(*lead, V, d), torch.randn(*lead, d)
    z[..., 0, :] = -1e3  # nothing passes the ReLU
    if not padded:
        return z, grad, bias, None
    mask = torch.rand(*lead, V) < 0.7
    if lead:
        mask[1] = False
    return z, grad, bias, mask


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("position", "epsilon"), [("inside", 1e-7), ("outside", 0.0), ("inside", 0.0)])
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
    position: BiasPosition,
    epsilon: float,
    p: float,
    kernel_device: str,
) -> None:
    z, gradient, bias, mask = _case(lead, V, d, padded)
    keys = torch.randint(-(1 << 31), 1 << 31, (*lead, 2)).to(torch.int32)
    how = {"bias_position": position, "epsilon": epsilon}
    poisoned, poisoned_grad = z, gradient
    if mask is not None:
        away = ~mask.unsqueeze(-1)
        poisoned, poisoned_grad = (t.masked_fill(away, float("nan")) for t in (z, gradient))
    inputs = [t.to(kernel_device).requires_grad_() for t in (poisoned, bias)]
    with use_kernels("always"):
        dropped = HashedDropout(keys.to(kernel_device), p) if p else None
        there = None if mask is None else mask.to(kernel_device)
        actual = activate(*inputs, dropout=dropped, mask=there, **how)  # type: ignore[arg-type]
        grads = torch.autograd.grad(actual, inputs, poisoned_grad.to(kernel_device))
    true = [t.double().requires_grad_() for t in (z, bias)]
    with use_kernels("off"):
        expected = activate(*true, dropout=HashedDropout(keys, p) if p else None, mask=mask, **how)  # type: ignore[arg-type]
        expected_grads = torch.autograd.grad(expected, true, gradient.double())
    assert torch.equal(actual.cpu() == 0, expected == 0)
    assert_equal(actual.cpu().double(), expected, "value", TOLERANCE)
    assert_equal(grads[0].cpu().double(), expected_grads[0], "gradient of z", TOLERANCE)
    assert_equal(grads[1].cpu().double(), expected_grads[1], "gradient of the bias", TOLERANCE)


@pytest.mark.parametrize("position", ["inside", "outside"])
def test_a_probability_per_replica(position: BiasPosition, kernel_device: str) -> None:
    z, gradient, bias, mask = _case((3,), 65, 20, True)
    keys = torch.randint(-(1 << 31), 1 << 31, (3, 2)).to(torch.int32)
    p = torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64)
    results = []
    for mode, device in (("always", kernel_device), ("off", "cpu")):
        inputs = [t.to(device).requires_grad_() for t in (z, bias)]
        with use_kernels(mode):  # type: ignore[arg-type]
            dropout = HashedDropout(keys.to(device), p.to(device))
            u = activate(*inputs, dropout=dropout, bias_position=position, mask=mask.to(device))
            grads = torch.autograd.grad(u, inputs, gradient.to(device))
        results.append([t.detach().cpu().double() for t in (u, *grads)])
    for actual, expected in zip(*results, strict=True):
        assert torch.equal(actual == 0, expected == 0)
        assert_equal(actual, expected, "value", TOLERANCE)
    for f, number in enumerate(p.tolist()):  # each replica drops what it would drop alone
        alone = activate(
            *(z[f].double(), bias[f].double()),
            dropout=HashedDropout(keys[f], number), bias_position=position, mask=mask[f],
        )  # fmt: skip
        assert_equal(results[1][0][f], alone, f"replica {f}", 1e-6)


@pytest.mark.parametrize("shape", [(31, 8), (3, 65, 20), (2, 1, 1)], ids=str)
def test_dropout_alone(shape: tuple[int, ...], kernel_device: str) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(shape), torch.randn(shape)
    keys = torch.randint(-(1 << 31), 1 << 31, (*shape[:-2], 2)).to(torch.int32)
    results = []
    for mode, device in (("always", kernel_device), ("off", "cpu")):
        leaf = x.to(device).requires_grad_()
        with use_kernels(mode):  # type: ignore[arg-type]
            p = 0.3 if len(shape) < 3 else torch.linspace(0.1, 0.6, shape[0], dtype=torch.float64).to(device)
            y = apply_dropout(leaf, HashedDropout(keys.to(device), p))
            (gradient,) = torch.autograd.grad(y, leaf, grad.to(device))
        results.append((y.detach().cpu(), gradient.cpu()))
    for actual, expected in zip(*results, strict=True):
        assert torch.equal(actual, expected)


def test_rows_as_short_as_epsilon(kernel_device: str) -> None:
    """ε dominates the gradient there; errors are relative to the largest magnitude, which is small."""
    z, gradient, bias = torch.randn(31, 8) * 1e-4, torch.randn(31, 8), torch.zeros(8)
    actual, expected = z.to(kernel_device).requires_grad_(), z.double().requires_grad_()
    with use_kernels("always"):
        one = torch.autograd.grad(
            activate(actual, bias.to(kernel_device)), actual, gradient.to(kernel_device)
        )[0]
    with use_kernels("off"):
        two = torch.autograd.grad(activate(expected, bias.double()), expected, gradient.double())[0]
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
            actual = next_step_keys(
                seed.to(kernel_device), there, None if mask is None else mask.to(kernel_device)
            )
        assert actual.dtype == expected.dtype == torch.int32
        assert torch.equal(actual.cpu(), expected)
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
            layer(x.to(device, dtype), batch=masked_segments(mask.to(device)))  # a step before
            out = layer(x.to(device, dtype), batch=masked_segments(mask.to(device)))
            (out * torch.linspace(-1, 1, 8, device=device, dtype=dtype)).square().sum().backward()
        actual = {f"gradient of {n}": p.grad for n, p in layer.named_parameters() if p.grad is not None}
        return {"value": out, **actual, **dict(layer.named_buffers())}

    actual, expected = run("always", torch.float32, kernel_device), run("off", torch.float64, "cpu")
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_equal(actual[name].cpu().double(), value.double(), name, 2e-5)


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
