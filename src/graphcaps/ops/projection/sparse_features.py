"""Products of sparse feature rows with a weight on a CPU, as sums of weight rows (torch's ``embedding_bag``)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, pad

from graphcaps.types import FeatureRows

__all__ = ["sparse_product"]


def sparse_product(rows: FeatureRows, weight: Tensor, mean: Tensor) -> Tensor:
    """(x − shift − mean) W of the real rows, 0 at padding, ``[*lead, V, d]``; only W gets a gradient.

    Args:
        rows (FeatureRows): x, ``[*lead, V, C]``.
        weight (Tensor): W, ``[*lead, C, d]``.
        mean (Tensor): ``[*lead, C]``.
    """
    z: Tensor = _SparseProduct.apply(rows, weight, mean)
    return z


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: FeatureRows, weight: Tensor, mean: Tensor) -> Tensor:
        C, d = weight.shape[-2:]
        column, values, bags = _entries(rows, C)
        ctx.rows, ctx.entries = rows, (column, values, bags)
        ctx.save_for_backward(mean)
        z = _bags(weight.reshape(-1, d), column, bags, values).reshape(*rows.node.shape, d)
        offset = (mean.unsqueeze(-2) @ weight).reshape(-1, d)
        for replica, n in enumerate(_real_rows(rows)):
            z.view(-1, *z.shape[-2:])[replica, :n].sub_(offset[replica])
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (mean,), (column, values, bags) = ctx.saved_tensors, ctx.entries
        flat = grad.reshape(-1, grad.size(-1))
        # Entries are grouped by column. Sorting 16-bit integers is many times faster.
        key = column.short() if mean.numel() < 2**15 else column
        order = key.sort(stable=True).indices
        row = torch.arange(len(bags) - 1).repeat_interleave(bags.diff(), output_size=len(column))
        ends = pad(torch.bincount(column, minlength=mean.numel()).cumsum(0), (1, 0))
        grad_weight = _bags(flat, row[order], ends, values[order]).reshape(*mean.shape, -1)
        by_replica = flat.reshape(-1, grad.size(-2), grad.size(-1))
        total = torch.stack([by_replica[f, :n].sum(0) for f, n in enumerate(_real_rows(ctx.rows))])
        grad_weight.sub_(mean.unsqueeze(-1) * total.reshape(*mean.shape[:-1], 1, -1))
        return None, grad_weight, None


def _bags(table: Tensor, index: Tensor, bags: Tensor, values: Tensor) -> Tensor:
    """For each i the weighted sum of the table's rows ``index[bags[i]]`` to ``index[bags[i + 1] − 1]``."""
    return embedding_bag(
        index, table.detach(), bags, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def _real_rows(rows: FeatureRows) -> list[int]:
    """Number of real rows of each replica; padding comes after them."""
    counts: list[int] = (rows.node >= 0).sum(-1).reshape(-1).tolist()
    return counts


def _entries(rows: FeatureRows, C: int) -> tuple[Tensor, Tensor, Tensor]:
    """Entries of all rows in order: column (replica f: from f·C on), value; and the first entry of each row."""
    table, node = rows.table, rows.node.reshape(-1)
    graphs = rows.graphs.reshape(-1, rows.graphs.size(-1)).clamp_min(0)
    # The entries of a graph lie together.
    first = table.ptr[table.node_ptr[graphs]].long()
    length = (table.ptr[table.node_ptr[graphs + 1]] - first).masked_fill_(
        rows.graphs.reshape_as(graphs) < 0, 0
    )
    ends = length.reshape(-1).cumsum(0)
    total = int(ends[-1])
    begin = (first.reshape(-1) - ends + length.reshape(-1)).repeat_interleave(
        length.reshape(-1), output_size=total
    )
    entry = begin.add_(torch.arange(total))
    replica = torch.arange(len(graphs)).mul_(C).repeat_interleave(length.sum(-1), output_size=total)
    real_node = node.clamp_min(0)
    counts = (table.ptr[real_node + 1] - table.ptr[real_node]).masked_fill_(node < 0, 0)
    column = table.columns.index_select(0, entry) + replica
    return column, table.values.index_select(0, entry), pad(counts.cumsum(0), (1, 0))
