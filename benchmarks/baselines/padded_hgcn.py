"""HGCN on padded graphs with stored votes, as the published program computes it: a baseline in speed."""

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

_SQUASH_EPSILON = 1e-7
_LOG_EPSILON = 1e-7


def squash_padded(z: Tensor, dim: int = -1) -> Tensor:
    """Squash along an axis, as in the released program."""
    squared = (z**2).sum(dim, keepdim=True)
    return squared / (1 + squared) * (z / torch.sqrt(squared + _SQUASH_EPSILON))


def put_back(rows: Tensor, mask: Tensor) -> Tensor:
    """Scatters the rows of real nodes ``[N, d]`` into ``[B, n, d]``, with 0 at padding.

    The zeros are created on the host and copied to the device, as in the published program: 7 MB for a batch of
    NCI1.
    """
    out = torch.zeros(*mask.shape, rows.size(-1), dtype=rows.dtype).to(rows.device)
    out[mask] = rows
    return out


class MaskedBatchNorm(nn.Module):
    """Torch's batch normalisation of the real rows of ``[B, n, channels]``; padding becomes 0.

    Real rows are gathered and scattered back: two copies, and on a GPU a host synchronisation for their number.
    Differs from :class:`graphcaps.nn.RaggedBatchNorm`: torch rejects a single row in training mode.
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
    """``x W + b`` as a product and an addition, as in the published program."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class DenseGCN(Projection):
    r"""A graph convolution on padded graphs, :math:`\hat A x W + e`, which normalises the adjacency itself.

    Each of the J convolutions of a layer repeats this normalisation: a copy and about three passes over
    ``[B, n, n]`` in addition to its two products.
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
    r"""A capsule layer over stored votes, in the released formulation.

    Equations: see :class:`graphcaps.nn.CapsuleLayer`. Cost, with votes of B·n·J·d numbers (73 MB for a batch of
    NCI1): J convolutions and their backward pass, 4 products each and 6 passes over ``[B, n, n]``; stacking, 2
    passes over the votes; each iteration but the last, 4 passes and one product of 1×d by d×1 per vote, for which
    torch copies the output capsules once per node; the last iteration 3 passes, its backward pass about 5.
    Iterations before the last use detached votes, so nothing is stored for them. The logits start as zeros that are
    copied from the host. The adjacency of the output capsules is computed at every level, also at the last, where it
    is not used.

    Args:
        in_channels (int): Length of an input capsule.
        capsule_dim (int): Length d of an output capsule.
        num_capsules (int): Output capsules J.
        routing_iterations (int): Routing iterations R.
        residual (bool): Whether the mean input capsule is added before the last squash.
        residual_nodes (int, optional): Fixed divisor of the sum over nodes; ``None``: the nodes of each graph.
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
        """Output capsules ``[B, J, d]`` and their adjacency ``[B, J, J]``; ``mask [B, n]`` or ``None``."""
        u = self.norm(u, mask)
        votes = [each.convolve(u, adjacency, mask) for each in self.convolutions]  # type: ignore[operator]
        capsules, c = self._route(torch.stack(votes, 2), self._mean(u, mask) if self.residual else None)
        if mask is not None:
            c = c * mask.unsqueeze(-1)
        return capsules, c.transpose(1, 2) @ adjacency @ c

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


@dataclass(frozen=True, eq=False)
class PaddedOutput:
    """``class_scores [B, O]``, ``class_capsules [B, O, d]``, and the reconstruction loss if ``y`` was passed."""

    class_scores: Tensor
    class_capsules: Tensor
    reconstruction_loss: Tensor | None = None


