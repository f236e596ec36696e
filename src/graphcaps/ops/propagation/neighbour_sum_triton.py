"""Products with the adjacency, read straight from the store's lists of neighbours.

A program owns a block of slots, and their first neighbours are gathered side by side, four of each at a time.
Where slots have more, :mod:`graphcaps.ops.propagation.neighbour_sum_triton` has added up the rest before. So
nothing is expanded to
a list of edges, and every sum has one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops._triton.tiling import count_tiles, tile_at, tile_table
from graphcaps.types import EdgeTable

__all__ = ["Terms", "neighbour_sum", "product_with", "propagate", "weighted_degrees"]


@triton.jit
def _row(  # type: ignore[no-untyped-def]
    x, slot, has, entry, weight, scale, columns, wide, centre, factor, shift, D,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """What a neighbour adds to the sum, 0 where there is none."""
    at = slot.to(tl.int64) * D if LONG else slot * D
    values = tl.load(x + (at + columns[None, :]), mask=has & wide[None, :], other=0.0)
    if NORMED:  # 0 where there is no neighbour, by its scale
        values = normalised(values, centre, factor, shift)
    if WEIGHTED:
        values *= tl.load(weight + entry, mask=has, other=0.0)
    if OWN:
        values *= tl.load(scale + slot, mask=has, other=0.0)
    return values


@triton.jit
def four(  # type: ignore[no-untyped-def]
    total, x, entry, left, begin, neighbours, weight, scale, columns, wide, centre, factor, shift,
    D, STEP: tl.constexpr,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Adds the entries ``entry``, ``entry + STEP``, … of lists that have ``left`` to go.

    Four at a time: a load that waits for another one is what a gather of a few rows spends its time on.
    """
    i, j, k, m = left > 0, left > STEP, left > 2 * STEP, left > 3 * STEP
    a = begin + tl.load(neighbours + entry, mask=i, other=0).to(tl.int32)
    b = begin + tl.load(neighbours + entry + STEP, mask=j, other=0).to(tl.int32)
    c = begin + tl.load(neighbours + entry + 2 * STEP, mask=k, other=0).to(tl.int32)
    d = begin + tl.load(neighbours + entry + 3 * STEP, mask=m, other=0).to(tl.int32)
    p = _row(x, a, i, entry, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    q = _row(x, b, j, entry + STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    r = _row(x, c, k, entry + 2 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    s = _row(x, d, m, entry + 3 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    return total + p + q + r + s


_SLOTS = 32
"""Slots that a program looks through."""
_AT_ONCE_HUBS = 2048
"""Numbers of a chunk of rows; four chunks are in flight at a time, in registers."""


def add_hubs(
    x: Tensor,
    out: Tensor,
    lists: tuple[Tensor, ...],
    first: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    scale: Tensor,
    terms: list[Any],
    options: dict[str, Any],
) -> None:
    """Writes into ``out`` the sums over the neighbours from number ``HEAD`` on, at slots that have so many.

    The arguments are those of the product that is going to read them.
    """
    V, d = x.shape[-2:]
    blocks = triton.cdiv(V, _SLOTS)
    _hubs_kernel[(x.numel() // (V * d) * blocks, triton.cdiv(d, options["WIDTH"]))](
        x, out, *lists, first, neighbours, weight, scale, *terms[:4], terms[10],
        V, d // options["UNIT"], blocks,
        **options, SLOTS=_SLOTS, ROWS=max(4, _AT_ONCE_HUBS // options["WIDTH"]), num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["V", "units", "blocks"])
def _hubs_kernel(  # type: ignore[no-untyped-def]
    x, out, starts, counts, first, neighbours, weight, scale, mean, var, gamma, beta, epsilon, V, units, blocks,
    UNIT: tl.constexpr, WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
    HEAD: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    begin = tl.program_id(0) % blocks * SLOTS
    lane = tl.arange(0, SLOTS)
    count = tl.load(counts + base + begin + lane, mask=begin + lane < V, other=0)
    hubs = tl.sum((count > HEAD).to(tl.int32), 0)
    if hubs > 0:
        columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        wide = columns < D
        x += base * D
        scale += base
        centre, factor, shift = columns, columns, columns  # not read
        if NORMED:
            centre, factor, shift = affine(mean, var, gamma, beta, replica * D + columns, wide, epsilon, True)
        row = tl.arange(0, ROWS)
        last = -1
        for _ in range(0, hubs):
            last = tl.min(tl.where((count > HEAD) & (lane > last), lane, SLOTS), 0)
            slot = base + begin + last
            at = tl.load(starts + slot) + HEAD
            left = tl.load(counts + slot) - HEAD
            origin = tl.load(first + slot).to(tl.int32)
            total = tl.zeros([ROWS, WIDTH], tl.float32)
            for k in range(0, left, 4 * ROWS):
                total = four(
                    total, x, at + (k + row)[:, None], left - (k + row)[:, None], origin, neighbours, weight,
                    scale, columns, wide, centre, factor, shift, D, ROWS, WEIGHTED, OWN, NORMED, LONG,
                )  # fmt: skip
            tl.store(out + slot * D + columns, tl.sum(total, 0), mask=wide)


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


_HEIGHT = 64
"""Rows of a program."""
_WORD = 32
"""Bits of a word, and rows of x in a step."""
_PIECES = {"tf32x3": 3, "tf32": 2, "bf16": 1}
"""Pieces of 8 bits each: 24, 16 (tf32 itself has 11, at the same cost) and 8."""
WARPS = 2
"""Warps of a program: with 4 the products of 64 rows are those of a warp group (wgmma)."""
WIDTHS = {2: 32, 4: 64}
"""Columns of a program by its warps: the fewer, the more programs there is room for at a time."""


def serves(edges: EdgeTable) -> bool:
    """Whether the bits of these edges are there and worth walking."""
    return edges.weight is None and edges.graphs is not None and edges.bits is not None and edges.bits.dense


def dense_product(
    x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool, precision: str, terms: Terms | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """As :func:`graphcaps.ops.propagation.neighbour_sum_triton.product_with`."""
    assert edges.bits is not None
    assert edges.graphs is not None
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    if not x.numel():
        return out, None
    B = edges.graphs.size(-1) - 1
    width = min(WIDTHS[WARPS], max(16, triton.next_power_of_2(d)))
    tiles = count_tiles(V, B, _HEIGHT)
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, tiles)
    *given, _ = pointers(terms, tables, x)
    _dense_kernel[(tiles, replicas, triton.cdiv(d, width))](
        x, out, tile_table(edges.graphs, edges, _HEIGHT, edges.memo), edges.bits.words,
        x if scale is None else scale.detach().contiguous(),
        *given, B, V, d,
        OWN=own, **switches(terms), PIECES=_PIECES[precision], LONG=V * d >= 2**31,
        T=_HEIGHT, C=_WORD, WIDTH=width, num_warps=WARPS, num_stages=2,
    )  # fmt: skip
    return out, tables


@triton.jit
def _top(values):  # type: ignore[no-untyped-def]
    """The first 8 bits of numbers, exactly a bfloat16; cut off, not rounded, which takes no conversion."""
    return (values.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["B", "V"])
def _dense_kernel(  # type: ignore[no-untyped-def]
    x, out, table, words, scale,
    mean, var, gamma, beta, before, spread, index, sizes, plain, along, epsilon, divisor, B, V, d,
    OWN: tl.constexpr, NORMED: tl.constexpr, SLOPES: tl.constexpr, SPREAD: tl.constexpr,
    PIECES: tl.constexpr, LONG: tl.constexpr, T: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(1).to(tl.int64)
    program = replica * tl.num_programs(0) + tl.program_id(0)
    graph, first, end, top, word_at = tile_at(table, program)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < d
    base = replica * V  # first slot of this replica; slots are counted from it
    x += base * d
    out += base * d
    scale += base
    real = graph < B
    row = top + tl.arange(0, T)
    used = (row < end) & real
    # A tile without a row walks nothing.
    n = tl.where(real & (top < end), end - first, 0)
    # The rows of bits of a graph lie one after another, with as many words each.
    local = row - first
    words += word_at + local * tl.cdiv(n, C)
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = affine(mean, var, gamma, beta, replica * d + columns, wide, epsilon, True)
    total = tl.zeros([T, WIDTH], tl.float32)
    lane = tl.arange(0, C)
    bit = 1 << lane
    next_word = tl.load(words, mask=used, other=0)
    for c in range(0, n, C):
        word = next_word
        next_word = tl.load(words + (c // C + 1), mask=used & (c + C < n), other=0)  # it arrives meanwhile
        if OWN:  # a row is its own neighbour
            at = local - c
            word = word | tl.where((at >= 0) & (at < C), 1 << (at & (C - 1)), 0)
        joined = tl.where((word[:, None] & bit[None, :]) != 0, 1.0, 0.0).to(tl.bfloat16)
        there = c + lane < n
        slot = first + c + lane
        at = slot[:, None].to(tl.int64) * d if LONG else slot[:, None] * d
        values = tl.load(x + (at + columns[None, :]), mask=there[:, None] & wide[None, :], other=0.0)
        if NORMED:
            values = normalised(values, centre, factor, shift)
        if OWN:
            values *= tl.load(scale + slot, mask=there, other=0.0)[:, None]
        for left in tl.static_range(PIECES - 1, -1, -1):
            cut = values
            if left > 0:
                cut = _top(values)
                values -= cut
            total = tl.dot(joined, cut.to(tl.bfloat16), total)
    place = row[:, None].to(tl.int64) * d if LONG else row[:, None] * d
    place = place + columns[None, :]
    seen = used[:, None] & wide[None, :]
    if OWN:
        total *= tl.load(scale + row, mask=used, other=0.0)[:, None]
    if SPREAD:
        share = share_of(replica * (B + 1) + graph, real, sizes, divisor)
        part = tl.load(spread + (replica * B + graph) * d + columns, mask=wide & real, other=0.0) * share
        total += part[None, :]
    if SLOPES:
        total = tl.where(seen, total, 0.0)
        slopes(
            total, place, seen, columns, wide, replica, program, d,
            mean, var, before + base * d, plain, along, epsilon,
        )  # fmt: skip
    tl.store(out + place, total, mask=(row < end)[:, None] & wide[None, :])


_SMALL_DEGREE = 32
"""Up to this many neighbours all of them are gathered side by side."""
_HEAD = 8
"""Neighbours of a slot that are, where there are slots with more."""
_AT_ONCE = 2048
"""Numbers of a block of rows; four such blocks are in flight at a time, in registers."""


def neighbour_sum(x: Tensor, edges: EdgeTable) -> Tensor:
    """As :func:`graphcaps.ops.neighbour_sum`; edge weights get no gradient."""
    return neighbour_product(x, edges)


def propagate(x: Tensor, edges: EdgeTable) -> Tensor:
    """As :func:`graphcaps.ops.propagate`; edge weights get no gradient."""
    # Without weights the kernel computes the scale itself, from the numbers of neighbours.
    weight = edges.weight
    scale = None if weight is None else (weighted_degrees(edges, weight) + 1).clamp_min(1).rsqrt()
    return neighbour_product(x, edges, scale, own=True)


def weighted_degrees(edges: EdgeTable, weight: Tensor) -> Tensor:
    """Sum of the edge weights at each row, ``[*lead, V]``."""
    ones = weight.new_ones(()).expand(*edges.node.shape, 1)
    return neighbour_product(ones, edges).squeeze(-1)


def neighbour_product(
    x: Tensor, edges: EdgeTable, scale: Tensor | None = None, *, own: bool = False
) -> Tensor:
    r"""A x, or with ``own`` the whole hop :math:`s_i (\sum_j A_{ij} s_j x_j + s_i x_i)`.

    Linear in x with a symmetric matrix, so the gradient is the same kernel, to any order. Neither weights nor
    scale get a gradient.

    Args:
        x (Tensor): ``[*lead, V, d]``, float32.
        edges (EdgeTable): A, with or without weights.
        scale (Tensor, optional): s, ``[*lead, V]``. With ``own`` and without ``scale`` it is
            1 / √(1 + number of neighbours).
        own (bool): Whether the scaled row itself joins the sum. (default: False)

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding.
    """
    found: Tensor = _Product.apply(x, edges, scale, own, dot_precision())
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool, precision: str
    ) -> Tensor:
        ctx.given = edges, scale, own, precision
        return product_with(x, edges, scale, own, precision)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Product.apply(grad, *ctx.given), None, None, None, None


def product_with(
    x: Tensor,
    edges: EdgeTable,
    scale: Tensor | None,
    own: bool,
    precision: str,
    terms: Terms | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """The product and, in a backward pass with ``terms``, its tables of sums ``[replicas, parts, d]``."""
    if own and scale is None:
        scale = _lists(edges)[0]
    if serves(edges):
        return dense_product(x, edges, scale, own, precision, terms)
    return _launch(x, edges, scale, own, terms)


def _lists(edges: EdgeTable) -> tuple[Tensor, Tensor, Tensor]:
    """Of each slot 1 / √(1 + number of neighbours), the first of them in the store's list, and their number.

    ``[*lead, V]`` each, kept for the batch: looked up once, a product has one load less to wait for. At padding
    0, −1 and 0.
    """
    if "lists" not in edges.memo:
        node = edges.node.contiguous()
        roots, count = (torch.empty_like(node, dtype=kind) for kind in (torch.float32, torch.int32))
        start = torch.empty_like(node)
        if node.numel():
            _lists_kernel[(triton.cdiv(node.numel(), 512),)](
                node, edges.ptr, roots, start, count, node.numel(), ROWS=512
            )
        edges.memo["lists"] = roots, start, count
    kept: tuple[Tensor, Tensor, Tensor] = edges.memo["lists"]
    return kept


def _launch(
    x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool, terms: Terms | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    if not x.numel():
        return out, None
    width = min(128, max(16, triton.next_power_of_2(d)))
    unit = 4 if d % 4 == 0 else 2 if d % 2 == 0 else 1  # numbers that a load takes at once
    small = edges.max_degree is not None and edges.max_degree <= _SMALL_DEGREE
    head = _SMALL_DEGREE if small else _HEAD
    rows = min(64, _AT_ONCE // width)
    blocks = triton.cdiv(V, rows)
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, blocks)
    lists, rest = _lists(edges)[1:], pointers(terms, tables, x)
    first = edges.first.contiguous()
    common: dict[str, Any] = {"UNIT": unit, "WEIGHTED": edges.weight is not None, "OWN": own, "HEAD": head,
                              "NORMED": switches(terms)["NORMED"], "LONG": V * d >= 2**31, "WIDTH": width}  # fmt: skip
    weight = x if edges.weight is None else edges.weight.detach().contiguous()
    given = x if scale is None else scale.detach().contiguous()
    if not small:
        add_hubs(x, out, lists, first, edges.neighbours, weight, given, rest, common)
    _product_kernel[(replicas * blocks, triton.cdiv(d, width))](
        x, out, *lists, first, edges.neighbours, weight, given, *rest, V, d // unit, blocks,
        **common, SLOPES=switches(terms)["SLOPES"], SPREAD=switches(terms)["SPREAD"],
        TAIL=not small, ROWS=rows, num_warps=4,
    )  # fmt: skip
    return out, tables


@triton.jit(do_not_specialize=["N"])
def _lists_kernel(node, ptr, roots, start, count, N, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    slot = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = slot < N
    held = tl.load(node + slot, mask=inside, other=-1)
    real = inside & (held >= 0)
    first = tl.load(ptr + held, mask=real, other=-1)
    number = tl.where(real, tl.load(ptr + held + 1, mask=real, other=0) - first, 0).to(tl.int32)
    tl.store(roots + slot, tl.where(real, tl.rsqrt((number + 1).to(tl.float32)), 0.0), mask=inside)
    tl.store(start + slot, first, mask=inside)
    tl.store(count + slot, number, mask=inside)


@triton.jit(do_not_specialize=["B", "V", "units", "blocks"])
def _product_kernel(  # type: ignore[no-untyped-def]
    x, out, starts, counts, first, neighbours, weight, scale,
    mean, var, gamma, beta, before, spread, index, graphs, plain, along, epsilon, divisor, B, V, units, blocks,
    UNIT: tl.constexpr, WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, SLOPES: tl.constexpr,
    SPREAD: tl.constexpr, LONG: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V  # first slot of this replica; slots are counted from it
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < D
    inside = rows < V
    start = tl.load(starts + base + rows, mask=inside, other=-1)
    count = tl.load(counts + base + rows, mask=inside, other=0)
    begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
    real = inside & (start >= 0)
    x += base * D
    scale += base
    place = rows[:, None].to(tl.int64) * D if LONG else rows[:, None] * D
    place = place + columns[None, :]
    seen = real[:, None] & wide[None, :]
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = affine(mean, var, gamma, beta, replica * D + columns, wide, epsilon, True)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    # Columns from here on: Triton 3.6 fails to compile a load of a row of indices that is turned in the loop.
    start_, begin_, count_ = start[:, None], begin[:, None], count[:, None]
    for k in range(0, tl.max(tl.minimum(count, HEAD), 0), 4):
        total = four(
            total, x, start_ + k, tl.minimum(count_, HEAD) - k, begin_, neighbours, weight, scale,
            columns, wide, centre, factor, shift, D, 1, WEIGHTED, OWN, NORMED, LONG,
        )  # fmt: skip
    if TAIL:  # what the rest of a long list adds up to lies where the result will
        rest = out + base * D + place
        total += tl.load(rest, mask=seen & (count > HEAD)[:, None], other=0.0)
    if OWN:
        s = tl.load(scale + rows, mask=real, other=0.0)[:, None]
        mine = tl.load(x + place, mask=seen, other=0.0)
        if NORMED:
            mine = normalised(mine, centre, factor, shift)
        total = s * (total + s * mine)
    if SPREAD:
        graph = tl.load(index + base + rows, mask=real, other=0)
        share = share_of(replica * (B + 1) + graph, real, graphs, divisor)
        part = spread + (replica * B + graph)[:, None] * D + columns[None, :]
        total += tl.load(part, mask=seen, other=0.0) * share[:, None]
    if SLOPES:
        total = tl.where(seen, total, 0.0)
        slopes(
            total, place, seen, columns, wide, replica, tl.program_id(0).to(tl.int64), D,
            mean, var, before + base * D, plain, along, epsilon,
        )  # fmt: skip
    tl.store(out + base * D + place, total, mask=inside[:, None] & wide[None, :])
