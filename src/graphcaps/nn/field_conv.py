"""Convolution over receptive fields of nodes, for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ShapeError
from graphcaps.nn.initialise import linear_
from graphcaps.ops.ragged.tiles import flat_index
from graphcaps.ops.row_sums import select_rows
from graphcaps.ops.structure.member_grid import member_grid
from graphcaps.types import CoarseLevel

__all__ = ["FieldConv"]


class FieldConv(nn.Module):
    r"""A convolution whose kernel and stride are one receptive field of k nodes, with separate weights per replica.

    .. math:: y_f = e + \sum_{p=1}^{k} x_{f_p} W_p

    where :math:`f_p` is the p-th node of field f; terms of nodes that a field does not have are 0. It equals
    :class:`torch.nn.Conv1d` on the joined rows of all fields, filled with zeros. The products :math:`x_i W_p` are
    computed once per node and then added up, so that no tensor holds the input features of all fields.

    Args:
        in_channels (int): Number of features of a node.
        out_channels (int): Number of channels.
        num_fields (int): Number of fields w of a graph.
        field_size (int): Number of nodes k of a field.
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: ``[*lead, B, w, out_channels]``; :math:`e` for fields that a graph does not have.

    Raises:
        ShapeError: If ``x`` has another number of columns than ``in_channels``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_fields: int,
        field_size: int,
        *,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.lead = in_channels, out_channels, lead
        self.num_fields, self.field_size = num_fields, field_size
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, field_size * out_channels))
        self.bias = nn.Parameter(torch.empty(*lead, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The distribution of :class:`torch.nn.Conv1d`."""
        linear_(self.weight, self.in_channels * self.field_size)
        linear_(self.bias, self.in_channels * self.field_size)

    def forward(self, x: Tensor, fields: CoarseLevel) -> Tensor:
        """Convolves ``x [*lead, V, in_channels]`` over the fields of a level."""
        if x.size(-1) != self.in_channels:
            raise ShapeError("FieldConv", "x", f"have {self.in_channels} columns", x.size(-1))
        k, width = self.field_size, self.out_channels
        products = (x @ self.weight).reshape(-1, width)  # row (v, p) of each replica
        grid = member_grid(fields, self.num_fields, k)
        place = grid.source * k + torch.arange(k, device=x.device)
        terms = select_rows(products, flat_index(place, x.size(-2) * k, axes=3))
        terms = terms.reshape(*place.shape, width).masked_fill(grid.unused.unsqueeze(-1), 0)
        return terms.sum(-2) + self.bias[..., None, None, :]

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}, num_fields={self.num_fields}"
        shown += f", field_size={self.field_size}"
        return shown + (f", lead={self.lead}" if self.lead else "")
