"""Reconstruction loss from the full n×n matrix of every graph: the reference implementation of the tiled form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphcaps.ops.propagation.propagation import to_edge_index
from graphcaps.types import EdgeTable, Segments

__all__ = ["PAPER", "RELEASED", "PairRule", "pair_weights", "reconstruction_loss_naive"]


@dataclass(frozen=True)
class PairRule:
    """How a product of two node vectors becomes a probability, and how pairs are averaged.

    Args:
        low, high (float): Bounds of the probability.
        epsilon (float): Added inside the logarithms.
        zero_diagonal (bool): Whether a node's product with itself counts as 0.
        average (str): ``"pairs"`` divides by Σn² over the batch, ``"graphs"`` is the mean over graphs of
            each graph's own mean over its n² pairs.
    """

    low: float
    high: float
    epsilon: float
    zero_diagonal: bool
    average: Literal["pairs", "graphs"]


RELEASED = PairRule(0.0, 1.0, 1e-7, True, "pairs")
"""The rule of the released program."""
PAPER = PairRule(1e-7, 1 - 1e-7, 0.0, False, "graphs")
"""The paper's rule, with bounds that keep the logarithms finite."""


def pair_weights(segments: Segments, rule: PairRule, dtype: torch.dtype) -> Tensor:
    """Weight of one ordered pair of nodes of each graph, ``[*lead, B]``; 0 for padding graphs."""
    pairs = segments.sizes.to(dtype).square()
    if rule.average == "pairs":
        return (1 / pairs.sum(-1, keepdim=True).clamp_min(1)).expand_as(pairs)
    real = (pairs > 0).to(dtype)
    return real / (pairs.clamp_min(1) * real.sum(-1, keepdim=True).clamp_min(1))


def reconstruction_loss_naive(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule = RELEASED
) -> Tensor:
    """Same arguments and result as :func:`graphcaps.ops.reconstruction_loss`, in n² memory."""
    *lead, V, d = z.shape
    index = segments.index.reshape(-1, V)
    replica = torch.arange(index.size(0), device=z.device).unsqueeze(-1)
    graph = (index + replica * (segments.num_graphs + 1)).reshape(-1)
    real = (index < segments.num_graphs).reshape(-1)
    flat = z.reshape(-1, d).masked_fill(~real.unsqueeze(-1), 0)
    same = (graph.unsqueeze(0) == graph.unsqueeze(1)) & real.unsqueeze(0) & real.unsqueeze(1)
    A = torch.zeros(flat.size(0), flat.size(0), dtype=z.dtype, device=z.device)
    A[tuple(to_edge_index(edges))] = 1

    P = (flat @ flat.T).clamp(rule.low, rule.high)
    if rule.zero_diagonal:
        P = P - torch.diag(P.diagonal())
    likelihood = A * (P + rule.epsilon).log() + (1 - A) * (1 - P + rule.epsilon).log()
    weight = torch.nn.functional.pad(pair_weights(segments, rule, z.dtype), (0, 1)).reshape(-1)[graph]
    rows = (likelihood * same).sum(-1) * weight
    return -rows.reshape(*lead, V).sum(-1)
