"""HGCN as a padded program with stored votes: what the published figures were made with, as a rival in speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn import HGCN, PrimaryCapsules
from graphcaps.types import LossTerms

__all__ = [
    "DenseGCN",
    "MaskedBatchNorm",
    "PaddedCapsules",
    "PaddedHGCN",
    "PaddedOutput",
    "Projection",
    "put_back",
    "squash_padded",
]


_EPSILON_PADDED_LAYERS = 1e-7


def squash_padded(z: Tensor, dim: int = -1) -> Tensor:
    """Squash of the released program along an axis."""
    squared = (z**2).sum(dim, keepdim=True)
    return squared / (1 + squared) * (z / torch.sqrt(squared + _EPSILON_PADDED_LAYERS))


def put_back(rows: Tensor, mask: Tensor) -> Tensor:
    """Real rows ``[N, d]`` in their places of ``[B, n, d]``, 0 at padding.

    The zeros are made on the host and sent, as in the published program: 7 MB for a batch of NCI1.
    """
    out = torch.zeros(*mask.shape, rows.size(-1), dtype=rows.dtype).to(rows.device)
    out[mask] = rows
    return out


class MaskedBatchNorm(nn.Module):
    """Torch's batch normalisation of the real rows of ``[B, n, channels]``; padding becomes 0.

    Real rows are picked out and put back: two copies, and on a GPU the host waits to learn their number.
    Differs from :class:`graphcaps.nn.RaggedBatchNorm`: torch refuses a single row while training.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            flat: Tensor = self.norm(x.flatten(0, 1))
            return flat.view(x.shape)
        return put_back(self.norm(x[mask]), mask)


class Projection(nn.Module):
    """``x W + b``: a product and an addition, as the published program has it."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class DenseGCN(Projection):
    r"""A graph convolution on padded graphs, :math:`\hat A x W + e` with :math:`\hat A` made anew.

    Each of the J convolutions of a layer is a layer of its own and normalises the adjacency itself: a copy and
    about three passes over ``[B, n, n]`` beside its two products.
    """

    def convolve(self, x: Tensor, adjacency: Tensor, mask: Tensor | None) -> Tensor:
        A = adjacency.clone()
        each = torch.arange(A.size(-1), device=A.device)
        A[:, each, each] = 1
        out = x @ self.weight
        scale = A.sum(-1).clamp(min=1).pow(-0.5)
        A = scale.unsqueeze(-1) * A * scale.unsqueeze(-2)
        out = A @ out + self.bias
        return out if mask is None else out * mask.unsqueeze(-1).to(x.dtype)


class PaddedCapsules(nn.Module):
    r"""One step up the hierarchy over stored votes, in the released formulation.

    As :class:`graphcaps.nn.CapsuleLayer`, which holds the equations. What costs what, with votes of
    B·n·J·d numbers (73 MB for a batch of NCI1): J convolutions and their backward, 4 products each and 6
    passes over ``[B, n, n]``; stacking, 2 passes over the votes; each round but the last 4 passes and one
    product of 1×d by d×1 per vote, for which torch writes the wholes once for every node; the last round 3,
    its backward about 5. Rounds but the last see the votes without gradient, so nothing of them is kept. The
    logits start as zeros on the host that are sent. The adjacency of the wholes is computed at every level,
    also at the last, where nobody asks for it.

    Args:
        in_channels (int): Length of a part.
        capsule_dim (int): Length d of a whole.
        num_capsules (int): Wholes J.
        routing_iterations (int): Rounds R.
        residual (bool): Whether the mean part is added before the last squash.
        residual_nodes (int, optional): Fixed divisor of the sum over nodes; ``None``: each graph's own count.
    """

    def __init__(
        self,
        in_channels: int,
        capsule_dim: int,
        num_capsules: int,
        *,
        routing_iterations: int,
        residual: bool,
        residual_nodes: int | None,
    ) -> None:
        super().__init__()
        self.routing_iterations, self.residual = routing_iterations, residual
        self.residual_nodes = residual_nodes
        self.norm = MaskedBatchNorm(in_channels)
        self.convolutions = nn.ModuleList(DenseGCN(in_channels, capsule_dim) for _ in range(num_capsules))

    def forward(self, u: Tensor, adjacency: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Wholes ``[B, J, d]`` and their adjacency ``[B, J, J]``; ``mask [B, n]``, ``None`` for no padding."""
        u = self.norm(u, mask)
        votes = [each.convolve(u, adjacency, mask) for each in self.convolutions]  # type: ignore[operator]
        wholes, c = self._route(torch.stack(votes, 2), self._mean(u, mask) if self.residual else None)
        if mask is not None:
            c = c * mask.unsqueeze(-1)
        return wholes, c.transpose(1, 2) @ adjacency @ c

    def _mean(self, u: Tensor, mask: Tensor | None) -> Tensor:
        """GA(u), ``[B, 1, 1, d, 1]``; padding rows of ``u`` are 0."""
        total = u.sum(1)[:, None, None, :, None]
        if self.residual_nodes is not None:
            return total / self.residual_nodes
        return total / (u.size(1) if mask is None else mask.sum(1).view(-1, 1, 1, 1, 1))

    def _route(self, votes: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor]:
        votes = votes.unsqueeze(-1)  # [B, n, J, d, 1]
        frozen = votes.detach()
        logits = torch.zeros(*votes.shape[:3], 1, 1, dtype=votes.dtype).to(votes.device)
        for _ in range(self.routing_iterations - 1):
            c = logits.softmax(2)
            u = squash_padded((c * frozen).sum(1, keepdim=True), -2)  # [B, 1, J, d, 1]
            logits = logits + frozen.transpose(-1, -2) @ u
        c = logits.softmax(2)
        s = (c * votes).sum(1, keepdim=True)
        u = squash_padded(s if mean is None else s + mean, -2)
        return u.squeeze(-1).squeeze(1), c.squeeze(-1).squeeze(-1)