class PaddedHGCN(nn.Module):
    """HGCN (AAAI 2021, https://arxiv.org/abs/2012.08734) as the published program computes it.

    Equal to the released formulation of :class:`graphcaps.nn.HGCN` in scores, losses and gradients (float64, to
    1e-9; :class:`PaddedTraining` checks this before it is timed). HGCN is ragged and factored; this program is dense.
    Every graph is padded to the largest of the data set, each output capsule has its own graph convolution in a
    Python loop, every vote is stored, and the adjacency is reconstructed as an n×n matrix per graph. It uses
    torch operations only, and no operation of graphcaps.

    Cost for a batch of B graphs padded to n nodes, with J capsules of length d (NCI1: 128, 111, 10, 128; a mean
    graph has 30 nodes, so three quarters of every tensor is padding). Norm and K projections gather the real nodes
    and scatter them back. The first :class:`PaddedCapsules` takes nearly all of the time, the class level little. The
    reconstruction needs two products and about twelve passes over ``[B, n, n]``, and the host reads the number of
    pairs. Small constants (zeros, ones, the diagonal) are copied from the host for every batch. All of this is what
    the published program does.

    Dropout is torch's and draws other random numbers than HGCN, so the two are equal only without dropout.

    Args:
        in_channels (int): Length of a feature row.
        num_classes (int): Classes O.
        capsule_dim (int): Length d of a capsule.
        num_capsules (tuple): Capsules of each hidden level.
        num_factors (int): Factors K.
        routing_iterations (int): Routing iterations R.
        dropout (float): Dropout on the factors.
        residual (bool): Whether the mean input capsule is added to every output capsule.
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
                count,
                routing_iterations=routing_iterations,
                residual=residual,
                residual_nodes=residual_nodes if level == 0 else None,
            )
            for level, count in enumerate((*num_capsules, num_classes))
        )
        self.decoder = nn.Linear(num_classes * capsule_dim, capsule_dim) if reconstruction else None

    @classmethod
    def from_hgcn(cls, model: HGCN) -> PaddedHGCN:
        """Copies sizes, weights, running averages, dtype, device and mode of an HGCN.

        Raises:
            ArgumentError: If the model uses an option that the published program does not have.
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
        for name, expected, valid, got in published:
            if not valid:
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
        padded: dict[str, Any] = dict(self.named_parameters()) | dict(self.named_buffers())
        for k, weight in enumerate(primary.weight.chunk(primary.num_factors, 1)):
            padded[f"factors.{k}.weight"].copy_(weight)
        for k, bias in enumerate(primary.bias.chunk(primary.num_factors)):
            padded[f"factors.{k}.bias"].copy_(bias)
        for level in range(len(self.layers)):
            for name in ("weight", "bias"):
                for j, each in enumerate(state[f"layers.{level}.{name}"]):
                    padded[f"layers.{level}.convolutions.{j}.{name}"].copy_(each)
        for padded_name, hgcn_name in _norms(len(self.layers)):
            for name in ("weight", "bias", "running_mean", "running_var"):
                padded[f"{padded_name}.{name}"].copy_(state[f"{hgcn_name}.{name}"])
        if self.decoder is not None:
            self.decoder.weight.copy_(state["decoder.weight"].T)
            self.decoder.bias.copy_(state["decoder.bias"])

    def by_hgcn_names(self, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """``of`` applied to each parameter, such as its gradient, named and shaped as in HGCN."""
        values = {name: of(parameter) for name, parameter in self.named_parameters()}
        factors = range(len(self.factors))
        by_name = {
            "primary.weight": torch.cat([values[f"factors.{k}.weight"] for k in factors], 1),
            "primary.bias": torch.cat([values[f"factors.{k}.bias"] for k in factors]),
        }
        for level, layer in enumerate(self.layers):
            capsules = range(len(layer.convolutions))  # type: ignore[arg-type]
            for name in ("weight", "bias"):
                each = [values[f"layers.{level}.convolutions.{j}.{name}"] for j in capsules]
                by_name[f"layers.{level}.{name}"] = torch.stack(each)
        for padded_name, hgcn_name in _norms(len(self.layers)):
            by_name |= {f"{hgcn_name}.{name}": values[f"{padded_name}.{name}"] for name in ("weight", "bias")}
        if self.decoder is not None:
            by_name |= {"decoder.weight": values["decoder.weight"].T, "decoder.bias": values["decoder.bias"]}
        return by_name

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
        one_hot = torch.zeros(len(y), self.num_classes, dtype=primary.dtype).to(primary.device)
        kept = class_capsules * one_hot.scatter_(1, y.unsqueeze(1), 1).unsqueeze(2)
        Z = primary + self.decoder(kept.flatten(1).unsqueeze(1)).relu()  # [B, n, d]
        P = _simple(Z @ Z.transpose(1, 2))  # [B, n, n]
        each = -adjacency * (P + _LOG_EPSILON).log() - (1 - adjacency) * (1 - P + _LOG_EPSILON).log()
        count = (mask.sum(1) ** 2).sum()
        column = mask.unsqueeze(2).to(P.dtype)
        each[(1 - column @ column.transpose(1, 2)).bool()] = 0
        return each.sum() / float(count)

    def loss(self, output: PaddedOutput, y: Tensor, *, reconstruction_weight: float = 0.1) -> LossTerms:
        """Margin loss, mean over graphs, plus the weighted reconstruction loss if there is a decoder."""
        T = F.one_hot(y, self.num_classes)
        zero = torch.zeros(1, dtype=output.class_scores.dtype).to(y.device)
        present = torch.max(0.9 - output.class_scores, zero) ** 2
        absent = torch.max(output.class_scores - 0.1, zero) ** 2
        margin = (T * present + 0.5 * (1 - T) * absent).sum(-1).mean()
        if output.reconstruction_loss is None or reconstruction_weight == 0:
            return LossTerms(margin, {"margin": margin})
        total = margin + reconstruction_weight * output.reconstruction_loss
        return LossTerms(total, {"margin": margin, "reconstruction": output.reconstruction_loss})


def _simple(A: Tensor) -> Tensor:
    """Clamps to at most 1 and clears the diagonal; both constants are copied from the host."""
    A = torch.min(A, torch.ones(1, dtype=A.dtype).to(A.device))
    return A.masked_fill_(torch.eye(A.size(1)).bool().to(A.device), 0)


def _norms(levels: int) -> list[tuple[str, str]]:
    """Names of the norms in the padded program and in HGCN."""
    return [("norm", "primary.norm")] + [
        (f"layers.{level}.norm.norm", f"layers.{level}.norm") for level in range(levels)
    ]
