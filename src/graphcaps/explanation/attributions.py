"""Scores of nodes and edges for a class, from a traced forward pass of the model.

:meth:`graphcaps.nn.HGCN.forward_batch` with ``trace=True`` computes what the functions of this module take.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.nn.hgcn import HGCN
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED
from graphcaps.types import GraphBatch, HGCNOutput

__all__ = [
    "compares_with_average",
    "edge_probability",
    "node_attributions",
    "reference_capsule",
    "reference_features",
]


def reference_features(model: HGCN) -> Tensor:
    """Reference features of a node without information, ``[in]``: the mean over training nodes, or zeros.

    The mean is the running mean of the input norm. Zeros are used only without a norm: with one, a column that is
    always 1 in training would be hundreds of standard deviations away from 0.
    """
    norm = model.primary.norm
    if norm is None:
        return next(model.parameters()).new_zeros(model.in_channels)
    return norm.running_mean.detach().clone()


def compares_with_average(model: HGCN) -> bool:
    """Whether the reference capsule is the mean over training nodes, else that of a node whose features are zero."""
    return isinstance(model.layers[0].norm, RaggedBatchNorm)


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


def node_attributions(model: HGCN, output: HGCNOutput, target: Tensor) -> Tensor:
    r"""Attribution of each node to a class: gradient times difference from a reference, ``[V]``.

    .. math:: a_i = \Big\langle \frac{\partial \|u_o\|}{\partial u_i}, u_i - u_\emptyset \Big\rangle

    with primary capsules :math:`u_i`, the class capsule :math:`u_o` of the node's graph and the reference capsule
    :math:`u_\emptyset` (:func:`reference_capsule`). To first order it is the length that the class capsule
    loses when the node's capsule is replaced by the reference and all routing weights are kept.

    Args:
        model (HGCN): The model.
        output (HGCNOutput): Its output with a trace, computed with gradients enabled.
        target (Tensor): Class of each graph, ``[B]``.
    """
    target_lengths = output.class_scores.gather(-1, target.unsqueeze(-1)).sum()
    (gradient,) = torch.autograd.grad(target_lengths, output.primary)
    with torch.no_grad():
        return (gradient * (output.primary - reference_capsule(model))).sum(-1)


@torch.no_grad()
def edge_probability(
    model: HGCN, output: HGCNOutput, batch: GraphBatch, source: Tensor, target: Tensor
) -> Tensor | None:
    """Edge probability of the decoder given the predicted class, ``[E]``; ``None`` without a decoder."""
    if model.decoder is None:
        return None
    code = model.decoder.code(output.class_capsules, output.class_scores.argmax(-1))
    graph = batch.segments.index.clamp_max(batch.num_graphs - 1)  # padding rows have no edges
    z = output.primary + code[graph]
    rule = RELEASED if model.formulation == "released" else PAPER
    return (z[source] * z[target]).sum(-1).clamp(rule.low, rule.high)
