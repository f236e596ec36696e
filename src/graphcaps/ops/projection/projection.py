"""A projection of standardised features, from where the store has them."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select, supports
from graphcaps.ops.projection.sparse_features import sparse_product
from graphcaps.types import FeatureRows

__all__ = [
    "CPU_ZEROS_PER_ENTRY",
    "feature_statistics",
    "project",
    "project_gathered",
    "projects_without_gather",
]


CPU_ZEROS_PER_ENTRY = 14
"""A CPU walks entries where at most one number in so many is one; measured on NCI1 (28), MUTAG (15), PROTEINS (9)."""


def projects_without_gather(rows: FeatureRows, weight: Tensor) -> bool:
    """Whether these rows are projected without being gathered: by kernels, or on a CPU where entries are rare."""
    table = rows.table
    if not table.sparse or not rows.node.numel():
        return False
    if supports("project", table.x, rows.node, weight):
        return True
    return table.x.device.type == "cpu" and CPU_ZEROS_PER_ENTRY * table.values.numel() <= table.x.numel()


@torch.no_grad()
def feature_statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Mean and 1 / σ of the columns, as batch normalisation takes them: sums over graphs, not over rows.

    Args:
        rows (FeatureRows): V rows of B graphs.
        running (tuple): Running mean and variance, ``[*lead, C]``; moved in place while training, but of a
            replica without a real row.
        training (bool): Statistics of these rows, or the running ones.
        momentum, epsilon (float): As in :class:`graphcaps.nn.RaggedBatchNorm`.

    Returns:
        tuple: The mean less the table's ``shift``, and 1 / √(variance + epsilon), ``[*lead, C]`` each.
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
        known = rows.graphs.clamp_min(0)
        none = (rows.graphs < 0).unsqueeze(-1)  # [*lead, B, 1]
        sizes = (table.node_ptr[known + 1] - table.node_ptr[known]).unsqueeze(-1)
        count = sizes.masked_fill(none, 0).sum(-2).double()  # [*lead, 1]
        some = count.clamp_min(1)
        mean, square = (
            each[known].masked_fill_(none, 0).sum(-2) / some for each in (table.sums, table.squares)
        )
        var = (square - mean.square()).clamp_min_(0)
        unbiased = var * (count / (count - 1).clamp_min(1))
        share = (momentum * (count > 0).to(dtype)).expand_as(running_mean)
        running_mean.lerp_((mean + shift).to(dtype), share)
        running_var.lerp_(unbiased.to(dtype), share)
    return mean.to(dtype), (var + epsilon).rsqrt().to(dtype)


def project(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    r"""Standardised rows times a weight, :math:`z = \big((x - \mu)\, \mathrm{diag}(s)\big) W`.

    The weight and the scale have a gradient. It is taken of centred rows, in the precision of the kernels.

    Args:
        rows (FeatureRows): x, ``[*lead, V, C]``.
        weight (Tensor): W, ``[*lead, C, d]``.
        scale (Tensor): s, ``[*lead, C]``.
        mean (Tensor): μ less the table's ``shift``, ``[*lead, C]``, as :func:`feature_statistics` gives it.

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
    """The same from rows that are gathered: what the others must equal."""
    centred = rows.gather() - rows.table.shift - mean.unsqueeze(-2)
    standard = centred.masked_fill((rows.node < 0).unsqueeze(-1), 0)
    return standard @ (scale.unsqueeze(-1) * weight)
