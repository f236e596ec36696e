r"""Pooling of nodes into clusters by a soft assignment, and the losses that shape the assignment.

An assignment :math:`S` has one row per node, which sums to 1, and one column per cluster. The pooled graph has the
features :math:`S^\top X` and the adjacency :math:`S^\top A S`. All losses of DiffPool and MinCutPool follow from sums
of k × k numbers per graph, so that no n × n matrix is stored:

.. math:: \|A - S S^\top\|_F^2 = \|A\|_F^2 - 2 \, \mathrm{tr}(S^\top A S) + \|S^\top S\|_F^2

Functions take the nodes of a ragged batch, ``[*lead, V, …]`` with :class:`graphcaps.types.Segments`, or coarse graphs
of n nodes each, ``[*lead, B, n, …]`` without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphcaps.ops.autocast import full_precision
from graphcaps.ops.propagation.propagation import degrees
from graphcaps.ops.ragged.tiles import segment_product, segment_sum
from graphcaps.types import EdgeTable, Segments, ShapeRepr

__all__ = [
    "SoftPooling",
    "assignment_entropy",
    "cut_loss",
    "edge_norm",
    "link_loss",
    "normalise_coarse",
    "orthogonality_loss",
    "soft_pool",
]

_SMALLEST = 1e-15
"""Added to probabilities before a logarithm, and to square roots of degrees, as in torch-geometric."""


@dataclass(frozen=True, repr=False, eq=False)
class SoftPooling(ShapeRepr):
    """The pooled graphs of :func:`soft_pool`.

    Args:
        x (Tensor): Features of the clusters, ``[*lead, B, k, d]``.
        adjacency (Tensor): Adjacency of the clusters, ``[*lead, B, k, k]``; its diagonal has the edges inside them.
        overlap (Tensor): SᵀS, ``[*lead, B, k, k]``; its trace is n for an assignment of zeros and ones.
    """

    x: Tensor
    adjacency: Tensor
    overlap: Tensor


@full_precision
def soft_pool(
    x: Tensor, assignment: Tensor, neighbours: Tensor, segments: Segments | None = None
) -> SoftPooling:
    """Pools nodes into k clusters: SᵀX, Sᵀ(AS) and SᵀS, in one product per graph.

    Args:
        x (Tensor): Features X, ``[*lead, V, d]`` or ``[*lead, B, n, d]``.
        assignment (Tensor): S, with k columns.
        neighbours (Tensor): AS, of the same shape; :func:`graphcaps.ops.neighbour_sum` of ``assignment``.
        segments (Segments, optional): Graph of each row of a ragged batch. (default: coarse graphs)
    """
    d, k = x.size(-1), assignment.size(-1)
    right = torch.cat([x, neighbours, assignment], -1)
    pooled = assignment.mT @ right if segments is None else segment_product(assignment, right, segments)
    return SoftPooling(*pooled.split([d, k, k], -1))


def edge_norm(edges: EdgeTable, segments: Segments, dtype: torch.dtype) -> Tensor:
    """Squared Frobenius norm of the adjacency of each graph, ``[*lead, B]``: the sum of all squared weights."""
    if edges.weight is not None:
        pairs = edges.pairs
        if pairs is not None and pairs.weight is not None:
            pairs = replace(pairs, weight=pairs.weight.square())
        edges = replace(edges, weight=edges.weight.square(), pairs=pairs)
    return segment_sum(degrees(edges).to(dtype).unsqueeze(-1), segments).squeeze(-1)


@full_precision
def link_loss(pooled: SoftPooling, edge_norm: Tensor, sizes: Tensor | int) -> Tensor:
    r"""How far the assignment is from predicting the edges.

    .. math:: \frac{1}{n^2} \|A - S S^\top\|_F

    Args:
        pooled (SoftPooling): Pooled graphs.
        edge_norm (Tensor): :math:`\|A\|_F^2`, ``[*lead, B]``.
        sizes (Tensor or int): Number of nodes n of each graph.

    Returns:
        Tensor: One number per graph, ``[*lead, B]``; 0 without nodes. That of one graph is the link loss of
        :func:`torch_geometric.nn.dense_diff_pool`.
    """
    square = edge_norm - 2 * _trace(pooled.adjacency) + pooled.overlap.square().sum((-2, -1))
    # Every real graph has a positive distance, because A has zeros on the diagonal and S Sᵀ has not.
    distance = square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()
    if isinstance(sizes, int):
        return distance / max(sizes, 1) ** 2
    return (distance / sizes.to(square.dtype).clamp_min(1).square()).masked_fill(sizes == 0, 0)


@full_precision
def assignment_entropy(assignment: Tensor, segments: Segments | None = None) -> Tensor:
    r"""Mean entropy of the rows of the assignment of each graph, ``[*lead, B]``; 0 without nodes.

    .. math:: \frac{1}{n} \sum_i - \sum_c S_{ic} \log S_{ic}
    """
    entropy = -(assignment * (assignment + _SMALLEST).log()).sum(-1)
    if segments is None:
        return entropy.mean(-1)
    total = segment_sum(entropy.unsqueeze(-1), segments).squeeze(-1)
    return total / segments.sizes.to(total.dtype).clamp_min(1)


@full_precision
def cut_loss(
    pooled: SoftPooling, assignment: Tensor, degree: Tensor, segments: Segments | None = None
) -> Tensor:
    r"""The share of edges inside clusters, negative.

    .. math:: - \frac{\mathrm{tr}(S^\top A S)}{\mathrm{tr}(S^\top D S)}, \quad D_{ii} = \sum_j A_{ij}

    Args:
        pooled (SoftPooling): Pooled graphs.
        assignment (Tensor): S.
        degree (Tensor): The diagonal of D, ``[*lead, V]`` or ``[*lead, B, n]``.
        segments (Segments, optional): Graph of each row of a ragged batch. (default: coarse graphs)

    Returns:
        Tensor: One number per graph, ``[*lead, B]``; 0 for a graph without edges, where the quotient is undefined.
    """
    volume = assignment.square().sum(-1) * degree.to(assignment.dtype)
    total = volume.sum(-1) if segments is None else segment_sum(volume.unsqueeze(-1), segments).squeeze(-1)
    some = total > 0
    return -(_trace(pooled.adjacency) / total.masked_fill(~some, 1)).masked_fill(~some, 0)


@full_precision
def orthogonality_loss(overlap: Tensor) -> Tensor:
    r"""How far clusters are from being disjoint and of equal size, ``[*lead, B, k, k]`` to ``[*lead, B]``.

    .. math:: \left\| \frac{S^\top S}{\|S^\top S\|_F} - \frac{I}{\sqrt k} \right\|_F

    It is 0 for a graph without nodes, and where the distance is 0 its gradient is 0.
    """
    k = overlap.size(-1)
    square = overlap.square().sum((-2, -1), keepdim=True)
    some = square > 0
    equal = torch.eye(k, dtype=overlap.dtype, device=overlap.device) / math.sqrt(k)
    difference = overlap / square.masked_fill(~some, 1).sqrt() - equal
    distance = difference.square().sum((-2, -1))
    positive = (distance > 0) & some[..., 0, 0]  # the gradient of a square root at 0 is infinite
    return distance.masked_fill(~positive, 1).sqrt().masked_fill(~positive, 0)


@full_precision
def normalise_coarse(adjacency: Tensor) -> Tensor:
    r"""The coarse adjacency of MinCutPool, ``[*lead, B, k, k]``.

    .. math:: D^{-1/2} (A - \mathrm{diag}(A)) D^{-1/2}, \quad D_{ii} = \sum_{j \ne i} A_{ij}
    """
    diagonal = torch.eye(adjacency.size(-1), dtype=torch.bool, device=adjacency.device)
    adjacency = adjacency.masked_fill(diagonal, 0)
    degree = adjacency.sum(-1)
    some = degree > 0  # the gradient of a square root at 0 is infinite
    scale = (degree.masked_fill(~some, 1).sqrt() + _SMALLEST).reciprocal().masked_fill(~some, 0)
    return adjacency * scale.unsqueeze(-1) * scale.unsqueeze(-2)


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
