r"""The gradient of the capsules over nodes, from that of the class level to that of the features' projection.

Of a level with h = Â û, constant assignments c, g = Â c and :math:`G_j = \sum_i c_{ij} h_i = \sum_i g_{ij} \hat u_i`,
the gradient of the normalised inputs is

.. math:: \bar{\hat u}_i = \sum_j g_{ij}\, \bar G_j + \tfrac{1}{\text{divisor}} \sum_j \bar s_j

so that neither the gradient of h nor a sum over neighbours of it is formed. Both sums that their batch normalisation
needs follow from sums over graphs:

.. math::
    \sum_i \bar{\hat u}_i = \sum_{b,j} (q_{bj} \bar G_{bj} + \tfrac{n_b}{\text{divisor}} \bar s_{bj}), \quad
    \sum_i \bar{\hat u}_i \hat u_i = \sum_{b,j} (G_{bj} \bar G_{bj} + r_b \bar s_{bj})

with :math:`q_j = \sum_i g_{ij}` and the residual r. With these sums, the gradient of an input u is
:math:`\bar{\hat u}` times a number, plus a number, minus a number times u, for each column.

The kernels: these numbers for the class level; the gradient of s, for each graph and output capsule; that of G, a
product with the weights; these numbers for the nodes; the gradient of the normalised nodes
(:func:`graphcaps.ops.routing.weighted_sum_triton.input_gradient`); and one more pass over the rows, with the gradient
of the reconstruction loss, of squash, dropout and ReLU. What was before the squash follows from the primary capsule
and a squared length, so that nothing else of the forward pass is read.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment,misc"

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops._triton.row_products import times_rows
from graphcaps.ops.fused_loss.class_level_triton import ClassGradients, ClassLevel, NormedCapsules
from graphcaps.ops.routing.agreement_triton import AgreementTiles
from graphcaps.ops.routing.capsule_update_triton import squash_factor

__all__ = [
    "NodeLevel",
    "NodeRows",
    "capsule_gradients",
    "norm_gradient",
    "row_gradients",
    "scaled_sums",
    "vote_gradients",
]

VOTE_TILES = AgreementTiles()
"""Of the product of the gradient of s with the weights."""
_PARTS, _COLUMNS = 256, 8
"""Parts and columns of a step of kernels that add parts: their steps wait for each other, so they are few."""


@dataclass(frozen=True)
class RowTiles:
    """How programs compute the gradient of rows; what is best depends on the GPU.

    Args:
        numbers (int): Numbers of a tile of rows.
        programs (int): Programs that a large GPU runs at a time; each has several tiles.
        warps (int): Warps of a program.
        registers (int, optional): Limit of registers of a thread.
    """

    numbers: int = 1024
    programs: int = 792
    warps: int = 4
    registers: int | None = 80


ROW_TILES = RowTiles()


@dataclass(frozen=True)
class CapsuleTiles:
    """The same of output capsules.

    Args:
        graphs (int): Graphs of a program.
        warps (int): Warps of a program.
        unrolled (int): Output capsules that are read at a time.
    """

    graphs: int = 2
    warps: int = 2
    unrolled: int = 5


CAPSULE_TILES = CapsuleTiles()


class NodeLevel(NamedTuple):
    """What the forward pass keeps of the capsules over nodes, for F replicas.

    Args:
        s (Tensor): Output capsules before the squash, ``[F, J, B, d]``.
        G (Tensor): Sums of the last iteration, ``[F, J, B, d]``.
        weight (Tensor): W, ``[F, J, d, d]``.
        residual (Tensor, optional): r, ``[F, B, d]``.
        divisor (float): Of the residual; 0 stands for the number of nodes of a graph.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        hopped_sums (Tensor, optional): q, the sums of g over graphs, ``[F, B, J]``. Without them, the sums over nodes
            are not computed. (default: None)
    """

    s: Tensor
    G: Tensor
    weight: Tensor
    residual: Tensor | None
    divisor: float
    epsilon: float
    hopped_sums: Tensor | None = None


class NodeRows(NamedTuple):
    """Primary capsules, and what follows them in the loss.

    Args:
        u (Tensor): Primary capsules, ``[F, V, d]``.
        squares (Tensor): Squared lengths before the squash, ``[F, V]``.
        scale (float or Tensor): 1 / (1 − p) of the dropout before the squash; one per replica, ``[F]``, as a tensor.
        extra (Tensor, optional): A further gradient of u, ``[F, V, d]``, to be multiplied by ``factor [F]``.
        factor (Tensor, optional): As above.
    """

    u: Tensor
    squares: Tensor
    scale: float | Tensor
    extra: Tensor | None
    factor: Tensor | None


class NormGradient(NamedTuple):
    """How the gradient g of normalised rows becomes that of the rows u: ``weight`` g + ``base`` − ``coefficients`` u.

    All tensors are ``[F, d]``; ``shift`` is the gradient of β, ``mean`` and ``rstd`` (1 / σ) are those of the rows.
    """

    weight: Tensor
    base: Tensor
    coefficients: Tensor
    shift: Tensor
    mean: Tensor
    rstd: Tensor


@triton.jit
def _add_parts(table, parts, d, at, wide, PARTS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum over the rows of a table ``[parts, d]``, ``[WIDTH]``."""
    total = tl.zeros([PARTS, WIDTH], tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & wide[None, :]
        total += tl.load(table + part[:, None] * d + at[None, :], mask=inside, other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["parts"])
def _norm_kernel(  # type: ignore[no-untyped-def]
    sums, hat_sums, mean, var, gamma, beta, count, weight, base, coefficients, shift, rstd, parts, d, epsilon,
    PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Some columns (program 1) of a replica (0)."""
    r = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = at < d
    column = r * d + at
    n = tl.load(count + r)
    n, several = tl.maximum(n, 1.0), n > 1  # a single row is its own mean: its gradient is 0, not rounding
    centre = tl.load(mean + column, mask=wide, other=0.0)
    inverse = tl.rsqrt(tl.load(var + column, mask=wide, other=1.0) + epsilon)
    scale = tl.load(gamma + column, mask=wide, other=0.0) * inverse
    offset = tl.load(beta + column, mask=wide, other=0.0)
    total = _add_parts(sums + r * parts * d, parts, d, at, wide, PARTS, WIDTH)
    # Of the gradient times û = γ x̂ + β with x̂ = (u − mean) / σ.
    coefficient = _add_parts(hat_sums + r * parts * d, parts, d, at, wide, PARTS, WIDTH) - offset * total
    coefficient *= inverse * inverse / n
    tl.store(weight + column, tl.where(several, scale, 0.0), mask=wide)
    tl.store(base + column, tl.where(several, coefficient * centre - scale * (total / n), 0.0), mask=wide)
    tl.store(coefficients + column, tl.where(several, coefficient, 0.0), mask=wide)
    tl.store(shift + column, total, mask=wide)
    tl.store(rstd + column, inverse, mask=wide)


def norm_gradient(
    sums: Tensor,
    hat_sums: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor],
    affine: tuple[Tensor, Tensor],
    epsilon: float,
) -> NormGradient:
    """The gradient of a batch normalisation from sums over its rows.

    Args:
        sums, hat_sums (Tensor): Sums of the gradient of normalised rows, and of that times these rows, in parts,
            ``[F, parts, d]``.
        statistics (tuple): Mean and variance ``[F, d]`` and number ``[F]`` of the rows.
        affine (tuple): γ and β, ``[F, d]``.
        epsilon (float): Added to the variance.
    """
    (mean, var, count), (F, parts, d) = statistics, sums.shape
    weight, base, coefficients, shift, rstd = (mean.new_empty(F, d) for _ in range(5))
    _norm_kernel[(F, triton.cdiv(d, _COLUMNS))](
        sums, hat_sums, mean, var, *affine, count, weight, base, coefficients, shift, rstd, parts, d, epsilon,
        PARTS=_PARTS, WIDTH=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return NormGradient(weight, base, coefficients, shift, mean, rstd)


@triton.jit(do_not_specialize=["parts"])
def _sums_kernel(  # type: ignore[no-untyped-def]
    table, scale, out, parts, d, SCALED: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr
):
    """Some columns (program 1) of a replica (0)."""
    r = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = at < d
    total = _add_parts(table + r * parts * d, parts, d, at, wide, PARTS, WIDTH)
    if SCALED:
        total *= tl.load(scale + r * d + at, mask=wide, other=0.0)
    tl.store(out + r * d + at, total, mask=wide)


def scaled_sums(table: Tensor, scale: Tensor | None = None) -> Tensor:
    """Sums over the parts of ``table [F, parts, d]``, times ``scale [F, d]`` if there is one."""
    F, parts, d = table.shape
    out = table.new_empty(F, d)
    _sums_kernel[(F, triton.cdiv(d, _COLUMNS))](
        table, table if scale is None else scale, out, parts, d,
        SCALED=scale is not None, PARTS=_PARTS, WIDTH=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["B", "J", "parts"])
def _capsules_kernel(  # type: ignore[no-untyped-def]
    u, s_in, dG, ds_above, hopped, residual, ptr, weight, base, coefficients, mean,
    ds_out, summed, sums, hat_sums, deviation_sums, B, J, d, parts, epsilon, divisor,
    CLASSES: tl.constexpr, ABOVE: tl.constexpr, RESIDUAL: tl.constexpr, SUMS: tl.constexpr, UNROLLED: tl.constexpr,
    R: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """All output capsules of R graphs (program 0) of a replica (1); ``ABOVE``: the class level has a residual."""
    f = tl.program_id(1).to(tl.int64)
    b = tl.program_id(0) * R + tl.arange(0, R)
    at = tl.arange(0, DP)
    inside, wide = b < B, at < d
    here = inside[:, None] & wide[None, :]
    rows_at = (f * B + b)[:, None] * d + at[None, :]
    begin = tl.load(ptr + f * (B + 1) + b, mask=inside, other=0)
    size = (tl.load(ptr + f * (B + 1) + b + 1, mask=inside, other=0) - begin).to(tl.float32)
    real = size > 0
    valid = real[:, None] & here
    above = ()
    for o in tl.static_range(CLASSES):
        above += (tl.load(dG + ((f * CLASSES + o) * B + b)[:, None] * d + at[None, :], mask=here, other=0.0),)
    common = tl.where(here, 0.0, above[0])  # zeros in the layout of what is loaded
    if ABOVE:
        for o in tl.static_range(CLASSES):
            of_class = ((f * CLASSES + o) * B + b)[:, None] * d + at[None, :]
            common += tl.load(ds_above + of_class, mask=here, other=0.0)
        common /= J
    column = f * d + at
    scale = tl.load(weight + column, mask=wide, other=0.0)[None, :]
    constant = tl.load(base + column, mask=wide, other=0.0)[None, :]
    coefficient = tl.load(coefficients + column, mask=wide, other=0.0)[None, :]
    centre = tl.load(mean + column, mask=wide, other=0.0)[None, :]
    total = tl.where(here, 0.0, above[0])
    deviations = tl.where(here, 0.0, above[0])
    for j in tl.range(0, J, loop_unroll_factor=UNROLLED):
        rows = tl.load(u + (((f * B + b) * J + j) * d)[:, None] + at[None, :], mask=valid, other=0.0)
        at_j = ((f * J + j) * B + b)[:, None] * d + at[None, :]
        s = tl.load(s_in + at_j, mask=here, other=0.0)
        grad = common
        for o in tl.static_range(CLASSES):
            part = tl.load(hopped + ((f * B + b) * CLASSES + o) * J + j, mask=inside, other=0.0)
            grad += part[:, None] * above[o]
        deviations += tl.where(valid, grad * (rows - centre), 0.0)
        du = tl.where(valid, grad * scale + (constant - rows * coefficient), 0.0)
        factor, derivative = squash_factor(tl.sum(s * s, 1), epsilon)
        ds = factor[:, None] * du + (2 * derivative * tl.sum(s * du, 1))[:, None] * s
        tl.store(ds_out + at_j, ds, mask=here)
        total += ds
    deviation_at = (f * tl.num_programs(0) + tl.program_id(0)) * d + at
    tl.store(deviation_sums + deviation_at, tl.sum(deviations, 0), mask=wide)
    if RESIDUAL:
        under = tl.where(divisor > 0, divisor, tl.maximum(size, 1.0))
        tl.store(summed + rows_at, total / under[:, None], mask=here)
    if RESIDUAL and SUMS:
        part_at = (f * parts + tl.program_id(0)) * d + at
        tl.store(sums + part_at, tl.sum(total * (size / under)[:, None], 0), mask=wide)
        mean_of = tl.load(residual + rows_at, mask=here, other=0.0)
        tl.store(hat_sums + part_at, tl.sum(total * mean_of, 0), mask=wide)


class CapsuleGradients(NamedTuple):
    """Gradients of the output capsules over nodes.

    Args:
        ds (Tensor): In s, ``[F, J, B, d]``.
        shared (Tensor, optional): In the mean of the nodes of a graph, for each node, ``[F, B, d]``.
        sums, hat_sums (Tensor, optional): Tables for the sums over the nodes of the gradient of their normalised
            capsules, and of that times these capsules, ``[F, parts, d]``. Their first parts have those of the residual.
        deviation_sums (Tensor): Sums of the gradient of the normalised capsules times their deviations from the mean,
            ``[F, parts, d]``.
    """

    ds: Tensor
    shared: Tensor | None
    sums: Tensor | None
    hat_sums: Tensor | None
    deviation_sums: Tensor


def capsule_gradients(
    above: ClassGradients,
    classes: ClassLevel,
    capsules: NormedCapsules,
    norm: NormGradient,
    level: NodeLevel,
    ptr: Tensor,
    precision: str,
    *,
    residual: bool,
) -> CapsuleGradients:
    """The gradient of s from those of the class level; all tensors are contiguous.

    Args:
        above (ClassGradients): Gradients of the class level.
        classes (ClassLevel): The class level.
        capsules (NormedCapsules): Its input capsules.
        norm (NormGradient): Of their batch normalisation.
        level (NodeLevel): The level that they are the output of.
        ptr (Tensor): First node of each graph and the end of the last, ``[F, B + 1]``.
        precision (str): Of the products that follow.
        residual (bool): Whether the class level adds the mean of its input capsules.
    """
    F, J, B, d = level.s.shape
    tiles, new = triton.cdiv(B, CAPSULE_TILES.graphs), level.s.new_empty
    has_residual, summed = level.residual is not None, level.hopped_sums is not None
    parts = (tiles if has_residual else 0) + _vote_parts(level, precision)
    sums, hat_sums = (new(F, parts, d) if summed else None for _ in range(2))
    shared = new(F, B, d) if has_residual else None
    result = CapsuleGradients(torch.empty_like(level.s), shared, sums, hat_sums, new(F, tiles, d))
    unused = level.s  # must be a valid pointer
    outputs = (unused if tensor is None else tensor for tensor in result)
    _capsules_kernel[(tiles, F)](
        capsules.u, level.s, above.dG, above.ds, classes.hopped, level.residual if has_residual else unused, ptr,
        norm.weight, norm.base, norm.coefficients, norm.mean, *outputs, B, J, d, parts, level.epsilon, level.divisor,
        CLASSES=above.dG.size(1), ABOVE=residual, RESIDUAL=has_residual, SUMS=summed,
        UNROLLED=CAPSULE_TILES.unrolled, R=CAPSULE_TILES.graphs, DP=tile_width(d),
        num_warps=CAPSULE_TILES.warps,
    )  # fmt: skip
    return result


def _vote_parts(level: NodeLevel, precision: str) -> int:
    """Parts of the sums of :func:`vote_gradients`."""
    _, J, B, d = level.s.shape
    return J * int(triton.cdiv(B, VOTE_TILES.options(B, d, precision)["RB"]))


@triton.jit(do_not_specialize=["B", "J", "parts", "before"])
def _votes_kernel(  # type: ignore[no-untyped-def]
    ds, W, G, hopped_sums, dG, sums, hat_sums, B, J, d, parts, before,
    SUMS: tl.constexpr, RB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """RB graphs (program 0) and an output capsule (1) of a replica (2)."""
    f = tl.program_id(2).to(tl.int64)
    capsule = f * J + tl.program_id(1)
    b, at = tl.program_id(0) * RB + tl.arange(0, RB), tl.arange(0, DP)
    inside, wide = b < B, at < d
    here = inside[:, None] & wide[None, :]
    rows_at = capsule * B * d + b[:, None] * d + at[None, :]
    if SUMS:
        share = tl.load(hopped_sums + (f * B + b) * J + tl.program_id(1), mask=inside, other=0.0)
    matrix = W + capsule * d * d
    total = times_rows(ds + capsule * B * d, b * d, inside, matrix, d, d, KB, DP, STAGES, True, PRECISION)
    tl.store(dG + rows_at, total, mask=here)
    if SUMS:
        part = (f * parts + before + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * d + at
        tl.store(sums + part, tl.sum(total * share[:, None], 0), mask=wide)
        tl.store(hat_sums + part, tl.sum(total * tl.load(G + rows_at, mask=here, other=0.0), 0), mask=wide)


def vote_gradients(grads: CapsuleGradients, level: NodeLevel, precision: str) -> Tensor:
    """The gradient of G, ``[F, J, B, d]``; completes the sums of ``grads``.

    Args:
        grads (CapsuleGradients): Of the output capsules.
        level (NodeLevel): Their level.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
    """
    F, J, B, d = level.s.shape
    options, dG = VOTE_TILES.options(B, d, precision), torch.empty_like(level.s)
    tables = level.hopped_sums, grads.sums, grads.hat_sums
    parts = 0 if grads.sums is None else grads.sums.size(1)
    _votes_kernel[(triton.cdiv(B, options["RB"]), J, F)](
        grads.ds, level.weight, level.G, *(dG if tensor is None else tensor for tensor in (tables[0], dG, *tables[1:])),
        B, J, d, parts, parts - _vote_parts(level, precision), SUMS=grads.sums is not None, PRECISION=precision,
        **options,
    )  # fmt: skip
    return dG


@triton.jit(do_not_specialize=["V", "B", "blocks", "tiles"])
def _rows_kernel(  # type: ignore[no-untyped-def]
    u, squares, dhat, extra, factor, weight, base, coefficients, mean, ptr, scale,
    dz, offset_sums, deviation_sums, V, B, d, blocks, tiles, epsilon,
    EXTRA: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """``tiles`` tiles of rows of a replica, whose sums stay in registers until the end."""
    r = (tl.program_id(0) // blocks).to(tl.int64)
    begin = tl.program_id(0) % blocks * tiles * ROWS
    end = tl.minimum(begin + tiles * ROWS, tl.load(ptr + r * (B + 1) + B).to(tl.int32))  # padding is behind
    at = tl.arange(0, DP)
    wide = at < d
    column = r * d + at
    stretch = tl.load(weight + column, mask=wide, other=0.0)
    constant = tl.load(base + column, mask=wide, other=0.0)
    coefficient = tl.load(coefficients + column, mask=wide, other=0.0)
    centre = tl.load(mean + column, mask=wide, other=0.0)
    share = 0.0
    if EXTRA:
        share = tl.load(factor + r)
    if EACH:  # a pointer to one number per replica
        scale = tl.load(scale + r)
    origin = (r * V + begin) * d  # offsets from here on fit into 32 bits
    offset_total = tl.zeros([ROWS, DP], tl.float32)
    deviation_total = tl.zeros([ROWS, DP], tl.float32)
    for first in range(0, end - begin, ROWS):
        row = first + tl.arange(0, ROWS)
        real = row < end - begin
        valid = real[:, None] & wide[None, :]
        offsets = row[:, None] * d + at[None, :]
        values = tl.load(u + origin + offsets, mask=valid, other=0.0)
        grad = tl.load(dhat + origin + offsets, mask=valid, other=0.0)
        further = tl.where(valid, 0.0, values)
        if EXTRA:
            further = tl.load(extra + origin + offsets, mask=valid, other=0.0)
        square = tl.load(squares + r * V + begin + row, mask=real, other=0.0)
        du = grad * stretch[None, :] + (constant[None, :] - values * coefficient[None, :]) + share * further
        du = tl.where(valid, du, 0.0)
        # u = f h. Below, h is so short that its gradient is 0 up to rounding.
        long = square > 1e-18
        f, derivative = squash_factor(tl.where(long, square, 1.0), epsilon)
        along = 2 * derivative * tl.sum(values * du, 1) / (f * f)
        dh = tl.where(long, f, 0.0)[:, None] * du + tl.where(long, along, 0.0)[:, None] * values
        # Where h is positive, the projection was positive and was not dropped.
        grad_z = tl.where(values > 0, dh * scale, 0.0)
        tl.store(dz + origin + offsets, grad_z, mask=valid)
        offset_total += grad_z
        deviation_total += grad * (values - centre[None, :])  # the gradient is 0 where it is not valid
    part = tl.program_id(0).to(tl.int64) * d + at
    tl.store(offset_sums + part, tl.sum(offset_total, 0), mask=wide)
    tl.store(deviation_sums + part, tl.sum(deviation_total, 0), mask=wide)


def row_gradients(
    dhat: Tensor, norm: NormGradient, nodes: NodeRows, ptr: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients from those of the normalised primary capsules down to the projection of the features.

    Args:
        dhat (Tensor): Gradient of the normalised primary capsules, ``[F, V, d]``.
        norm (NormGradient): Of their batch normalisation.
        nodes (NodeRows): The primary capsules.
        ptr (Tensor): First node of each graph and the end of the last, ``[F, B + 1]``.
        epsilon (float): As in :func:`graphcaps.ops.squash`.

    Returns:
        tuple: The gradient of the projection before ReLU ``[F, V, d]``, undefined at padding; its sums over parts of
        the rows, and those of the gradient of the normalised capsules times their deviations from the mean,
        ``[F, parts, d]`` each.
    """
    F, V, d = nodes.u.shape
    width = tile_width(d)
    rows = max(1, ROW_TILES.numbers // width)
    count = triton.cdiv(V, rows)
    tiles = triton.cdiv(count, max(1, ROW_TILES.programs // F))
    blocks = triton.cdiv(count, tiles)
    dz = torch.empty_like(nodes.u)
    offset_sums, deviation_sums = (nodes.u.new_empty(F, blocks, d) for _ in range(2))
    inputs = (nodes.extra, nodes.factor)
    _rows_kernel[(F * blocks,)](
        nodes.u, nodes.squares, dhat, *(nodes.u if tensor is None else tensor for tensor in inputs),
        norm.weight, norm.base, norm.coefficients, norm.mean, ptr, nodes.scale, dz, offset_sums, deviation_sums,
        V, ptr.size(1) - 1, d, blocks, tiles, epsilon,
        EXTRA=nodes.extra is not None, EACH=isinstance(nodes.scale, Tensor), ROWS=rows, DP=width,
        num_warps=ROW_TILES.warps, maxnreg=ROW_TILES.registers,
    )  # fmt: skip
    return dz, offset_sums, deviation_sums
