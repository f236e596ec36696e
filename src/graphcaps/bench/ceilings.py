"""What a device can do at best: the two ceilings that measured times are held against."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from graphcaps.errors import ArgumentError
from graphcaps.ops.kernels import precision

__all__ = ["Ceilings", "measure_ceilings"]

_COPY_BYTES = {"cpu": 64 * 10**6, "cuda": 10**9}
_MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True)
class Ceilings:
    """The best that a device reached.

    Args:
        bandwidth (float): Bytes a second of a copy, what is read and what is written both counted.
        rate (float): Operations a second of a matrix product, a multiplication and an addition each.
    """

    bandwidth: float
    rate: float

    def seconds(self, num_bytes: float, operations: float) -> float:
        """The least time that so many bytes and operations take: the longer of the two (roofline)."""
        return max(num_bytes / self.bandwidth, operations / self.rate)


def measure_ceilings(
    device: torch.device,
    *,
    copy_bytes: int | None = None,
    matmul_size: int | None = None,
    repeats: int = 5,
) -> Ceilings:
    """Times a copy and a matrix product on tensors larger than the caches; the best of a few counts.

    The product is of float32 matrices. Where kernels multiply in tf32 or bf16
    (:func:`graphcaps.ops.kernels.precision`), so does this one: coarser numbers have a higher ceiling.

    Args:
        device (device): Where.
        copy_bytes (int, optional): Bytes of the copied tensor. (default: 64 MB on a CPU, 1 GB on a GPU)
        matmul_size (int, optional): Rows and columns of the matrices. (default: 1024 on a CPU, 8192 on a GPU)
        repeats (int): How often each is timed, after one run that is not. (default: 5)
    """
    if repeats < 1:
        raise ArgumentError("measure_ceilings", "repeats", "be at least 1", repeats)
    kind = "cuda" if device.type == "cuda" else "cpu"
    count = (copy_bytes or _COPY_BYTES[kind]) // 4
    n = matmul_size or _MATMUL_SIZE[kind]
    source = torch.ones(count, device=device)  # zeros may share one page of memory
    target = torch.empty_like(source)
    copied = _best(lambda: target.copy_(source), device, repeats)
    finely = precision() if kind == "cuda" else "float32"
    kept = torch.get_float32_matmul_precision()
    a, b = (torch.ones(n, n, device=device) for _ in range(2))
    if finely == "bf16":
        a, b = a.bfloat16(), b.bfloat16()
    product = torch.empty_like(a)
    torch.set_float32_matmul_precision("highest" if finely == "float32" else "high")
    try:
        multiplied = _best(lambda: torch.mm(a, b, out=product), device, repeats)
    finally:
        torch.set_float32_matmul_precision(kept)
    return Ceilings(bandwidth=2 * 4 * count / copied, rate=2 * n**3 / multiplied)


def _best(body: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds of the fastest of a few runs."""
    body()
    found = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        body()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - began)
    return min(found)
