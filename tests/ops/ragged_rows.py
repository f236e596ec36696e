"""Ragged rows for the tests of the kernels: odd sizes, empty graphs, padding, a replica of nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.types import Segments

SIZES = [[1, 31, 0, 33], [65, 0, 2, 0], [0, 0, 0, 0]]
TOLERANCE = 2e-5


def rows(sizes: list[list[int]], spare: int = 3, bound: int | None = -1, lead: bool = True) -> Segments:
    """Segments of the given sizes, one list per replica, with ``spare`` padding rows behind the longest.

    ``bound`` is what the host knows of the largest graph (by default the truth).
    """
    V = max(sum(row) for row in sizes) + spare
    ptr = torch.zeros(len(sizes), len(sizes[0]) + 1, dtype=torch.long)
    index = torch.full((len(sizes), V), len(sizes[0]))
    for f, row in enumerate(sizes):
        ptr[f, 1:] = torch.tensor(row).cumsum(0)
        index[f, : sum(row)] = torch.arange(len(row)).repeat_interleave(torch.tensor(row))
    largest = max(max(row) for row in sizes) if bound == -1 else bound
    return Segments(ptr if lead else ptr[0], index if lead else index[0], True, largest)


def moved(segments: Segments, device: str) -> Segments:
    return Segments(segments.ptr.to(device), segments.index.to(device), segments.padded, segments.max_size)


def poisoned(segments: Segments, width: int, seed: int = 0) -> Tensor:
    """Random rows, float32, NaN at padding."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*segments.index.shape, width, generator=generator)
    return x.masked_fill((segments.index >= segments.num_graphs).unsqueeze(-1), float("nan"))


def assert_close(actual: Tensor | None, expected: Tensor | None, name: str) -> None:
    """Equal within ``TOLERANCE`` of the largest magnitude; NaN nowhere."""
    assert actual is not None, name
    assert expected is not None, name
    assert actual.shape == expected.shape, name
    actual = actual.detach().cpu().double()
    scale = float(expected.detach().abs().max()) if expected.numel() else 0.0
    worst = float((actual - expected.detach()).abs().max()) if actual.numel() else 0.0
    assert worst <= TOLERANCE * max(scale, 1e-6), f"{name}: off by {worst:.2e} of {scale:.2e}"
