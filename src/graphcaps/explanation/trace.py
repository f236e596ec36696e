"""HGCN's forward pass, level by level, with the routing weights of every iteration.

The results equal those of :meth:`graphcaps.nn.HGCN.forward_batch` (tested). In addition the routing weights of every
iteration are kept, and no gradient flows through them, in either formulation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.nn.capsule_layer import CapsuleLayer
from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.coarsening import clamp_adjacency, coarsen, dense_coarsen
from graphcaps.ops.lengths.lengths import lengths
from graphcaps.ops.propagation.propagation import dense_propagate
from graphcaps.ops.ragged.tiles import sum_tiles, tile_rows, to_tiles
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED
from graphcaps.ops.routing.iterations import routing_assignments, routing_assignments_dense
from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.types import EdgeTable, GraphBatch, Segments

__all__ = [
    "TracedLevel",
    "edge_probability",
    "node_attributions",
    "reference_capsule",
    "reference_features",
    "trace_levels",
]


@dataclass(frozen=True, eq=False)
class TracedLevel:
    """One capsule level of B graphs.

    Args:
        capsules (Tensor): Output capsules with gradient, ``[B, J, d]``.
        rounds (Tensor): Routing weights of every iteration, ``[R, V, J]`` over nodes, ``[R, B, n, J]`` above.
        adjacency (Tensor, optional): Coarse graphs, ``[B, J, J]``.
    """

    capsules: Tensor
    rounds: Tensor
    adjacency: Tensor | None

    @property
    def lengths(self) -> Tensor:
        """Lengths of the capsules, ``[B, J]``."""
        return lengths(self.capsules)


def trace_levels(
    model: HGCN, primary: Tensor, edges: EdgeTable, segments: Segments
) -> tuple[TracedLevel, ...]:
    """Computes all capsule levels; the class level is the last.

    Args:
        model (HGCN): A single model, without leading axes.
        primary (Tensor): Primary capsules, ``[V, d]``.
        edges (EdgeTable): Edges of the batch.
        segments (Segments): Graph of each node.
    """
    lowest, *above = model.layers
    level = _over_nodes(lowest, primary, edges, segments)  # type: ignore[arg-type]
    levels = [level]
    for layer in above:
        assert level.adjacency is not None
        level = _over_capsules(layer, level.capsules, level.adjacency)  # type: ignore[arg-type]
        levels.append(level)
    return tuple(levels)


def _over_nodes(layer: CapsuleLayer, u: Tensor, edges: EdgeTable, segments: Segments) -> TracedLevel:
    hop = layer.hop(u, edges, segments)
    rounds = routing_assignments(
        hop.h, layer.weight, layer.bias, segments, layer.routing_iterations, _epsilon(layer)
    )
    c, tiles = rounds[-1], tile_rows(segments)
    gathered = sum_tiles(to_tiles(c, tiles).mT @ to_tiles(hop.h, tiles), tiles)  # [B, J, d]
    weights = sum_tiles(to_tiles(c, tiles).sum(-2), tiles)  # [B, J]
    mean = None if hop.mean is None else hop.mean.unsqueeze(-2)
    adjacency = coarsen(c, edges, segments) if layer.coarsen else None
    return _level(layer, gathered, weights, mean, rounds, adjacency)


def _over_capsules(layer: CapsuleLayer, u: Tensor, adjacency: Tensor) -> TracedLevel:
    if layer.norm is not None:
        u = layer.norm(u.flatten(-3, -2)).unflatten(-2, u.shape[-3:-1])
    h = dense_propagate(u, adjacency)
    rounds = routing_assignments_dense(h, layer.weight, layer.bias, layer.routing_iterations, _epsilon(layer))
    c = rounds[-1]
    mean = u.mean(-2, keepdim=True) if layer.residual else None
    above = dense_coarsen(c, adjacency) if layer.coarsen else None
    return _level(layer, c.mT @ h, c.sum(-2), mean, rounds, above)


def _level(
    layer: CapsuleLayer,
    gathered: Tensor,
    weights: Tensor,
    mean: Tensor | None,
    rounds: Tensor,
    adjacency: Tensor | None,
) -> TracedLevel:
    """Output capsules from Σ c h ``[B, J, d]`` and Σ c ``[B, J]``, in the layer's formulation."""
    s = torch.einsum("bjd,jde->bje", gathered, layer.weight) + weights.unsqueeze(-1) * layer.bias
    if mean is not None and layer.released:
        s = s + mean
    u = squash(s, _epsilon(layer))
    if mean is not None and not layer.released:
        u = u + mean
    if adjacency is not None and layer.released:
        adjacency = clamp_adjacency(adjacency)
    return TracedLevel(u, rounds, adjacency)


def _epsilon(layer: CapsuleLayer) -> float:
    return RELEASED_EPSILON if layer.released else 0.0


def reference_features(model: HGCN) -> Tensor:
    """Reference features of a node without information, ``[in]``: the mean over training nodes, or zeros.

    The mean is the running mean of the input norm. Zeros are used only without a norm: with one, a column that is
    always 1 in training would be hundreds of standard deviations away from 0.
    """
    norm = model.primary.norm
    if norm is None:
        return next(model.parameters()).new_zeros(model.in_channels)
    return norm.running_mean.detach().clone()


def reference_capsule(model: HGCN) -> Tensor:
    """Reference primary capsule, ``[d]``: the mean over training nodes, or the capsule of the reference features.

    The mean is the running mean of the norm in the first capsule layer.
    """
    norm = model.layers[0].norm
    if isinstance(norm, RaggedBatchNorm):
        return norm.running_mean.detach().clone()
    with torch.no_grad():
        capsule: Tensor = model.primary(reference_features(model).unsqueeze(0)).squeeze(0)
    return capsule


def node_attributions(model: HGCN, primary: Tensor, class_lengths: Tensor, target: Tensor) -> Tensor:
    r"""Attribution of each node to a class: gradient times difference from a reference, ``[V]``.

    .. math:: a_i = \Big\langle \frac{\partial \|u_o\|}{\partial u_i}, u_i - u_\emptyset \Big\rangle

    with primary capsules :math:`u_i`, the class capsule :math:`u_o` of the node's graph and the reference capsule
    :math:`u_\emptyset` (:func:`reference_capsule`). To first order it is the length that the class capsule
    loses when the node's capsule is replaced by the reference and all routing weights are kept.

    Args:
        model (HGCN): The model.
        primary (Tensor): Primary capsules passed to :func:`trace_levels`, with ``requires_grad``, ``[V, d]``.
        class_lengths (Tensor): Lengths of the class level that it returned, ``[B, O]``.
        target (Tensor): Class of each graph, ``[B]``.
    """
    target_lengths = class_lengths.gather(-1, target.unsqueeze(-1)).sum()
    (gradient,) = torch.autograd.grad(target_lengths, primary)
    with torch.no_grad():
        return (gradient * (primary - reference_capsule(model))).sum(-1)


@torch.no_grad()
def edge_probability(
    model: HGCN, primary: Tensor, class_capsules: Tensor, batch: GraphBatch, source: Tensor, target: Tensor
) -> Tensor | None:
    """Edge probability of the decoder given the predicted class, ``[E]``; ``None`` without a decoder."""
    if model.decoder is None:
        return None
    code = model.decoder.code(class_capsules, lengths(class_capsules).argmax(-1))
    z = primary + code[batch.segments.index]
    rule = RELEASED if model.formulation == "released" else PAPER
    return (z[source] * z[target]).sum(-1).clamp(rule.low, rule.high)
