"""The agreement after an iteration, from products of weights with their transposes, against that of float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from graphcaps.ops.ragged.ragged_triton import CHUNK
from graphcaps.ops.routing import agreement_triton
from graphcaps.ops.routing.agreement_triton import AgreementTiles, agreement_matrices, update_agreement
from graphcaps.ops.routing.weighted_sum_triton import Rows
from graphcaps.ops.squash import squash
from tests.ops.ragged_rows import assert_close

TILES = AgreementTiles()


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("first", [False, True], ids=["later iteration", "first iteration"])
@pytest.mark.parametrize("large", [8, 1100], ids=["small graphs", "graph of several chunks"])
@pytest.mark.parametrize(
    ("D", "E", "tiles"),
    [
        (80, 48, TILES),
        (48, 80, replace(TILES, rows=32, step=16, stages=2)),
        (33, 20, TILES),
        (128, 128, replace(TILES, warps=8)),
    ],
    ids=["more inputs", "fewer inputs", "odd widths", "whole tiles"],
)
def test_an_update_is_that_of_output_capsules(
    kernel_device: str,
    monkeypatch: pytest.MonkeyPatch,
    D: int,
    E: int,
    tiles: AgreementTiles,
    large: int,
    first: bool,
) -> None:
    """T + W u and τ + e·u with u = squash(WᵀG + m e); two replicas, and the last tile of graphs is not full."""
    monkeypatch.setattr(agreement_triton, "UPDATE_TILES", tiles)
    monkeypatch.setattr(agreement_triton, "MATRIX_TILES", tiles)
    L, J, B, epsilon = 2, 3, 71, 1e-7
    generator = torch.Generator().manual_seed(D)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    sizes = torch.randint(0, 9, (L, B), generator=generator)
    sizes[0, 3], sizes[1, 68] = large, large // 2
    ptr = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
    rows = Rows(ptr.to(kernel_device), large, L, int(ptr.max()), B, False)
    W, e = values(L, J, D, E) / D**0.5, values(L, J, E)
    T, tau = (None, None) if first else (values(L, J, B, D), values(L, J, B))
    if first:
        G, m = values(L, B, D), None
        sums, mass = G.double()[:, None].expand(L, J, B, D) / J, (sizes.double() / J)[:, None].expand(L, J, B)
    else:
        G, m = values(rows.parts, L, J, B, D), values(rows.parts, L, J, B)
        for chunk in range(1, rows.parts):  # chunks beyond the end of a graph are not written
            unwritten = sizes <= chunk * CHUNK
            G[chunk].masked_fill_(unwritten[:, None, :, None], float("nan"))
            m[chunk].masked_fill_(unwritten[:, None, :], float("nan"))
        sums, mass = G.double().nansum(0), m.double().nansum(0)
    u = squash(
        torch.einsum("ljde,ljbd->ljbe", W.double(), sums) + mass[..., None] * e.double()[:, :, None], epsilon
    )
    expected_T = torch.einsum("ljde,ljbe->ljbd", W.double(), u) + (0 if T is None else T)
    expected_tau = (u * e[:, :, None]).sum(-1) + (0 if tau is None else tau)

    precision = "tf32" if kernel_device == "cpu" else "tf32x3"  # the interpreter does not round
    W, e = W.to(kernel_device), e.to(kernel_device)
    agreement = agreement_matrices(W, e, precision)
    assert_close(agreement.matrix, torch.einsum("ljde,ljfe->ljdf", W.double(), W.double()).cpu(), "matrix")
    found = update_agreement(
        G.to(kernel_device),
        None if m is None else m.to(kernel_device),
        agreement,
        None if T is None else T.to(kernel_device),
        None if tau is None else tau.to(kernel_device),
        rows,
        epsilon,
        precision,
    )
    assert_close(found[0], expected_T, "T")
    assert_close(found[1], expected_tau, "tau")


@pytest.mark.parametrize("precision", ["tf32x3", "tf32", "bfloat16"])
@pytest.mark.parametrize("width", [8, 20, 64, 128])
@pytest.mark.parametrize("count", [5, 33, 500])
def test_tiles_are_no_larger_than_needed(count: int, width: int, precision: str) -> None:
    options = TILES.options(count, width, precision)
    assert options["KB"] <= options["DP"] < max(17, 2 * width)
    whole = count > 32 and width % 16 == 0 and precision != "tf32x3"
    assert options["RB"] == (64 if whole else 16)
