"""What a product with the adjacency does beside the product, so that batch normalisation takes few passes.

Forward the rows are normalised while they are gathered, and never stored. Backward the product gives the
gradient g of the normalised rows: what every graph's mean part hands to its rows is added to it, and each
program leaves two sums over its rows, of g and of g x̂, which the gradients of γ, β and of the rows are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["Terms", "affine", "normalised", "pointers", "share_of", "slopes", "switches"]


@dataclass(frozen=True)
class Terms:
    """Statistics of a normalisation, and what the backward pass adds.

    Args:
        mean, var (Tensor): Of the rows, ``[*lead, d]``.
        weight, bias (Tensor): γ and β, ``[*lead, d]``.
        epsilon (float): Added to the variance.
        rows (Tensor, optional): The rows before normalisation, ``[*lead, V, d]``: given, the product is that of
            the backward pass.
        spread (Tensor, optional): Gradient of every graph's mean part, ``[*lead, B, d]``.
        index, ptr (Tensor, optional): Of the segments, with ``spread``.
        divisor (float): Of the mean part; 0 takes each graph's own count. (default: 0)
    """

    mean: Tensor
    var: Tensor
    weight: Tensor
    bias: Tensor
    epsilon: float
    rows: Tensor | None = None
    spread: Tensor | None = None
    index: Tensor | None = None
    ptr: Tensor | None = None
    divisor: float = 0.0

    def tables(self, replicas: int, parts: int) -> tuple[Tensor, Tensor] | None:
        """Room for the two sums of every program, in the backward pass."""
        if self.rows is None:
            return None
        shape = (replicas, parts, self.mean.size(-1))
        return self.mean.new_empty(shape), self.mean.new_empty(shape)


def pointers(terms: Terms | None, tables: tuple[Tensor, Tensor] | None, x: Tensor) -> list[Any]:
    """What the kernels take beside the product: ``mean`` to ``B``; ``x`` stands for what is not read."""
    if terms is None:
        return [*[x] * 10, 0.0, 0.0, 0]
    t = terms
    given = (t.mean, t.var, t.weight, t.bias, t.rows, t.spread, t.index, t.ptr)
    found: list[Any] = [x if tensor is None else tensor.contiguous() for tensor in given]
    B = 0 if t.spread is None else t.spread.size(-2)
    return [*found, *(tables or (x, x)), float(t.epsilon), float(t.divisor), B]


def switches(terms: Terms | None) -> dict[str, bool]:
    """Which of it a kernel is compiled for."""
    backward = terms is not None and terms.rows is not None
    return {
        "NORMED": terms is not None and not backward,
        "SLOPES": backward,
        "SPREAD": backward and terms is not None and terms.spread is not None,
    }


@triton.jit
def affine(mean, var, gamma, beta, own, wide, epsilon, AFFINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mean, factor and shift of columns, to be applied as (x − mean) factor + shift; γ = 1, β = 0 where not."""
    centre = tl.load(mean + own, mask=wide, other=0.0)
    factor = tl.rsqrt(tl.load(var + own, mask=wide, other=1.0) + epsilon)
    shift = tl.zeros_like(centre)
    if AFFINE:
        factor *= tl.load(gamma + own, mask=wide, other=0.0)
        shift = tl.load(beta + own, mask=wide, other=0.0)
    return centre, factor, shift


@triton.jit
def normalised(values, centre, factor, shift):  # type: ignore[no-untyped-def]
    return (values - centre[None, :]) * factor[None, :] + shift[None, :]


@triton.jit
def share_of(graph, real, graphs, divisor):  # type: ignore[no-untyped-def]
    """What a row has of its graph's mean part: 1 / divisor, or 1 / the number of rows where that is 0."""
    start = tl.load(graphs + graph, mask=real, other=0)
    size = (tl.load(graphs + graph + 1, mask=real, other=0) - start).to(tl.float32)
    return 1.0 / tl.where(divisor > 0, divisor, tl.maximum(size, 1.0))


@triton.jit
def slopes(  # type: ignore[no-untyped-def]
    g, place, seen, columns, wide, replica, program, D, mean, var, rows, plain, along, epsilon
):
    """Stores the sums of g and of g x̂ over the rows of this program; g is 0 where not ``seen``."""
    centre, factor, shift = affine(mean, var, mean, mean, replica * D + columns, wide, epsilon, False)
    hat = normalised(tl.load(rows + place, mask=seen, other=0.0), centre, factor, shift)
    own = program * D + columns
    tl.store(plain + own, tl.sum(g, 0), mask=wide)
    tl.store(along + own, tl.sum(g * hat, 0), mask=wide)
