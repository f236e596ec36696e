"""Products of many rows with a matrix that all rows of a replica share, and their gradients.

The rows are those of one or two tensors, which are read side by side without a copy. Rows are many and matrices small:
a program multiplies a tile of rows by a block of columns, and the gradient of the matrix is a sum over parts of the
rows, which programs compute at the same time and which are added in order.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment,misc"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops._triton.row_products import split_rows, times_rows
from graphcaps.ops.batch_norm.batch_norm_triton import real_rows, rows_of_entry
from graphcaps.ops.routing.capsule_update_triton import WeightTiles, outer_products

__all__ = ["input_gradients", "matrix_gradient", "row_product"]

_MOST_TILES = 2048
"""Largest number of tiles of a replica with moments: one program combines those of a column."""


@dataclass(frozen=True)
class ProductTiles:
    """How programs multiply rows; what is best depends on the GPU.

    Args:
        rows (int): Rows of a tile. With 64 and four or more warps, wgmma is used, which needs a transposed matrix: the
            gradient of the rows multiplies by one.
        columns (int): Columns of a tile.
        step (int): Columns of the rows in a step.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program.
    """

    rows: int = 32
    columns: int = 128
    step: int = 32
    stages: int = 3
    warps: int = 4

    def options(self, depth: int, columns: int, precision: str) -> dict[str, Any]:
        """Launch options for rows of ``depth`` numbers: tiles no larger than needed.

        tf32x3 holds each operand twice, and rows that are not a multiple of 16 numbers are read one number at a time:
        both need registers.
        """
        simple = precision != "tf32x3" and (depth | columns) % 16 == 0
        return {
            "ROWS": self.rows if simple else 32,
            "WIDTH": min(self.columns, tile_width(columns)),
            "KB": min(self.step if simple else 16, tile_width(depth)),
            **{"STAGES": self.stages if simple else 2, "PRECISION": precision, "num_warps": self.warps},
        }


FORWARD_TILES = ProductTiles()
BACKWARD_TILES = ProductTiles(rows=64)
"""Of the gradient of the rows."""
MATRIX_TILES = WeightTiles(groups=2, registers=168)
"""Of the gradient of the matrix."""


class Moments(NamedTuple):
    """Mean and squared deviations, ``[replicas, parts, C]``, and number of the real rows of each part."""

    means: Tensor
    squares: Tensor
    counts: Tensor


@triton.jit(do_not_specialize=["V", "blocks", "EACH"])
def _product_kernel(  # type: ignore[no-untyped-def]
    one, two, matrix, mask, out, means, squares, counts, V, K, N, blocks, EACH,
    PARTS: tl.constexpr, MASKED: tl.constexpr, STATISTICS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    KB: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of rows of a replica (program 0) times a block of columns (1).

    Both tensors are read in one loop, so that addresses of one at a time are in registers.
    """
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * ROWS
    local = tl.arange(0, ROWS)  # offsets within a tile fit into 32 bits
    left = tl.program_id(1) * WIDTH
    columns = tl.arange(0, WIDTH)
    inside, wide = first + local < V, left + columns < N
    of_tile = replica * V + first
    matrix += replica * PARTS * K * N + left
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    steps = tl.cdiv(K, KB)
    for step in tl.range(0, PARTS * steps, num_stages=STAGES):
        part = step // steps
        k = step % steps * KB + tl.arange(0, KB)
        deep = k < K
        source = tl.where(part == 0, one, two) + of_tile * K
        x = tl.load(
            source + (local[:, None] * K + k[None, :]), mask=inside[:, None] & deep[None, :], other=0.0
        )
        of_part = matrix + part * K * N
        w = tl.load(
            of_part + (k[:, None] * N + columns[None, :]), mask=deep[:, None] & wide[None, :], other=0.0
        )
        total = product(x, w, total, PRECISION)
    columns += left
    offsets = local[:, None] * N + columns[None, :]
    tl.store(out + of_tile * N + offsets, total, mask=inside[:, None] & wide[None, :])
    if STATISTICS:
        real = real_rows(mask, replica * V, first + local, V, EACH, MASKED)
        count = tl.sum(real.to(tl.float32), 0)
        mean = tl.sum(tl.where(real[:, None], total, 0.0), 0) / tl.maximum(count, 1.0)
        deviation = tl.where(real[:, None], total - mean[None, :], 0.0)
        at = tl.program_id(0).to(tl.int64) * N + columns
        tl.store(means + at, mean, mask=wide)
        tl.store(squares + at, tl.sum(deviation * deviation, 0), mask=wide)
        if tl.program_id(1) == 0:
            tl.store(counts + tl.program_id(0), count)


def row_product(
    parts: Sequence[Tensor], matrix: Tensor, mask: Tensor | None, precision: str, *, statistics: bool
) -> tuple[Tensor, Moments | None]:
    """x W ``[*lead, V, N]`` of one or two tensors side by side, and if asked for, moments of its real rows.

    There are no moments of more rows than ``_MOST_TILES`` tiles have.

    Args:
        parts (sequence): ``[*lead, V, K]`` each, contiguous.
        matrix (Tensor): W, ``[*lead, K · len(parts), N]``, contiguous.
        mask (Tensor, optional): From :func:`graphcaps.ops.batch_norm.batch_norm_triton.mask_bytes`.
        precision (str): As in :func:`graphcaps.ops._triton.precision.dot_precision`.
        statistics (bool): Whether moments are computed.
    """
    one, two = parts[0], parts[-1]
    (V, K), N = one.shape[-2:], matrix.size(-1)
    replicas = matrix.numel() // (len(parts) * K * N)
    options = FORWARD_TILES.options(K, N, precision)
    blocks = triton.cdiv(V, options["ROWS"])
    out = one.new_empty(*one.shape[:-1], N)
    moments = None
    if statistics and blocks <= _MOST_TILES:
        shapes = (replicas, blocks, N), (replicas, blocks, N), (replicas, blocks)
        moments = Moments(*(one.new_empty(shape) for shape in shapes))
    _product_kernel[(replicas * blocks, triton.cdiv(N, options["WIDTH"]))](
        one, two, matrix, one if mask is None else mask, out, *(moments or (out, out, out)),
        V, K, N, blocks, rows_of_entry(mask, V), PARTS=len(parts), MASKED=mask is not None,
        STATISTICS=moments is not None, **options,
    )  # fmt: skip
    return out, moments


