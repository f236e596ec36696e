"""T and τ from Gram matrices are those of the output capsules, in float64 and as part of the routing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.ragged.ragged_triton import CHUNK
from graphcaps.ops.routing import agreement_triton, route
from graphcaps.ops.routing.agreement_triton import TILES, AgreementTiles, agree, gram_matrices
from graphcaps.ops.routing.factored import route_factored
from graphcaps.ops.routing.weighted_sum_triton import Rows
from graphcaps.ops.squash import squash
from tests.ops.ragged_rows import assert_close, moved, poisoned, rows


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("large", [8, 2 * CHUNK + 9], ids=["small graphs", "graphs of several chunks"])
@pytest.mark.parametrize("first", [False, True], ids=["assigned", "first iteration"])
@pytest.mark.parametrize("tiles", [TILES, AgreementTiles(32, 16, 4, 2, 168)], ids=["default", "small tiles"])
@pytest.mark.parametrize(("D", "E"), [(80, 48), (20, 33)], ids=str)
def test_the_agreement_is_that_of_the_capsules(
    kernel_device: str,
    monkeypatch: pytest.MonkeyPatch,
    tiles: AgreementTiles,
    first: bool,
    large: int,
    D: int,
    E: int,
) -> None:
    """Two replicas; the last tile and the last step are not full."""
    monkeypatch.setattr(agreement_triton, "TILES", tiles)
    L, J, B, epsilon = 2, 3, 71, 1e-8
    generator = torch.Generator().manual_seed(5)
    sizes = torch.randint(0, 9, (L, B), generator=generator)
    sizes[0, 3], sizes[1, 68] = large, large // 2
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    at = Rows(ptr.to(kernel_device), large, L, int(ptr.max()), B, False)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(kernel_device)

    weight, bias = values(L, J, D, E) / D**0.5, values(L, J, E)
    G, m = (values(L, B, D), None) if first else (values(at.parts, L, J, B, D), values(at.parts, L, J, B))
    for chunk in range(0 if m is None else at.parts):  # chunks beyond the end of a graph are not written
        unwritten = ((chunk > 0) & (sizes <= chunk * CHUNK)).to(kernel_device)
        G[chunk].masked_fill_(unwritten[:, None, :, None], float("nan"))
        assert m is not None
        m[chunk].masked_fill_(unwritten[:, None, :], float("nan"))
    T, tau = (None, None) if first else (values(L, J, B, D), values(L, J, B))
    precision = "tf32" if kernel_device == "cpu" else "tf32x3"  # the interpreter does not round
    gram = gram_matrices(weight, bias, precision)
    T_out, tau_out = agree(G, m, gram, T, tau, at, epsilon, precision)

    W, e = weight.double(), bias.double()
    sums = (G.unsqueeze(1).expand(L, J, B, D) / J if m is None else G.double().nansum(0)).double()
    size = sizes.to(kernel_device).double().unsqueeze(1).expand(L, J, B) / J
    mass = size if m is None else m.double().nansum(0)
    u = squash(torch.einsum("ljde,ljbd->ljbe", W, sums) + mass[..., None] * e[:, :, None], epsilon=epsilon)
    expected = {
        "K": (gram.matrices, W @ W.mT),
        "k": (gram.lifts, (W @ e.unsqueeze(-1)).squeeze(-1)),
        "|e|²": (gram.squares, e.square().sum(-1)),
        "T": (T_out, torch.einsum("ljde,ljbe->ljbd", W, u) + (0 if T is None else T)),
        "tau": (tau_out, (u * e[:, :, None]).sum(-1) + (0 if tau is None else tau)),
    }
    for name, (result, value) in expected.items():
        assert_close(result, value.cpu(), name)


def test_a_graph_of_nothing_agrees_with_nothing(kernel_device: str) -> None:
    """G = 0 and m = 0: the squash of zero is zero, with ε = 0 too."""
    at = Rows(torch.zeros(1, 65, dtype=torch.long, device=kernel_device), 4, 1, 0, 64, False)
    gram = gram_matrices(
        torch.randn(1, 2, 16, 16, device=kernel_device), torch.randn(1, 2, 16, device=kernel_device), "tf32"
    )
    T, tau = agree(torch.zeros(1, 64, 16, device=kernel_device), None, gram, None, None, at, 0.0, "tf32")
    assert not T.any()
    assert not tau.any()


@pytest.mark.parametrize("iterations", [3])
def test_routing_of_many_graphs_equals_the_factored_form(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    """Empty graphs, and padding rows that hold NaN."""
    monkeypatch.setattr(agreement_triton, "TILES", replace(TILES, graphs=32))
    used: list[int] = []
    monkeypatch.setattr(
        "graphcaps.ops.routing.route_triton.agree",
        lambda *arguments: (used.append(1), agree(*arguments))[1],
    )
    segments = rows([[3, 0, 7, 33] + [1] * 126, [2] * 130])
    h, B = poisoned(segments, 24), segments.num_graphs
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(2, 5, 24, 16, generator=generator) / 24**0.5
    bias, grad = (torch.randn(2, *shape, 16, generator=generator) for shape in ((5,), (B, 5)))
    actual, expected = {}, {}
    for found, form in ((actual, "kernel"), (expected, "factored")):
        like = torch.zeros((), device=kernel_device) if form == "kernel" else torch.zeros(()).double()
        clean = h if form == "kernel" else h.nan_to_num(0.0)
        leaves = [value.detach().to(like).clone().requires_grad_() for value in (clean, weight, bias)]
        if form == "kernel":
            with use_kernels("always"):
                result = route(*leaves, moved(segments, kernel_device), iterations, method="kernel")
        else:
            result = route_factored(*leaves, segments, iterations)
        result.capsules.backward(grad.to(like))
        found |= {"capsules": result.capsules.detach(), "assignment": result.assignment.detach()}
        for name, leaf in zip(("h", "weight", "bias"), leaves, strict=True):
            assert leaf.grad is not None
            found[f"gradient of {name}"] = leaf.grad
    assert used == [1] * (iterations - 1)
    for name, value in expected.items():
        assert_close(actual[name], value, name)
