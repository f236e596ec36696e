"""Output capsules, agreement and gradients of weights, whatever the tiles of a program, against float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from graphcaps.ops.routing import capsule_update_triton
from graphcaps.ops.routing.capsule_update_triton import (
    FORWARD_TILES,
    WEIGHT_TILES,
    UpdateTiles,
    WeightTiles,
    capsule_gradients,
    final_capsules,
    launch_update,
    parameter_gradients,
)
from graphcaps.ops.routing.weighted_sum_triton import Rows
from graphcaps.ops.squash import squash
from tests.ops.ragged_rows import assert_close


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("single", [False, True], ids=["assigned", "single iteration"])
@pytest.mark.parametrize("fixed", [False, True], ids=["ragged", "fixed size"])
@pytest.mark.parametrize(
    "tiles",
    [
        WEIGHT_TILES,
        replace(WEIGHT_TILES, groups=2, rows=16),
        replace(WEIGHT_TILES, groups=3, rows=16, columns=32, step=16, stages=2),
    ],
    ids=["default", "groups", "narrow groups"],
)
def test_parameter_gradients_are_sums_over_graphs(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch, tiles: WeightTiles, fixed: bool, single: bool
) -> None:
    """Two replicas; the last step, the last group and the last block of columns are not full."""
    monkeypatch.setattr(capsule_update_triton, "WEIGHT_TILES", tiles)
    L, J, B, D, E = 2, 3, 37, 80, 48
    generator = torch.Generator().manual_seed(3)
    sizes = torch.full((L, B), 4) if fixed else torch.randint(0, 9, (L, B), generator=generator)
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    rows = Rows(ptr.to(kernel_device), 4 if fixed else 8, L, int(ptr.max()), B, fixed)
    G = torch.randn(*((L, B, D) if single else (L, J, B, D)), generator=generator)
    m = None if single else torch.rand(L, J, B, generator=generator)
    ds = torch.randn(L, J, B, E, generator=generator)
    precision = "tf32" if kernel_device == "cpu" else "tf32x3"  # the interpreter does not round
    actual = parameter_gradients(
        G.to(kernel_device), None if m is None else m.to(kernel_device), ds.to(kernel_device), rows, precision
    )
    sums = G.unsqueeze(1).expand(L, J, B, D) / J if single else G
    mass = (sizes / J).unsqueeze(1).expand(L, J, B) if m is None else m
    expected = (
        torch.einsum("ljbd,ljbe->ljde", sums.double(), ds.double()),
        torch.einsum("ljb,ljbe->lje", mass.double(), ds.double()),
    )
    for name, result, value in zip(("weight", "bias"), actual, expected, strict=True):
        assert_close(result, value.cpu(), name)


@pytest.mark.parametrize("width", [8, 20, 32, 64, 100, 128])
@pytest.mark.parametrize("precision", ["tf32x3", "tf32", "bfloat16"])
def test_tiles_are_no_larger_than_a_weight(width: int, precision: str) -> None:
    options = replace(WEIGHT_TILES, groups=2).options(width, width, precision)
    assert options["DB"] <= max(16, 2 * width - 1)
    assert options["EB"] <= max(16, 2 * width - 1)
    assert options["GROUPS"] == (2 if width == 128 and precision != "tf32x3" else 1)
    assert ("maxnreg" in options) == (width % 16 == 0)


@pytest.mark.parametrize("large", [8, 1100], ids=["small graphs", "graph of several chunks"])
@pytest.mark.parametrize(
    "tiles",
    [
        replace(FORWARD_TILES, programs=0, groups=2),
        replace(FORWARD_TILES, programs=0, groups=3, graphs=16, step=64, columns=32, stages=2),
        replace(FORWARD_TILES, programs=1000),
    ],
    ids=["two tiles", "three tiles", "one tile"],
)
def test_an_update_does_not_depend_on_tiles(
    kernel_device: str, monkeypatch: pytest.MonkeyPatch, tiles: UpdateTiles, large: int
) -> None:
    """Two replicas; the last group of tiles and the last steps are not full."""
    monkeypatch.setattr(capsule_update_triton, "FORWARD_TILES", tiles)
    monkeypatch.setattr(capsule_update_triton, "BACKWARD_TILES", tiles)
    L, J, B, D, E, epsilon = 2, 2, 71, 80, 48, 1e-8
    generator = torch.Generator().manual_seed(5)
    sizes = torch.randint(0, 9, (L, B), generator=generator)
    sizes[0, 3], sizes[1, 68] = large, large // 2
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    rows = Rows(ptr.to(kernel_device), large, L, int(ptr.max()), B, False)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(kernel_device)

    G, m = values(rows.parts, L, J, B, D), values(rows.parts, L, J, B)
    for chunk in range(rows.parts):  # chunks beyond the end of a graph are not written
        unwritten = (chunk > 0) & (sizes <= chunk * capsule_update_triton.CHUNK).to(kernel_device)
        G[chunk].masked_fill_(unwritten[:, None, :, None], float("nan"))
        m[chunk].masked_fill_(unwritten[:, None, :], float("nan"))
    weight, bias, T, tau = values(L, J, D, E) / D**0.5, values(L, J, E), values(L, J, B, D), values(L, J, B)
    residual, du = values(L, B, E), values(L, B, J, E)
    precision = "tf32" if kernel_device == "cpu" else "tf32x3"  # the interpreter does not round
    T_out, tau_out = torch.empty_like(T), torch.empty_like(tau)
    tensors = {"T": T, "tau": tau, "T_out": T_out, "tau_out": tau_out}
    launch_update(G, m, weight, bias, rows, epsilon, precision, tensors)
    u, s, joined, mass = final_capsules(G, m, weight, bias, residual, rows, epsilon, True, precision)
    assert s is not None
    ds, dG = capsule_gradients(s, du, weight, epsilon, precision)

    sums, masses, W, e = G.double().nansum(0), m.double().nansum(0), weight.double(), bias.double()
    before = torch.einsum("ljde,ljbd->ljbe", W, sums) + masses[..., None] * e[:, :, None]
    agreeing = squash(before, epsilon=epsilon)
    last = (before + residual.double()[:, None]).requires_grad_()
    capsules = squash(last, epsilon=epsilon).transpose(1, 2)
    (grad,) = torch.autograd.grad(capsules, last, du.double())
    expected = {
        "T": (T_out, T + torch.einsum("ljde,ljbe->ljbd", W, agreeing)),
        "tau": (tau_out, tau + (agreeing * e[:, :, None]).sum(-1)),
        "u": (u, capsules.detach()),
        "s": (s, last.detach()),
        "G": (joined, sums),
        "m": (mass, masses),
        "ds": (ds, grad),
        "dG": (dG, torch.einsum("ljde,ljbe->ljbd", W, grad)),
    }
    for name, (result, value) in expected.items():
        assert result is not None
        assert_close(result, value.cpu(), name)


@pytest.mark.parametrize(
    ("graphs", "capsules", "groups", "tile"),
    [
        (128, 100, 2, 32),
        (256, 200, 2, 32),
        (128, 40, 1, 32),
        (128, 20, 1, 16),
        (8, 20, 1, 16),
        (128, 1, 1, 16),
    ],
)
def test_few_programs_have_small_tiles(graphs: int, capsules: int, groups: int, tile: int) -> None:
    options = UpdateTiles(groups=2).options(graphs, capsules, 128, 128, "tf32")
    assert (options["GROUPS"], options["BB"]) == (groups, tile)


@pytest.mark.parametrize("width", [8, 20, 32, 64, 100, 128])
@pytest.mark.parametrize("precision", ["tf32x3", "tf32", "bfloat16"])
def test_steps_are_no_larger_than_a_weight(width: int, precision: str) -> None:
    options = replace(FORWARD_TILES, groups=2).options(128, 100, width, width, precision)
    assert max(options["KB"], options["NB"]) <= options["DP"]
    assert options["GROUPS"] == (2 if width == 128 and precision != "tf32x3" else 1)
    assert ("maxnreg" in options) == (width % 16 == 0)
