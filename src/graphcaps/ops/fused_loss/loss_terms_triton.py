"""Margin loss, reconstruction loss and their weighted sum, from what the programs of a step have stored of them."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["count_pairs", "loss_terms"]

_BLOCK = 1024


@triton.jit
def _sum(values, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, count, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(values + at, mask=at < count, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def count_pairs(ptr, B, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ n² over the graphs of a replica, BLOCK graphs at a time."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, B, BLOCK):
        at = first + tl.arange(0, BLOCK)
        begin = tl.load(ptr + at, mask=at < B, other=0)
        size = (tl.load(ptr + at + 1, mask=at < B, other=0) - begin).to(tl.float32)
        total += size * size
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["B", "M", "N"])
def _terms_kernel(  # type: ignore[no-untyped-def]
    margin, pairs, ptr, weight, out, B, M, N, PAIRS: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr
):
    """One program per replica."""
    f = tl.program_id(0)
    F = tl.num_programs(0)
    loss = _sum(margin + f * M, M, BLOCK)
    total = loss
    if PAIRS:
        counted = count_pairs(ptr + f * (B + 1), B, BLOCK)
        reconstruction = _sum(pairs + f * N, N, BLOCK) / tl.maximum(counted, 1.0)
        if EACH:  # a pointer to one number per replica
            weight = tl.load(weight + f)
        total += weight * reconstruction
        tl.store(out + 2 * F + f, reconstruction)
    tl.store(out + f, total)
    tl.store(out + F + f, loss)


def loss_terms(margin: Tensor, pairs: Tensor | None, ptr: Tensor, weight: float | Tensor = 0.0) -> Tensor:
    """The loss of each replica, its margin loss and, with ``pairs``, its reconstruction loss, ``[2 or 3, F]``.

    Args:
        margin (Tensor): Parts of the margin loss, ``[F, M]``.
        pairs (Tensor, optional): Parts of the sum over all pairs of nodes, ``[F, N]``.
        ptr (Tensor): First node of each graph and the end of the last, ``[F, B + 1]``.
        weight (float or Tensor): Weight of the reconstruction loss; one per replica, ``[F]``, as a tensor.
    """
    F, M = margin.shape
    out = margin.new_empty(2 if pairs is None else 3, F)
    _terms_kernel[(F,)](
        margin, margin if pairs is None else pairs, ptr, weight, out, ptr.size(1) - 1, M,
        0 if pairs is None else pairs.size(1),
        PAIRS=pairs is not None, EACH=isinstance(weight, Tensor), BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out
