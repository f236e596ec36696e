"""Projection of standardised features, read from the feature table of the store without gathering rows."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select, supports
from graphcaps.ops.activation.activation import activate
from graphcaps.ops.activation.hashed_dropout import HashedDropout
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.batch_shard import current_shard
from graphcaps.ops.projection.sparse_features import sparse_product
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import FeatureRows

__all__ = [
    "CPU_ZEROS_PER_ENTRY",
    "feature_statistics",
    "project",
    "project_gathered",
    "projected_capsules",
    "projects_with_norm",
    "projects_without_gather",
]


CPU_ZEROS_PER_ENTRY = 14
"""A CPU uses the sparse form if at most one number in so many is not zero.

Measured: NCI1 has 28, MUTAG 15 and PROTEINS 9 numbers per entry."""


def projects_without_gather(rows: FeatureRows, weight: Tensor) -> bool:
    """Whether :func:`project` reads the entries of the store: with kernels, or on a CPU where features are sparse."""
    table = rows.table
    if not table.sparse or not rows.node.numel():
        return False
    if supports("project", table.x, rows.node, weight):
        return True
    return table.x.device.type == "cpu" and CPU_ZEROS_PER_ENTRY * table.values.numel() <= table.x.numel()


def projects_with_norm(rows: FeatureRows, weight: Tensor) -> bool:
    """Whether :func:`projected_capsules` is one operation: with kernels, also of features that are not sparse."""
    return supports("projected_capsules", rows.table.x, rows.node, weight)


@torch.no_grad()
def feature_statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Mean and 1 / σ of the columns, as in batch normalisation, from the sums that the table has for every graph.

    Args:
        rows (FeatureRows): V rows of B graphs.
        running (tuple): Running mean and variance, ``[*lead, C]``; updated in place while training, except
            those of a replica without a real row.
        training (bool): Whether statistics are those of these rows or the running ones.
        momentum, epsilon (float): As in :class:`graphcaps.nn.RaggedBatchNorm`.

    Returns:
        tuple: The mean minus the table's ``shift``, and 1 / √(variance + epsilon), ``[*lead, C]`` each.
    """
    form = select("feature_statistics", _feature_statistics, rows.table.x, *running)
    return form(rows, running, training=training, momentum=momentum, epsilon=epsilon)


def _feature_statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    table = rows.table
    running_mean, running_var = running
    shift, dtype = table.shift.double(), running_mean.dtype
    if not training:
        mean, var = running_mean.double() - shift, running_var.double()
    else:
        assert current_shard() is None, "sums of feature tables with different shifts cannot be added"
        graph = rows.graphs.clamp_min(0)
        none = (rows.graphs < 0).unsqueeze(-1)  # [*lead, B, 1]
        sizes = (table.node_ptr[graph + 1] - table.node_ptr[graph]).unsqueeze(-1)
        count = sizes.masked_fill(none, 0).sum(-2).double()  # [*lead, 1]
        divisor = count.clamp_min(1)
        mean, square = (
            each[graph].masked_fill_(none, 0).sum(-2) / divisor for each in (table.sums, table.squares)
        )
        var = (square - mean.square()).clamp_min_(0)
        unbiased = var * (count / (count - 1).clamp_min(1))
        share = (momentum * (count > 0).to(dtype)).expand_as(running_mean)
        running_mean.lerp_((mean + shift).to(dtype), share)
        running_var.lerp_(unbiased.to(dtype), share)
    return mean.to(dtype), (var + epsilon).rsqrt().to(dtype)


@full_precision
def project(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    r"""Standardised rows times a weight, :math:`z = \big((x - \mu)\, \mathrm{diag}(s)\big) W`.

    Weight and scale get a gradient. It is computed from centred rows, on a GPU in the precision of the kernels.

    Args:
        rows (FeatureRows): x, ``[*lead, V, C]``.
        weight (Tensor): W, ``[*lead, C, d]``.
        scale (Tensor): s, ``[*lead, C]``.
        mean (Tensor): μ minus the table's ``shift``, ``[*lead, C]``, from :func:`feature_statistics`.

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding rows.
    """
    if not projects_without_gather(rows, weight):
        return project_gathered(rows, weight, scale, mean)
    form = select("project", _project_entries, rows.table.x, rows.node, weight)
    return form(rows, weight, scale, mean)


def _project_entries(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    return sparse_product(rows, scale.unsqueeze(-1) * weight, mean)


def project_gathered(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """The same from gathered rows: the reference implementation."""
    centred = rows.gather() - rows.table.shift - mean.unsqueeze(-2)
    standard = centred.masked_fill((rows.node < 0).unsqueeze(-1), 0)
    return standard @ (scale.unsqueeze(-1) * weight)


@full_precision
def projected_capsules(
    rows: FeatureRows,
    weight: Tensor,
    bias: Tensor,
    norm: tuple[Tensor, Tensor],
    statistics: tuple[Tensor, Tensor],
    *,
    dropout: HashedDropout | None = None,
    epsilon: float = RELEASED_EPSILON,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Primary capsules of normalised rows, :math:`u = \mathrm{squash}(\mathrm{dropout}(\mathrm{ReLU}(\hat x W + e)))`.

    With :math:`\hat x = (x - \mu)\, \mathrm{diag}(\gamma / \sigma) + \beta`. Weight, bias, γ and β get a gradient,
    computed from centred rows; mean and 1 / σ have none.

    Args:
        rows (FeatureRows): x, ``[*lead, V, C]``.
        weight (Tensor): W, ``[*lead, C, d]``.
        bias (Tensor): e, ``[*lead, d]``.
        norm (tuple): γ and β, ``[*lead, C]``.
        statistics (tuple): μ minus the table's ``shift`` and 1 / σ, ``[*lead, C]``, from :func:`feature_statistics`.
        dropout (HashedDropout, optional): The dropout of this step. (default: none)
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``. (default: all are real)

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding rows.
    """
    form = select("projected_capsules", _projected_capsules, rows.table.x, rows.node, weight)
    return form(rows, weight, bias, norm, statistics, dropout=dropout, epsilon=epsilon, mask=mask)


def _projected_capsules(
    rows: FeatureRows,
    weight: Tensor,
    bias: Tensor,
    norm: tuple[Tensor, Tensor],
    statistics: tuple[Tensor, Tensor],
    *,
    dropout: HashedDropout | None,
    epsilon: float,
    mask: Tensor | None,
) -> Tensor:
    (gamma, beta), (mean, rstd) = norm, statistics
    z = project(rows, weight, gamma * rstd, mean)
    folded = (beta.unsqueeze(-2) @ weight).squeeze(-2) + bias
    return activate(z, folded, dropout=dropout, bias_position="inside", epsilon=epsilon, mask=mask)
