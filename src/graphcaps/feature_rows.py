"""Node features by reference: those of a whole store, and which of them a batch has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.shapes import ShapeRepr

__all__ = ["FeatureRows", "FeatureTable"]


@dataclass(frozen=True, repr=False, eq=False)
class FeatureTable(ShapeRepr):
    """Features of all N nodes of a store, from which ``shift`` was taken, and those of them that are not zero.

    Args:
        x (Tensor): The features themselves, ``[N, in]``.
        shift (Tensor): Taken from every row for all that follows, ``[in]``.
        ptr (Tensor): First entry of each node, and the end of the last, int32, ``[N + 1]``.
        columns, values (Tensor): Column (int32) and shifted feature of each entry, ``[P]``.
        sums, squares (Tensor): Of shifted features over the nodes of each graph, float64, ``[G, in]``.
        node_ptr (Tensor): First node of each graph, and the end of the last, ``[G + 1]``.
        sparse (bool): Whether so few entries are listed that products walk them.
    """

    x: Tensor
    shift: Tensor
    ptr: Tensor
    columns: Tensor
    values: Tensor
    sums: Tensor
    squares: Tensor
    node_ptr: Tensor
    sparse: bool = True


@dataclass(frozen=True, repr=False, eq=False)
class FeatureRows(ShapeRepr):
    """The features of a batch, read from the table of the store that it was drawn from.

    Args:
        table (FeatureTable): Features of the whole store.
        node (Tensor): Store node of each slot, −1 at padding, ``[*lead, V]``.
        graphs (Tensor): Store graph of each graph of the batch, −1 for none, ``[*lead, B]``.
        cleared (bool): Whether padding rows are 0 where rows are gathered, or hold anything.
    """

    table: FeatureTable
    node: Tensor
    graphs: Tensor
    cleared: bool = False

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.node.shape, self.table.x.size(-1)))

    def gather(self) -> Tensor:
        rows = self.table.x.index_select(0, self.node.clamp_min(0).reshape(-1)).reshape(self.shape)
        return rows.masked_fill(self.node.lt(0).unsqueeze(-1), 0) if self.cleared else rows
