"""A dense, padded reference implementation of HGCN, for tests only.

Every graph is padded to the largest one, all votes are stored, each output capsule has its graph convolution in
a Python loop, and the adjacency is reconstructed as an n×n matrix per graph. It takes the weights of a
:class:`graphcaps.nn.HGCN` and the constructor arguments. It shares no code with the model and derives norms and
residuals from the arguments alone, so that a part missing from the model is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphcaps.nn import HGCN
from tests.graphs import Graphs


@dataclass
class DenseResult:
    class_scores: Tensor
    capsules: list[Tensor]
    assignments: list[Tensor]
    adjacencies: list[Tensor]
    margin: Tensor
    reconstruction: Tensor | None


def _squash(z: Tensor, released: bool) -> Tensor:
    squared = (z * z).sum(-1, keepdim=True)
    if released:
        return squared / (1 + squared) * z / torch.sqrt(squared + 1e-7)
    length = squared.clamp_min(1e-300).sqrt()
    return squared / (1 + squared) * z / length


def _batch_norm(x: Tensor, mask: Tensor, norm: torch.nn.Module, released: bool) -> Tensor:
    """Batch normalisation of the real rows of ``[B, n, d]`` by ``torch.nn.BatchNorm1d``; padding becomes zero."""
    if not released:
        return x
    layer = torch.nn.BatchNorm1d(x.size(-1)).to(x.dtype)
    layer.running_mean, layer.running_var = norm.running_mean.clone(), norm.running_var.clone()
    layer.train(norm.training)
    layer.weight, layer.bias = norm.weight, norm.bias
    out = torch.zeros_like(x)
    return out.masked_scatter(mask.unsqueeze(-1), layer(x[mask]))


def _graph_convolution(x: Tensor, A: Tensor, weight: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
    A_loops = A + torch.eye(A.size(-1), dtype=A.dtype)
    scale = A_loops.sum(-1).clamp(min=1).pow(-0.5)
    A_hat = scale.unsqueeze(-1) * A_loops * scale.unsqueeze(-2)
    return (A_hat @ (x @ weight) + bias) * mask.unsqueeze(-1)


def _capsule_layer(
    layer: torch.nn.Module, u: Tensor, A: Tensor, mask: Tensor, divisor: Tensor, J: int, settings: _Settings
):
    released = settings.released
    u = _batch_norm(u, mask, layer.norm, released)
    residual = settings.residual and u.size(-1) == settings.capsule_dim
    votes = torch.stack(
        [_graph_convolution(u, A, layer.weight[j], layer.bias[j], mask) for j in range(J)], 2
    )  # [B, n, J, d]
    mean = (u * mask.unsqueeze(-1)).sum(1, keepdim=True) / divisor
    b = votes.new_zeros(votes.shape[:-1])
    for iteration in range(settings.routing_iterations):
        last = iteration == settings.routing_iterations - 1
        c = b.softmax(-1)
        v = votes if last or not released else votes.detach()
        s = ((c.detach() if released else c).unsqueeze(-1) * v).sum(1)
        if last and released and residual:
            s = s + mean
        u_next = _squash(s, released)
        b = b + (v * u_next.unsqueeze(1)).sum(-1)
    c = c * mask.unsqueeze(-1)
    if released:
        c = c.detach()
    elif residual:
        u_next = u_next + mean
    coarse = c.transpose(1, 2) @ A @ c
    if released:
        coarse = coarse.clamp(max=1) * (1 - torch.eye(coarse.size(-1), dtype=A.dtype))
    return u_next, c, coarse


@dataclass
class _Settings:
    """Arguments of the model; the defaults stand here and are not read from the model."""

    capsule_dim: int = 8
    num_capsules: tuple[int, ...] = (4,)
    num_factors: int = 2
    routing_iterations: int = 3
    residual: bool = True
    residual_nodes: int | None = None
    class_residual: bool = True
    disentangle: bool = True
    reconstruction: bool = True
    formulation: str = "released"
    factor_squash: str = "joined"

    @property
    def released(self) -> bool:
        return self.formulation == "released"


def dense_hgcn(model: HGCN, graphs: Graphs, **arguments: Any) -> DenseResult:
    settings = _Settings(**arguments)
    released = settings.released
    sizes = graphs.sizes
    B, n = len(sizes), int(sizes.max())
    mask = torch.arange(n) < sizes.unsqueeze(-1)
    row = torch.arange(len(graphs.x)) - F.pad(sizes.cumsum(0), (1, 0))[graphs.batch]
    x = graphs.x.new_zeros(B, n, graphs.x.size(-1))
    x[graphs.batch, row] = graphs.x
    A = graphs.x.new_zeros(B, n, n)
    source, target = graphs.edge_index
    A[graphs.batch[source], row[source], row[target]] = 1

    primary = model.primary
    u = _batch_norm(x, mask, primary.norm, released)
    if settings.disentangle:
        width = settings.capsule_dim // settings.num_factors
        factors = []
        for k in range(settings.num_factors):  # one projection per factor
            part = slice(k * width, (k + 1) * width)
            if released:
                factors.append((u @ primary.weight[:, part] + primary.bias[part]).relu())
            else:
                factors.append((u @ primary.weight[:, part]).relu() + primary.bias[part])
        if settings.factor_squash == "separate":
            factors = [_squash(z, released) / len(factors) ** 0.5 for z in factors]
            u = torch.cat(factors, -1)
        else:
            u = _squash(torch.cat(factors, -1), released)
    else:
        u = _squash(u, released)
    u = u * mask.unsqueeze(-1)
    primary_capsules = u

    node_counts = sizes.to(x.dtype).reshape(B, 1, 1)
    residual_nodes = settings.residual_nodes
    divisor = (
        torch.full_like(node_counts, float(residual_nodes)) if residual_nodes and released else node_counts
    )
    assignments, adjacencies, capsules = [], [], []
    levels = (*settings.num_capsules, model.num_classes)
    assert len(model.layers) == len(levels)
    for layer, J in zip(model.layers, levels, strict=True):
        A_below = adjacencies[-1] if capsules else A
        if len(capsules) == len(settings.num_capsules):  # the class level
            settings = replace(settings, residual=settings.residual and settings.class_residual)
        u, c, A_next = _capsule_layer(layer, u, A_below, mask, divisor, J, settings)
        mask = torch.ones(u.shape[:2], dtype=torch.bool)
        divisor = torch.full_like(node_counts, float(u.size(1)))
        capsules.append(u)
        assignments.append(c)
        adjacencies.append(A_next)
    lengths = (u * u).sum(-1).sqrt()

    T = F.one_hot(graphs.y, model.num_classes).to(x.dtype)
    margin = (
        (T * (0.9 - lengths).clamp(min=0) ** 2 + 0.5 * (1 - T) * (lengths - 0.1).clamp(min=0) ** 2)
        .sum(-1)
        .mean()
    )
    reconstruction = None
    if settings.reconstruction:
        selected = (u * T.unsqueeze(-1)).reshape(B, -1)
        code = selected @ model.decoder.weight + model.decoder.bias
        Z = primary_capsules + (code.relu() if released else code).unsqueeze(1)
        P = Z @ Z.transpose(1, 2)
        pairs = (torch.arange(n) < sizes.unsqueeze(-1)).to(x.dtype)
        pairs = pairs.unsqueeze(-1) * pairs.unsqueeze(-2)
        if released:
            P = P.clamp(max=1) * (1 - torch.eye(n, dtype=x.dtype))
            entropy = A * (P.clamp(min=0) + 1e-7).log() + (1 - A) * (1 - P.clamp(min=0) + 1e-7).log()
            reconstruction = -(entropy * pairs).sum() / (sizes**2).sum()
        else:
            P = P.clamp(1e-7, 1 - 1e-7)
            entropy = A * P.log() + (1 - A) * (1 - P).log()
            reconstruction = -((entropy * pairs).sum((1, 2)) / sizes**2).mean()
    return DenseResult(lengths, capsules, assignments, adjacencies, margin, reconstruction)