_EPSILON = 1e-7


@dataclass(frozen=True, eq=False)
class PaddedOutput:
    """``class_scores [B, O]``, ``class_capsules [B, O, d]``, and the reconstruction loss where ``y`` was given."""

    class_scores: Tensor
    class_capsules: Tensor
    reconstruction_loss: Tensor | None = None


class PaddedHGCN(nn.Module):
    """HGCN (AAAI 2021, https://arxiv.org/abs/2012.08734) the way the published program computes it.

    The released formulation of :class:`graphcaps.nn.HGCN`, which holds the equations, and equal to it in
    scores, losses and gradients (float64, to 1e-9; :class:`PaddedTraining` checks it before it is timed).
    Where that program is ragged and factored, this one is dense: every graph is padded to the largest of the
    data set, each whole has a graph convolution of its own in a Python loop, each vote is stored and routing
    walks over them, and the adjacency is reconstructed as an n×n matrix per graph. It uses torch's own
    operations and nothing of ours.

    What costs what, for a batch of B graphs padded to n nodes, J wholes of length d (NCI1: 128, 111, 10, 128;
    a mean graph has 30 nodes, so three quarters of every tensor is padding): norm and K projections of the
    real nodes, picked out and put back; the first :class:`PaddedCapsules`, nearly everything; the class level,
    little; the reconstruction, two products and about twelve passes over ``[B, n, n]``, and the host reads
    the number of pairs. Small constants (zeros, ones, the diagonal) are made on the host and sent for
    every batch. All of that is what the published program does.

    Dropout is torch's: with it the numbers dropped differ from HGCN's, whose streams belong to replicas, and
    only without it are the two equal.

    Args:
        in_channels (int): Length of a feature row.
        num_classes (int): Classes O.
        capsule_dim (int): Length d of a capsule.
        num_capsules (tuple): Wholes of each hidden level.
        num_factors (int): Factors K.
        routing_iterations (int): Rounds R.
        dropout (float): Dropout on the factors.
        residual (bool): Whether the mean part is added to every whole.
        residual_nodes (int, optional): Fixed divisor of the residual over nodes.
        reconstruction (bool): Whether there is a decoder.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        capsule_dim: int = 128,
        num_capsules: tuple[int, ...] = (10,),
        num_factors: int = 4,
        routing_iterations: int = 3,
        dropout: float = 0.0,
        residual: bool = True,
        residual_nodes: int | None = None,
        reconstruction: bool = True,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.norm = nn.BatchNorm1d(in_channels)
        width = capsule_dim // num_factors
        self.factors = nn.ModuleList(Projection(in_channels, width) for _ in range(num_factors))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            PaddedCapsules(
                capsule_dim,
                capsule_dim,
                wholes,
                routing_iterations=routing_iterations,
                residual=residual,
                residual_nodes=residual_nodes if level == 0 else None,
            )
            for level, wholes in enumerate((*num_capsules, num_classes))
        )
        self.decoder = nn.Linear(num_classes * capsule_dim, capsule_dim) if reconstruction else None

    @classmethod
    def from_hgcn(cls, model: HGCN) -> PaddedHGCN:
        """The same model: sizes, weights, running averages, dtype, device and mode of one of ours.

        Raises:
            ArgumentError: If it is something that the published program has no switch for.
        """
        primary = model.primary
        layers: Any = model.layers
        first = layers[0]
        published = (
            ("formulation", "be 'released'", model.formulation == "released", model.formulation),
            ("lead", "be ()", model.lead == (), model.lead),
            ("disentangle", "be True", isinstance(primary, PrimaryCapsules), False),
            ("trunk", "be None", first.trunk is None, first.trunk),
            (
                "factor_squash",
                "be 'joined'",
                getattr(primary, "factor_squash", "joined") == "joined",
                "'separate'",
            ),
        )
        for name, expected, right, got in published:
            if not right:
                raise ArgumentError("PaddedHGCN", name, expected, got)
        assert isinstance(primary, PrimaryCapsules)
        padded = cls(
            model.in_channels,
            model.num_classes,
            capsule_dim=primary.capsule_dim,
            num_capsules=tuple(layer.num_capsules for layer in layers[:-1]),
            num_factors=primary.num_factors,
            routing_iterations=first.routing_iterations,
            dropout=primary.dropout.p,
            residual=first.residual,
            residual_nodes=first.residual_nodes,
            reconstruction=model.decoder is not None,
        ).to(primary.weight)
        padded._copy(model, primary)
        return padded.train(model.training)

    @torch.no_grad()
    def _copy(self, model: HGCN, primary: PrimaryCapsules) -> None:
        state = dict(model.named_parameters()) | dict(model.named_buffers())
        mine: dict[str, Any] = dict(self.named_parameters()) | dict(self.named_buffers())
        for k, weight in enumerate(primary.weight.chunk(primary.num_factors, 1)):
            mine[f"factors.{k}.weight"].copy_(weight)
        for k, bias in enumerate(primary.bias.chunk(primary.num_factors)):
            mine[f"factors.{k}.bias"].copy_(bias)
        for level in range(len(self.layers)):
            for name in ("weight", "bias"):
                for j, each in enumerate(state[f"layers.{level}.{name}"]):
                    mine[f"layers.{level}.convolutions.{j}.{name}"].copy_(each)
        for own, theirs in _norms(len(self.layers)):
            for name in ("weight", "bias", "running_mean", "running_var"):
                mine[f"{own}.{name}"].copy_(state[f"{theirs}.{name}"])
        if self.decoder is not None:
            self.decoder.weight.copy_(state["decoder.weight"].T)
            self.decoder.bias.copy_(state["decoder.bias"])

    def by_hgcn_names(self, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """What ``of`` gives for each parameter, such as its gradient, named and shaped as in HGCN."""
        mine = {name: of(parameter) for name, parameter in self.named_parameters()}
        factors = range(len(self.factors))
        found = {
            "primary.weight": torch.cat([mine[f"factors.{k}.weight"] for k in factors], 1),
            "primary.bias": torch.cat([mine[f"factors.{k}.bias"] for k in factors]),
        }
        for level, layer in enumerate(self.layers):
            wholes = range(len(layer.convolutions))  # type: ignore[arg-type]
            for name in ("weight", "bias"):
                each = [mine[f"layers.{level}.convolutions.{j}.{name}"] for j in wholes]
                found[f"layers.{level}.{name}"] = torch.stack(each)
        for own, theirs in _norms(len(self.layers)):
            found |= {f"{theirs}.{name}": mine[f"{own}.{name}"] for name in ("weight", "bias")}
        if self.decoder is not None:
            found |= {"decoder.weight": mine["decoder.weight"].T, "decoder.bias": mine["decoder.bias"]}
        return found

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor, y: Tensor | None = None) -> PaddedOutput:
        """Classifies padded graphs.

        Args:
            x (Tensor): Features, ``[B, n, in]``.
            adjacency (Tensor): ``[B, n, n]``, 0 at padding.
            mask (Tensor): True at real nodes, ``[B, n]``.
            y (Tensor, optional): Classes ``[B]``; with them the reconstruction loss is computed.
        """
        rows = self.norm(x[mask])
        joined = torch.cat([self.dropout(factor(rows).relu()) for factor in self.factors], -1)
        u = primary = squash_padded(put_back(joined, mask))
        first, *above = self.layers
        u, A = first(u, adjacency, mask)
        for layer in above:
            u, A = layer(u, _simple(A), None)
        loss = None
        if y is not None and self.decoder is not None:
            loss = self._reconstruction(primary, u, y, adjacency, mask)
        return PaddedOutput((u**2).sum(2).sqrt(), u, loss)

    def _reconstruction(
        self, primary: Tensor, class_capsules: Tensor, y: Tensor, adjacency: Tensor, mask: Tensor
    ) -> Tensor:
        assert self.decoder is not None
        own = torch.zeros(len(y), self.num_classes, dtype=primary.dtype).to(primary.device)
        kept = class_capsules * own.scatter_(1, y.unsqueeze(1), 1).unsqueeze(2)
        Z = primary + self.decoder(kept.flatten(1).unsqueeze(1)).relu()  # [B, n, d]
        P = _simple(Z @ Z.transpose(1, 2))  # [B, n, n]
        each = -adjacency * (P + _EPSILON).log() - (1 - adjacency) * (1 - P + _EPSILON).log()
        count = (mask.sum(1) ** 2).sum()
        column = mask.unsqueeze(2).to(P.dtype)
        each[(1 - column @ column.transpose(1, 2)).bool()] = 0
        return each.sum() / float(count)

    def loss(self, output: PaddedOutput, y: Tensor, *, reconstruction_weight: float = 0.1) -> LossTerms:
        """Margin loss, mean over graphs, plus the weighted reconstruction loss, where there is one."""
        T = F.one_hot(y, self.num_classes)
        none = torch.zeros(1, dtype=output.class_scores.dtype).to(y.device)
        present = torch.max(0.9 - output.class_scores, none) ** 2
        absent = torch.max(output.class_scores - 0.1, none) ** 2
        margin = (T * present + 0.5 * (1 - T) * absent).sum(-1).mean()
        if output.reconstruction_loss is None or reconstruction_weight == 0:
            return LossTerms(margin, {"margin": margin})
        total = margin + reconstruction_weight * output.reconstruction_loss
        return LossTerms(total, {"margin": margin, "reconstruction": output.reconstruction_loss})


def _simple(A: Tensor) -> Tensor:
    """At most 1, and 0 on the diagonal; the bound and the diagonal are made on the host and sent."""
    A = torch.min(A, torch.ones(1, dtype=A.dtype).to(A.device))
    return A.masked_fill_(torch.eye(A.size(1)).bool().to(A.device), 0)


def _norms(levels: int) -> list[tuple[str, str]]:
    """Names of the norms here and in HGCN."""
    return [("norm", "primary.norm")] + [
        (f"layers.{level}.norm.norm", f"layers.{level}.norm") for level in range(levels)
    ]
