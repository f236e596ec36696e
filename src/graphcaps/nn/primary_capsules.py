"""Primary capsules: projections of node features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.graph_layer import row_mask
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.activation.activation import BiasPosition, activate, relu_with_bias
from graphcaps.ops.activation.hashed_dropout import apply_dropout
from graphcaps.ops.linear import fold_norm, matmul_rows
from graphcaps.ops.projection.projection import (
    feature_statistics,
    project,
    projected_capsules,
    projects_with_norm,
    projects_without_gather,
)
from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.types import EdgeTable, FeatureRows, Segments

__all__ = ["FactorSquash", "Formulation", "InputCapsules", "PrimaryCapsules"]

Formulation = Literal["released", "paper"]
FactorSquash = Literal["joined", "separate"]


class PrimaryCapsules(nn.Module):
    r"""Projects node features onto K factors and squashes them into one capsule per node.

    Disentangled graph capsules of HGCN (AAAI 2021, Eq. 2-3, https://arxiv.org/abs/2012.08734):

    .. math::
        z_{i,k} = \sigma(W_k^\top x_i) + e_k, \quad u_i = \mathrm{squash}([z_{i,1}, \dots, z_{i,K}])

    with :math:`\sigma` = ReLU and K projections of width d / K. In the released formulation
    :math:`z_{i,k} = \mathrm{ReLU}(W_k^\top \mathrm{BatchNorm}(x_i) + e_k)`. Dropout is applied to the factors before
    they are concatenated.

    Concatenated and squashed as one vector, K projections equal one projection of width d: K affects only the bound of
    the initial weights, which depends on d / K. With ``factor_squash="separate"`` (an extension) each factor is
    squashed separately and divided by √K, so that the capsule stays shorter than 1.

    Args:
        in_channels (int): Number of input features.
        capsule_dim (int): Length d of a capsule, a multiple of ``num_factors``.
        num_factors (int): Number of factors K. (default: 4)
        dropout (float): Dropout probability of the factors. (default: 0.0)
        factor_squash (str): ``"joined"`` as published, or ``"separate"``. (default: "joined")
        formulation (str): ``"released"`` or ``"paper"``. (default: "released")
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: Capsules ``[*lead, V, d]``.

    Example:
        >>> PrimaryCapsules(5, 16)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        in_channels: int,
        capsule_dim: int,
        *,
        num_factors: int = 4,
        dropout: float = 0.0,
        factor_squash: FactorSquash = "joined",
        formulation: Formulation = "released",
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        if num_factors < 1 or capsule_dim % num_factors:
            raise ArgumentError(
                "PrimaryCapsules",
                "num_factors",
                f"divide 'capsule_dim', {capsule_dim}, without remainder",
                num_factors,
            )
        if factor_squash not in ("joined", "separate"):
            raise ArgumentError(
                "PrimaryCapsules", "factor_squash", "be 'joined' or 'separate'", repr(factor_squash)
            )
        self.in_channels, self.capsule_dim, self.num_factors = in_channels, capsule_dim, num_factors
        self.factor_squash, self.formulation, self.lead = factor_squash, formulation, lead
        self.norm = RaggedBatchNorm(in_channels, lead=lead) if formulation == "released" else None
        # The K projections side by side: columns k·d/K to (k+1)·d/K belong to factor k.
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, capsule_dim))
        self.bias = nn.Parameter(torch.empty(*lead, capsule_dim))
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.norm is not None:
            self.norm.reset_parameters()
        glorot_(self.weight, self.in_channels, self.capsule_dim // self.num_factors)
        nn.init.zeros_(self.bias)
        self.dropout.reset_parameters()

    def forward(
        self,
        x: Tensor | FeatureRows,
        edge_index: Tensor | EdgeTable | None = None,
        batch: Tensor | Segments | None = None,
        *,
        edge_weight: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Tensor:
        """Capsules of ``x [*lead, V, in]``; padding rows of ``batch`` are left out of the BatchNorm and become 0.

        Edges and ``num_graphs`` are not used. The arguments are those of :meth:`GraphLayer.forward`, so that all
        layers are called alike.
        """
        mask = row_mask(batch)
        _check_width("PrimaryCapsules", x, self.in_channels)
        if isinstance(x, FeatureRows):
            if self.reads_store(x):
                return self._from_store(x, mask)
            x = x.gather()
            if self.norm is None and mask is not None:  # BatchNorm ignores padding rows
                x = x.masked_fill(~mask.unsqueeze(-1), 0)
        if self.norm is None:
            return self._activate(matmul_rows(x, self.weight), self.bias, mask)
        if x.requires_grad:
            return self._activate(self.norm(x, mask) @ self.weight, self.bias, mask)
        # Without a gradient for x the rows are standardised, and γ and β are folded into the projection:
        # (x̂ γ + β) W + e = x̂ (γ W) + (β W + e), so that no gradient of the size of x is ever formed.
        weight, bias = fold_norm(self.norm.weight, self.norm.bias, self.weight, self.bias)
        return self._activate(matmul_rows(self.norm.standardise(x, mask), weight), bias, mask)

    def reads_store(self, rows: FeatureRows) -> bool:
        """Whether features are read from the table of the store, and not gathered."""
        joined = self.norm is not None and self.factor_squash == "joined"
        return projects_without_gather(rows, self.weight) or (
            joined and projects_with_norm(rows, self.weight)
        )

    def _from_store(self, rows: FeatureRows, mask: Tensor | None) -> Tensor:
        """``forward`` without gathering rows: γ / σ is folded into the projection too."""
        norm = self.norm
        if norm is None:
            one, no_shift = torch.ones_like(self.weight[..., 0]), -rows.table.shift
            z = project(rows, self.weight, one, no_shift.expand_as(one))
            return self._activate(z, self.bias, mask)
        running = norm.running_mean, norm.running_var
        mean, rstd = feature_statistics(
            rows, running, training=norm.training, momentum=norm.momentum, epsilon=norm.epsilon
        )
        if self.factor_squash == "joined":
            dropout, affine = self.dropout.next_dropout(mask), (norm.weight, norm.bias)
            return projected_capsules(
                rows, self.weight, self.bias, affine, (mean, rstd), dropout=dropout, mask=mask
            )
        z = project(rows, self.weight, norm.weight * rstd, mean)
        bias = (norm.bias.unsqueeze(-2) @ self.weight).squeeze(-2) + self.bias
        return self._activate(z, bias, mask)

    def _activate(self, z: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        """ReLU, dropout and squash of projected features."""
        position: BiasPosition = "inside" if self.norm is not None else "outside"
        epsilon = RELEASED_EPSILON if self.norm is not None else 0.0
        dropout = self.dropout.next_dropout(mask)
        if self.factor_squash == "joined":
            return activate(z, bias, dropout=dropout, bias_position=position, epsilon=epsilon, mask=mask)
        K = self.num_factors
        z = relu_with_bias(z, bias, position)
        if dropout is not None:
            z = apply_dropout(z, dropout)
        return (squash(z.unflatten(-1, (K, -1)), epsilon) / K**0.5).flatten(-2)

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.capsule_dim}, num_factors={self.num_factors}"
        if self.factor_squash != "joined":
            shown += f", factor_squash='{self.factor_squash}'"
        return shown + (f", lead={self.lead}" if self.lead else "")


class InputCapsules(nn.Module):
    r"""Ablation A1 of the paper: the squashed node features are the primary capsules.

    .. math:: u_i = \mathrm{squash}(\mathrm{BatchNorm}(x_i))

    without BatchNorm in the formulation of the paper. The length of a capsule is the number of features.

    Args:
        in_channels (int): Number of input features.
        formulation (str): ``"released"`` or ``"paper"``. (default: "released")
        lead (tuple): Leading axes of the parameters. (default: ())

    Example:
        >>> InputCapsules(5)(torch.rand(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 5])
    """

    def __init__(
        self, in_channels: int, *, formulation: Formulation = "released", lead: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self.in_channels = self.capsule_dim = in_channels
        self.norm = RaggedBatchNorm(in_channels, lead=lead) if formulation == "released" else None

    def reset_parameters(self) -> None:
        if self.norm is not None:
            self.norm.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeTable | None = None,
        batch: Tensor | Segments | None = None,
        *,
        edge_weight: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Tensor:
        """Capsules of ``x [*lead, V, in]``; arguments as in :meth:`PrimaryCapsules.forward`."""
        mask = row_mask(batch)
        _check_width("InputCapsules", x, self.in_channels)
        if self.norm is None:
            return squash(x, 0.0)
        return squash(self.norm(x, mask))


def _check_width(owner: str, x: Tensor | FeatureRows, width: int) -> None:
    if x.shape[-1] != width:
        raise ShapeError(owner, "x", f"have {width} columns", x.shape[-1])
