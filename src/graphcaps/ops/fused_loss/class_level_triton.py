r"""The class level of an HGCN, with margin loss and decoder code, in three kernels, and its gradient in one.

With the n normalised input capsules :math:`\hat u_k` of a graph and :math:`h = \hat A \hat u`, the sums of routing are
sums of input capsules with weights :math:`g_j = \hat A^\top c_j`: :math:`G_j = \sum_k g_{kj} \hat u_k`. The agreement
of :mod:`graphcaps.ops.routing.agreement_triton` then takes an n × n matrix and a vector per class, without
products with weights between iterations:

.. math::
    K_j = \hat U M_j \hat U^\top, \quad z_j = \hat U w_j, \quad
    |s_j|^2 = g_j^\top K_j g_j + 2 m_j\, g_j \cdot z_j + m_j^2 |e_j|^2 \\
    b_j \leftarrow b_j + f(|s_j|^2) \big(\hat A (K_j g_j + m_j z_j) + g_j \cdot z_j + m_j |e_j|^2\big)

The first kernel computes these, the second one has a program per graph for all iterations and G of the last one. The
third one multiplies by the weights and computes class capsules, lengths, the gradient of the margin loss in them, and
the code of the decoder; it has a program per class and tile of graphs, and so has the gradient. Assignments are
constants for the gradient, which therefore is g times that of G. The sums that the batch normalisation of the input
capsules needs follow from sums over graphs, as in :mod:`graphcaps.ops.fused_loss.node_level_gradient_triton`.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment,misc"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops._triton.row_products import times_rows
from graphcaps.ops.fused_loss.loss_terms_triton import count_pairs
from graphcaps.ops.routing.agreement_triton import Agreement
from graphcaps.ops.routing.capsule_update_triton import squash_factor

__all__ = [
    "ClassGradients",
    "ClassLevel",
    "ClassWeights",
    "CodeSums",
    "Decoder",
    "MarginOptions",
    "NormedCapsules",
    "class_level",
    "class_level_gradients",
    "gram_matrices",
    "hop_matrices",
]

_GRAPHS = 16
"""Graphs of a tile, as many as the smallest product has rows."""
_LABELS = 128
"""Labels and sizes of graphs that are counted at a time."""
_MATRIX_NUMBERS = 2048
"""Numbers of a program that normalises adjacency matrices."""


class NormedCapsules(NamedTuple):
    """Input capsules and their batch normalisation.

    Args:
        u (Tensor): Capsules, ``[F, B, n, d]``.
        mean, var (Tensor): Statistics of the capsules of graphs with nodes, ``[F, d]``.
        weight, bias (Tensor): γ and β, ``[F, d]``.
        epsilon (float): Added to the variance.
    """

    u: Tensor
    mean: Tensor
    var: Tensor
    weight: Tensor
    bias: Tensor
    epsilon: float


class ClassWeights(NamedTuple):
    """Votes for the class capsules.

    Args:
        weight (Tensor): W, ``[F, O, d, d]``.
        bias (Tensor): e, ``[F, O, d]``.
        agreement (Agreement): Of both.
        iterations (int): Routing iterations R, at least 2.
        residual (bool): Whether the mean input capsule is added before the last squash.
    """

    weight: Tensor
    bias: Tensor
    agreement: Agreement
    iterations: int
    residual: bool


class Decoder(NamedTuple):
    """Weight ``[F, O · d, d]`` and bias ``[F, d]`` of the decoder."""

    weight: Tensor
    bias: Tensor


class MarginOptions(NamedTuple):
    """Classes and margins, as in :func:`graphcaps.ops.margin_loss.margin_loss.margin_loss`.

    ``y [F, B]`` is from -1, no class, to O - 1. The code of a graph is that of the nearest class.
    """

    y: Tensor
    upper: float | Tensor
    lower: float | Tensor
    absent_weight: float


class ClassLevel(NamedTuple):
    """Results of the class level.

    Args:
        scores (Tensor): Lengths of the class capsules, ``[F, B, O]``.
        capsules (Tensor): Class capsules, ``[F, B, O, d]``.
        s (Tensor): The same before the squash, ``[F, O, B, d]``.
        G, m (Tensor): Sums of the last iteration, ``[F, O, B, d]`` and ``[F, O, B]``.
        hopped (Tensor): g of the last iteration, ``[F, B, O, n]``.
        hopped_sums (Tensor): Its sums over the input capsules, ``[F, B, O]``.
        average (Tensor): The mean input capsule, normalised, ``[F, B, d]``.
        margin (Tensor, optional): Terms of the margin loss, divided by the number of labelled graphs, ``[F, B, O]``.
        dscores (Tensor, optional): Gradient of the margin loss in the scores, ``[F, B, O]``.
        code (Tensor, optional): Code of the decoder, ``[F, B, d]``.
    """

    scores: Tensor
    capsules: Tensor
    s: Tensor
    G: Tensor
    m: Tensor
    hopped: Tensor
    hopped_sums: Tensor
    average: Tensor
    margin: Tensor | None
    dscores: Tensor | None
    code: Tensor | None


class ClassGradients(NamedTuple):
    """Gradients of the class level.

    Args:
        ds, dG (Tensor): In s and G, ``[F, O, B, d]``.
        sums, hat_sums (Tensor): Sums over the input capsules of the gradient of their normalised values, and of that
            times these values, in parts, ``[F, parts, d]``.
        dcode (Tensor, optional): In the code before its ReLU, ``[F, B, d]``.
        factor (Tensor, optional): Weight of the sum over all pairs of nodes in the loss of a replica, ``[F]``.
    """

    ds: Tensor
    dG: Tensor
    sums: Tensor
    hat_sums: Tensor
    dcode: Tensor | None
    factor: Tensor | None


@dataclass(frozen=True)
class _Tiles:
    """Launch options; what is best depends on the GPU.

    Args:
        step (int): Rows of a weight in a step of a product.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program; 8 where a product needs more registers.
    """

    step: int = 32
    stages: int = 4
    warps: int = 8

    def options(self, d: int, precision: str) -> dict[str, Any]:
        width = tile_width(d)
        simple = precision != "tf32x3" and d % 16 == 0  # others need registers
        return {
            **{"R": _GRAPHS, "DP": width, "KB": min(self.step if simple else 16, width)},
            **{"STAGES": self.stages if simple else 2, "PRECISION": precision},
            "num_warps": self.warps if simple else 8,
        }


TILES, GRADIENT_TILES = _Tiles(), _Tiles(warps=4)
"""Of the class capsules, and of the gradient."""


_ROUTING_WARPS = {16: 2, 32: 4, 64: 8}
"""Warps of a program of the iterations by the number of input capsules, rounded up, of up to three classes."""
_ROUTING_WIDTH = 64
"""Numbers of a capsule that it reads at a time."""


@dataclass(frozen=True)
class GramTiles:
    """How programs compute the matrices K; what is best depends on the GPU.

    Args:
        rows (int): Rows of a program, capsules of one or more graphs. With 64 and four or more warps, wgmma is used.
        step (int): Columns of M in a step.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program.
    """

    rows: int = 64
    step: int = 32
    stages: int = 2
    warps: int = 4

    def options(self, d: int, precision: str) -> dict[str, Any]:
        simple = precision != "tf32x3" and d % 32 == 0  # others need registers
        return {
            **{"ROWS": self.rows, "DP": tile_width(d), "KB": self.step if simple else 16},
            **{"STAGES": self.stages, "PRECISION": precision},
            "num_warps": self.warps if simple else 2 * self.warps,
        }


GRAM_TILES = GramTiles()


def _routing_options(d: int, n: int, classes: int) -> dict[str, int]:
    """Launch options of the iterations; the fewer warps, the fewer sums need barriers, and the more registers."""
    N, width = (tile_width(size) for size in (n, d))
    sums = tile_width(classes + 1)
    warps = _ROUTING_WARPS[N] * (1 if classes <= 3 else 2)
    return {"N": N, "SUMS": sums, "WIDTH": min(width, _ROUTING_WIDTH), "num_warps": warps}


@triton.jit(do_not_specialize=["count", "n"])
def _hop_matrices_kernel(  # type: ignore[no-untyped-def]
    adjacency, hops, count, n, GRAPHS: tl.constexpr, N: tl.constexpr
):
    """Of GRAPHS graphs; entries are clamped, and those of the diagonal are not read."""
    graph = tl.program_id(0).to(tl.int64) * GRAPHS + tl.arange(0, GRAPHS)[:, None, None]
    i, k = tl.arange(0, N)[None, :, None], tl.arange(0, N)[None, None, :]
    other = (graph < count) & (i < n) & (k < n) & (i != k)
    A = tl.load(adjacency + (graph * n + i) * n + k, mask=other, other=0.0)
    across = tl.load(adjacency + (graph * n + k) * n + i, mask=other, other=0.0)
    A, across = tl.where(A > 1, 1.0, A), tl.where(across > 1, 1.0, across)  # NaN stays
    rows, columns = tl.sum(A, 2) + 1, tl.sum(across, 1) + 1
    rows, columns = tl.where(rows < 1, 1.0, rows), tl.where(columns < 1, 1.0, columns)
    hop = tl.where(i == k, 1.0, A) * tl.rsqrt(rows)[:, :, None] * tl.rsqrt(columns)[:, None, :]
    tl.store(hops + (graph * n + k) * n + i, hop, mask=(graph < count) & (i < n) & (k < n))


def hop_matrices(adjacency: Tensor) -> Tensor:
    r"""Transposes of :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`, ``[F, B, n, n]``.

    Args:
        adjacency (Tensor): CᵀAC of the level below, ``[F, B, n, n]``. As in the released program, A has its entries up
            to 1, and zeros on the diagonal.
    """
    n, adjacency = adjacency.size(-1), adjacency.contiguous()
    hops, count, N = torch.empty_like(adjacency), adjacency.numel() // (n * n), tile_width(n)
    graphs = max(1, _MATRIX_NUMBERS // (N * N))
    _hop_matrices_kernel[(triton.cdiv(count, graphs),)](
        adjacency, hops, count, n, GRAPHS=graphs, N=N, num_warps=4
    )
    return hops


@triton.jit
def _count_labels(y, B, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    total = tl.zeros([BLOCK], tl.int32)
    for first in range(0, B, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += (tl.load(y + at, mask=at < B, other=-1) >= 0).to(tl.int32)
    return tl.sum(total, 0)


@triton.jit
def _affine(values, mean, var, gamma, beta, at, wide, epsilon):  # type: ignore[no-untyped-def]
    """Rows normalised by the statistics of their columns ``at``."""
    factor = tl.rsqrt(tl.load(var + at, mask=wide, other=1.0) + epsilon)
    factor *= tl.load(gamma + at, mask=wide, other=0.0)
    centre = tl.load(mean + at, mask=wide, other=0.0)
    shift = tl.load(beta + at, mask=wide, other=0.0)
    return (values - centre[None, :]) * factor[None, :] + shift[None, :]


@triton.jit(do_not_specialize=["B", "n"])
def _gram_kernel(  # type: ignore[no-untyped-def]
    u, mean, var, gamma, beta, matrix, vector, gram, z, B, n, d, epsilon,
    CLASSES: tl.constexpr, ROWS: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """K and z of as many graphs (program 0) as have ROWS capsules, and a class (1) of a replica (2).

    The product of all capsules of a program with each other has the matrices of its graphs as blocks on its diagonal.
    Those of graphs without nodes are computed, too; the iterations do not use them.
    """
    f = tl.program_id(2).to(tl.int64)
    index = f * CLASSES + tl.program_id(1)
    row, at = tl.arange(0, ROWS), tl.arange(0, DP)
    graphs = ROWS // n
    base = tl.program_id(0) * graphs
    graph, k = row // n, row % n
    inside = (graph < graphs) & (base + graph < B)
    wide = at < d
    u += (f * B + base) * n * d
    mean += f * d
    var += f * d
    gamma += f * d
    beta += f * d
    matrix += index * d * d  # symmetric
    y = tl.zeros([ROWS, DP], tl.float32)
    for first in tl.range(0, d, KB, num_stages=STAGES):
        c = first + tl.arange(0, KB)
        deep = c < d
        left = tl.load(u + row[:, None] * d + c[None, :], mask=inside[:, None] & deep[None, :], other=0.0)
        left = _affine(left, mean, var, gamma, beta, c, deep, epsilon)
        right = tl.load(matrix + at[None, :] * d + c[:, None], mask=wide[None, :] & deep[:, None], other=0.0)
        y = product(left, right, y, PRECISION)
    valid = inside[:, None] & wide[None, :]
    hat = tl.load(u + row[:, None] * d + at[None, :], mask=valid, other=0.0)
    hat = tl.where(valid, _affine(hat, mean, var, gamma, beta, at, wide, epsilon), 0.0)
    lift = tl.load(vector + index * d + at, mask=wide, other=0.0)
    graph_at = index * B + base + graph
    tl.store(z + graph_at * n + k, tl.sum(hat * lift[None, :], 1), mask=inside)
    total = product(y, tl.trans(hat), tl.zeros([ROWS, ROWS], tl.float32), PRECISION)
    stored = (graph[:, None] == graph[None, :]) & inside[:, None]
    tl.store(gram + (graph_at * n + k)[:, None] * n + k[None, :], total, mask=stored)


@triton.jit
def _normalised(u, k, capsule, real, first, mean, var, gamma, beta, d, epsilon, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Columns from ``first`` on of the normalised capsules k of a graph, 0 for a graph without nodes."""
    at = first + tl.arange(0, WIDTH)
    wide = at < d
    valid = (capsule & real)[:, None] & wide[None, :]
    rows = tl.load(u + k[:, None] * d + at[None, :], mask=valid, other=0.0)
    return tl.where(valid, _affine(rows, mean, var, gamma, beta, at, wide, epsilon), 0.0)


@triton.jit(do_not_specialize=["B", "n", "iterations"])
def _routing_kernel(  # type: ignore[no-untyped-def]
    u, gram, z_in, hops, ptr, mean, var, gamma, beta, square, G, m_out, hopped, hopped_sums, average,
    B, n, d, iterations, norm_epsilon, epsilon,
    CLASSES: tl.constexpr, N: tl.constexpr, SUMS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """All iterations of a graph (program 0) of a replica (1); without nodes, all that it stores is 0."""
    b = tl.program_id(0)
    f = tl.program_id(1).to(tl.int64)
    k = tl.arange(0, N)
    begin = tl.load(ptr + f * (B + 1) + b)
    real = tl.load(ptr + f * (B + 1) + b + 1) > begin
    capsule = k < n
    graph = f * B + b
    u += graph * n * d
    mean += f * d
    var += f * d
    gamma += f * d
    beta += f * d
    pairs = capsule[:, None] & capsule[None, :]
    hops += graph * n * n
    across = tl.load(hops + k[:, None] * n + k[None, :], mask=pairs, other=0.0)  # Â[i, k] at [k, i]
    hop = tl.load(hops + k[None, :] * n + k[:, None], mask=pairs, other=0.0)
    K = ()
    z = ()
    squares = ()
    for j in tl.static_range(CLASSES):
        index = f * CLASSES + j
        first_row = (index * B + b) * n
        K += (tl.load(gram + (first_row + k)[:, None] * n + k[None, :], mask=pairs, other=0.0),)
        z += (tl.load(z_in + first_row + k, mask=capsule, other=0.0),)
        squares += (tl.load(square + index),)
    # The first iteration: c = 1 / O.
    g = ()
    mass = ()
    logits = ()
    for _ in tl.static_range(CLASSES):
        g += (tl.sum(across, 1) * (1.0 / CLASSES),)
        mass += (n * (1.0 / CLASSES),)
        logits += (tl.zeros([N], tl.float32),)
    for _ in range(1, iterations):
        changed = ()
        for j in tl.static_range(CLASSES):
            agreeing = tl.sum(K[j] * g[j][None, :], 1) + mass[j] * z[j]
            along = tl.sum(g[j] * z[j], 0)
            squared = tl.sum(g[j] * agreeing, 0) + mass[j] * (along + mass[j] * squares[j])
            scale, _ = squash_factor(tl.where(squared < 0, 0.0, squared), epsilon)
            change = tl.sum(hop * agreeing[None, :], 1) + (along + mass[j] * squares[j])
            changed += (logits[j] + scale * change,)
        logits = changed
        most = logits[0]
        for j in tl.static_range(1, CLASSES):
            most = tl.maximum(most, logits[j])
        whole = tl.zeros([N], tl.float32)
        for j in tl.static_range(CLASSES):
            whole += tl.exp(logits[j] - most)
        g = ()
        mass = ()
        for j in tl.static_range(CLASSES):
            assigned = tl.where(capsule & real, tl.exp(logits[j] - most) / whole, 0.0)
            g += (tl.sum(across * assigned[None, :], 1),)
            mass += (tl.sum(assigned, 0),)
    # G of all classes and the mean capsule, as one product with a row for each of them.
    part = tl.arange(0, SUMS)
    weights = tl.where((part == CLASSES)[:, None] & capsule[None, :], 1.0 / n, 0.0)
    for j in tl.static_range(CLASSES):
        tl.store(hopped + (graph * CLASSES + j) * n + k, g[j], mask=capsule)
        tl.store(hopped_sums + graph * CLASSES + j, tl.sum(g[j], 0))
        tl.store(m_out + (f * CLASSES + j) * B + b, mass[j])
        weights += tl.where((part == j)[:, None], g[j][None, :], 0.0)
    for first in tl.range(0, d, WIDTH, num_stages=1):
        hat = _normalised(u, k, capsule, real, first, mean, var, gamma, beta, d, norm_epsilon, WIDTH)
        at = first + tl.arange(0, WIDTH)
        sums = tl.dot(weights, hat, input_precision="tf32x3")
        to_G = ((f * CLASSES + part) * B + b) * d
        inside = (at < d)[None, :]
        tl.store(G + to_G[:, None] + at[None, :], sums, mask=(part < CLASSES)[:, None] & inside)
        to_mean = average + graph * d + (part * 0)[:, None] + at[None, :]
        tl.store(to_mean, sums, mask=(part == CLASSES)[:, None] & inside)


@triton.jit
def _class_of_code(label, classes):  # type: ignore[no-untyped-def]
    """The class whose capsule is decoded: every graph needs one, also without a label."""
    return tl.minimum(tl.maximum(label, 0), classes - 1)


@triton.jit(do_not_specialize=["B"])
def _capsules_kernel(  # type: ignore[no-untyped-def]
    G, m_in, average, W, bias, code_weight, code_bias, y, upper, lower,
    scores, capsules, s_out, margin, dscores, code, B, d, epsilon, absent,
    RESIDUAL: tl.constexpr, LABELS: tl.constexpr, CODE: tl.constexpr, EACH: tl.constexpr,
    COUNTED: tl.constexpr, R: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """R graphs (program 0) and a class (1) of a replica (2)."""
    o = tl.program_id(1)
    classes = tl.num_programs(1)
    f = tl.program_id(2).to(tl.int64)
    b = tl.program_id(0) * R + tl.arange(0, R)
    inside = b < B
    at = tl.arange(0, DP)
    wide = at < d
    here = inside[:, None] & wide[None, :]
    rows_at = b[:, None] * d + at[None, :]
    row = f * classes + o
    s = times_rows(G + row * B * d, b * d, inside, W + row * d * d, d, d, KB, DP, STAGES, False, PRECISION)
    # Through global memory, so that the tiles that follow do not have the layout of a product, in which a sum over a
    # row needs barriers.
    s_out += row * B * d
    tl.store(s_out + rows_at, s, mask=here)
    tl.debug_barrier()
    s = tl.load(s_out + rows_at, mask=here, other=0.0)
    mass = tl.load(m_in + row * B + b, mask=inside, other=0.0)
    s += mass[:, None] * tl.load(bias + row * d + at, mask=wide, other=0.0)[None, :]
    if RESIDUAL:
        s += tl.load(average + f * B * d + rows_at, mask=here, other=0.0)
    squared = tl.sum(s * s, 1)
    scale, _ = squash_factor(squared, epsilon)
    tl.store(s_out + rows_at, s, mask=here)
    each = (f * B + b) * classes + o
    tl.store(capsules + each[:, None] * d + at[None, :], s * scale[:, None], mask=here)
    score = tl.sqrt(squared) * scale
    tl.store(scores + each, score, mask=inside)
    if LABELS:
        label = tl.load(y + f * B + b, mask=inside, other=-1)
        counted = 1.0 / tl.maximum(_count_labels(y + f * B, B, COUNTED), 1).to(tl.float32)
        if EACH:  # pointers to one number per replica
            upper = tl.load(upper + f)
            lower = tl.load(lower + f)
        # Comparisons, not maximum, so that NaN stays NaN.
        below, above = upper - score, score - lower
        below, above = tl.where(below < 0, 0.0, below), tl.where(above < 0, 0.0, above)
        true, labelled = label == o, label >= 0
        loss = tl.where(labelled, tl.where(true, below * below, absent * above * above), 0.0)
        gradient = tl.where(true, -2.0 * below, 2.0 * absent * above) * counted
        tl.store(margin + each, loss * counted, mask=inside)
        tl.store(dscores + each, tl.where(labelled, gradient, 0.0), mask=inside)
        if CODE:
            own = inside & (_class_of_code(label, classes) == o)
            tl.debug_barrier()  # the product reads what was just stored
            total = times_rows(
                capsules, each * d, own, code_weight + row * d * d, d, d, KB, DP, STAGES, False, PRECISION
            )
            total += tl.load(code_bias + f * d + at, mask=wide, other=0.0)[None, :]
            decoded = tl.where(total <= 0, 0.0, total)  # NaN stays
            tl.store(code + f * B * d + rows_at, decoded, mask=own[:, None] & wide[None, :])


class GramMatrices(NamedTuple):
    """K ``[F, O, B, n, n]`` and z ``[F, O, B, n]`` of the input capsules, see above."""

    matrix: Tensor
    vector: Tensor


def gram_matrices(inputs: NormedCapsules, agreement: Agreement, precision: str) -> GramMatrices:
    """What the iterations of routing know of the input capsules; all tensors are contiguous.

    Args:
        inputs (NormedCapsules): Capsules of the level below.
        agreement (Agreement): Of the votes for the class capsules.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
    """
    F, B, n, d = inputs.u.shape
    O = agreement.vector.size(1)  # noqa: E741
    result = GramMatrices(inputs.u.new_empty(F, O, B, n, n), inputs.u.new_empty(F, O, B, n))
    options = GRAM_TILES.options(d, precision)
    _gram_kernel[(triton.cdiv(B, options["ROWS"] // n), O, F)](
        inputs.u, inputs.mean, inputs.var, inputs.weight, inputs.bias, agreement.matrix, agreement.vector, *result,
        B, n, d, inputs.epsilon, CLASSES=O, **options,
    )  # fmt: skip
    return result


def class_level(
    inputs: NormedCapsules,
    gram: GramMatrices,
    hops: Tensor,
    ptr: Tensor,
    weights: ClassWeights,
    epsilon: float,
    precision: str,
    *,
    margin: MarginOptions | None = None,
    decoder: Decoder | None = None,
) -> ClassLevel:
    """Class capsules of every graph; all tensors are contiguous.

    Args:
        inputs (NormedCapsules): Capsules of the level below.
        gram (GramMatrices): From :func:`gram_matrices`.
        hops (Tensor): From :func:`hop_matrices`.
        ptr (Tensor): First node of each graph and the end of the last, ``[F, B + 1]``; graphs without nodes have
            input capsules 0.
        weights (ClassWeights): Votes.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
        margin (MarginOptions, optional): If the margin loss is computed.
        decoder (Decoder, optional): If the code is computed, of the classes of ``margin``, which it needs.
    """
    F, B, n, d = inputs.u.shape
    O = weights.weight.size(1)  # noqa: E741
    assert decoder is None or margin is not None
    new = inputs.u.new_empty
    level = ClassLevel(
        new(F, B, O), new(F, B, O, d), new(F, O, B, d), new(F, O, B, d), new(F, O, B), new(F, B, O, n),
        new(F, B, O), new(F, B, d), None if margin is None else new(F, B, O), None if margin is None else new(F, B, O),
        None if decoder is None else new(F, B, d),
    )  # fmt: skip
    _routing_kernel[(B, F)](
        inputs.u, *gram, hops, ptr, inputs.mean, inputs.var, inputs.weight, inputs.bias, weights.agreement.square,
        level.G, level.m, level.hopped, level.hopped_sums, level.average,
        B, n, d, weights.iterations, inputs.epsilon, epsilon, CLASSES=O, **_routing_options(d, n, O),
    )  # fmt: skip
    unused = level.scores  # must be a valid pointer
    upper: float | Tensor = 0.0
    lower: float | Tensor = 0.0
    y, absent = ptr, 0.0
    if margin is not None:
        y, upper, lower, absent = margin
    outputs = level.scores, level.capsules, level.s, level.margin, level.dscores, level.code
    _capsules_kernel[(triton.cdiv(B, _GRAPHS), O, F)](
        level.G, level.m, level.average, weights.weight, weights.bias, *(decoder or (unused, unused)), y, upper, lower,
        *(unused if tensor is None else tensor for tensor in outputs), B, d, epsilon, absent,
        RESIDUAL=weights.residual, LABELS=margin is not None, CODE=decoder is not None,
        EACH=isinstance(upper, Tensor), COUNTED=_LABELS, **TILES.options(d, precision),
    )  # fmt: skip
    return level


@triton.jit(do_not_specialize=["B", "tiles", "height"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    ptr, W, s_in, G, average, hopped_sums, dscores, y, code, code_sums, code_weight, share,
    ds_out, dG_out, sums, hat_sums, dcode, factor_out, B, d, tiles, height, epsilon,
    RESIDUAL: tl.constexpr, CODE: tl.constexpr, EACH: tl.constexpr,
    COUNTED: tl.constexpr, R: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """R graphs (program 0) and a class (1) of a replica (2)."""
    o = tl.program_id(1)
    classes = tl.num_programs(1)
    f = tl.program_id(2).to(tl.int64)
    b = tl.program_id(0) * R + tl.arange(0, R)
    inside = b < B
    at = tl.arange(0, DP)
    wide = at < d
    here = inside[:, None] & wide[None, :]
    rows_at = b[:, None] * d + at[None, :]
    row = f * classes + o
    each = (f * B + b) * classes + o
    s_in += row * B * d
    G += row * B * d
    ds_out += row * B * d
    dG_out += row * B * d
    s = tl.load(s_in + rows_at, mask=here, other=0.0)
    squared = tl.sum(s * s, 1)
    along = tl.load(dscores + each, mask=inside, other=0.0)
    # Along the capsule; not `squared > 0`, so that the gradient of a NaN is NaN.
    along = tl.where(squared == 0, 0.0, along * tl.rsqrt(tl.where(squared == 0, 1.0, squared)))
    dv = along[:, None] * s
    if CODE:
        # The gradient of the code is a sum over the nodes of a graph, stored as sums over its tiles.
        if EACH:
            share = tl.load(share + f)
        factor = share / tl.maximum(count_pairs(ptr + f * (B + 1), B, COUNTED), 1.0)
        if (tl.program_id(0) == 0) & (o == 0):
            tl.store(factor_out + f, factor)
        own = inside & (_class_of_code(tl.load(y + f * B + b, mask=inside, other=-1), classes) == o)
        begin = tl.load(ptr + f * (B + 1) + b, mask=own, other=0).to(tl.int32)
        size = tl.load(ptr + f * (B + 1) + b + 1, mask=own, other=0).to(tl.int32) - begin
        first_tile, count = begin // height + b, (size + height - 1) // height
        total = tl.zeros([R, DP], tl.float32)
        for t in range(0, tl.max(count, 0)):
            rows = (f * tiles + first_tile + t) * d
            total += tl.load(
                code_sums + rows[:, None] + at[None, :], mask=(t < count)[:, None] & wide[None, :], other=0.0
            )
        decoded = own[:, None] & wide[None, :]
        after = tl.load(code + f * B * d + rows_at, mask=decoded, other=0.0)
        dcode += f * B * d
        tl.store(dcode + rows_at, tl.where(after <= 0, 0.0, total * factor), mask=decoded)  # NaN stays
        tl.debug_barrier()  # the product reads what was just stored
        of_code = times_rows(
            dcode, b * d, own, code_weight + row * d * d, d, d, KB, DP, STAGES, True, PRECISION
        )
        # As in the forward pass; this memory is written again only after it was read.
        tl.store(dG_out + rows_at, of_code, mask=decoded)
        tl.debug_barrier()
        dv += tl.load(dG_out + rows_at, mask=decoded, other=0.0)  # of other classes 0, whatever the weight
    scale, derivative = squash_factor(squared, epsilon)
    ds = scale[:, None] * dv + (2 * derivative * tl.sum(s * dv, 1))[:, None] * s
    tl.store(ds_out + rows_at, ds, mask=here)
    tl.debug_barrier()
    dG = times_rows(ds_out, b * d, inside, W + row * d * d, d, d, KB, DP, STAGES, True, PRECISION)
    tl.store(dG_out + rows_at, dG, mask=here)
    tl.debug_barrier()
    dG = tl.load(dG_out + rows_at, mask=here, other=0.0)
    first = tl.load(hopped_sums + each, mask=inside, other=0.0)[:, None] * dG
    second = dG * tl.load(G + rows_at, mask=here, other=0.0)
    if RESIDUAL:
        first += ds
        second += ds * tl.load(average + f * B * d + rows_at, mask=here, other=0.0)
    part = (row * tl.num_programs(0) + tl.program_id(0)) * d + at
    tl.store(sums + part, tl.sum(first, 0), mask=wide)
    tl.store(hat_sums + part, tl.sum(second, 0), mask=wide)


class CodeSums(NamedTuple):
    """The gradient of the reconstruction loss in the code, without the factor of the average.

    Args:
        sums (Tensor): Sums over tiles of nodes, ``[F, tiles, d]``; those of graph b are from tile ``ptr[b] // height +
            b`` on.
        height (int): Nodes of a tile.
        weight (float or Tensor): Weight of the loss; one per replica, ``[F]``, as a tensor.
    """

    sums: Tensor
    height: int
    weight: float | Tensor


def class_level_gradients(
    level: ClassLevel,
    ptr: Tensor,
    weights: ClassWeights,
    epsilon: float,
    precision: str,
    margin: MarginOptions,
    decoder: Decoder | None = None,
    code_sums: CodeSums | None = None,
) -> ClassGradients:
    """Gradients of the losses up to the sums of the input capsules; arguments as in :func:`class_level`.

    Args:
        code_sums (CodeSums, optional): Gradient in the code, with a decoder.
    """
    F, O, B, d = level.s.shape  # noqa: E741
    assert level.dscores is not None
    tiles, new = triton.cdiv(B, _GRAPHS), level.s.new_empty
    with_code = decoder is not None and code_sums is not None
    result = ClassGradients(
        torch.empty_like(level.s), torch.empty_like(level.s), new(F, O * tiles, d), new(F, O * tiles, d),
        new(F, B, d) if with_code else None, new(F) if with_code else None,
    )  # fmt: skip
    unused = level.s  # must be a valid pointer
    share: float | Tensor = 0.0
    code, sums, code_weight, num_sums, height = unused, unused, unused, 0, 1
    if decoder is not None and code_sums is not None and level.code is not None:
        code, sums, code_weight = level.code, code_sums.sums, decoder.weight
        num_sums, height, share = code_sums.sums.size(1), code_sums.height, code_sums.weight
    outputs = (unused if tensor is None else tensor for tensor in result)
    _backward_kernel[(tiles, O, F)](
        ptr, weights.weight, level.s, level.G, level.average, level.hopped_sums, level.dscores, margin.y,
        code, sums, code_weight, share, *outputs, B, d, num_sums, height, epsilon,
        RESIDUAL=weights.residual, CODE=with_code, EACH=isinstance(share, Tensor), COUNTED=_LABELS,
        **GRADIENT_TILES.options(d, precision),
    )  # fmt: skip
    return result