@triton.jit(do_not_specialize=["V", "blocks"])
def _input_gradient_kernel(  # type: ignore[no-untyped-def]
    grad, matrix, added, one, two, V, K, N, blocks,
    PARTS: tl.constexpr, ADDED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, KB: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of rows of a replica (program 0) and a block of columns (1) of the gradient of a tensor (2)."""
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * ROWS
    local = tl.arange(0, ROWS)
    left = tl.program_id(1) * WIDTH
    part = tl.program_id(2)
    columns = left + tl.arange(0, WIDTH)
    inside = first + local < V
    of_tile = replica * V + first
    matrix += ((replica * PARTS + part) * K + left) * N
    total = times_rows(
        grad + of_tile * N, local * N, inside, matrix, K - left, N, KB, WIDTH, STAGES, True, PRECISION
    )
    offsets = of_tile * K + (local[:, None] * K + columns[None, :])
    valid = inside[:, None] & (columns < K)[None, :]
    if ADDED:
        total += tl.load(added + offsets, mask=valid & (part == 0), other=0.0)
    tl.store(tl.where(part == 0, one, two) + offsets, total, mask=valid)


def input_gradients(
    grad: Tensor, matrix: Tensor, count: int, added: Tensor | None, precision: str
) -> list[Tensor]:
    """Gradients of the tensors that :func:`row_product` reads, ``[*lead, V, K]`` each.

    Args:
        grad (Tensor): Gradient of the product, ``[*lead, V, N]``, contiguous.
        matrix (Tensor): W, ``[*lead, K · count, N]``, contiguous.
        count (int): Number of tensors, 1 or 2.
        added (Tensor, optional): Added to the first gradient, ``[*lead, V, K]``, contiguous.
        precision (str): As in :func:`row_product`.
    """
    (V, N), K = grad.shape[-2:], matrix.size(-2) // count
    replicas = matrix.numel() // (count * K * N)
    options = BACKWARD_TILES.options(N, K, precision)
    blocks = triton.cdiv(V, options["ROWS"])
    gradients = [grad.new_empty(*grad.shape[:-1], K) for _ in range(count)]
    _input_gradient_kernel[(replicas * blocks, triton.cdiv(K, options["WIDTH"]), count)](
        grad, matrix, grad if added is None else added, gradients[0], gradients[-1], V, K, N, blocks,
        PARTS=count, ADDED=added is not None, **options,
    )  # fmt: skip
    return gradients


@triton.jit(do_not_specialize=["V", "parts", "rows"])
def _matrix_gradient_kernel(  # type: ignore[no-untyped-def]
    one, two, grad, out, V, K, N, parts, rows,
    PARTS: tl.constexpr, GROUPS: tl.constexpr, DB: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles (program 0) of the product of a tensor (1), transposed, with the gradient, over a part (2) of the rows."""
    down = tl.cdiv(K, GROUPS * DB)
    row = tl.program_id(0) % down * (GROUPS * DB)
    column = tl.program_id(0) // down * EB
    tensor = tl.program_id(1)
    replica = (tl.program_id(2) // parts).to(tl.int64)
    begin = tl.program_id(2) % parts * rows
    count = tl.minimum(rows, V - begin)
    source = tl.where(tensor == 0, one, two) + (replica * V + begin) * K
    grad += (replica * V + begin) * N
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros((DB, EB), tl.float32),)
    total = outer_products(
        total, source, grad, source, grad, 1, 1, 0, row, column, count, K, N, GROUPS, DB, EB, KB, PRECISION
    )
    e = column + tl.arange(0, EB)
    out += (tl.program_id(2).to(tl.int64) * PARTS + tensor) * K * N
    for i in tl.static_range(GROUPS):
        d = row + i * DB + tl.arange(0, DB)
        tl.store(out + d[:, None] * N + e[None, :], total[i], mask=(d < K)[:, None] & (e < N)[None, :])


def matrix_gradient(parts: Sequence[Tensor], grad: Tensor, precision: str) -> Tensor:
    """Gradient of W, ``[*lead, K · len(parts), N]``; arguments as in the functions above."""
    one, two = parts[0], parts[-1]
    (V, K), N, lead = one.shape[-2:], grad.size(-1), grad.shape[:-2]
    replicas = grad.numel() // (V * N)
    options = MATRIX_TILES.options(K, N, precision)
    options.pop("STAGES")
    across = triton.cdiv(K, options["GROUPS"] * options["DB"]) * triton.cdiv(N, options["EB"])
    steps, split = split_rows(V, options["KB"], across * len(parts) * replicas, max(K, N))
    products = grad.new_empty(replicas, split, len(parts) * K, N)
    _matrix_gradient_kernel[(across, len(parts), replicas * split)](
        one, two, grad, products, V, K, N, split, steps * options["KB"],
        PARTS=len(parts), PRECISION=precision, **options,
    )  # fmt: skip
    total = products[:, 0] if split == 1 else products.sum(1)
    return total.view(*lead, len(parts) * K, N)
