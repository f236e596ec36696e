"""One-dimensional convolutions over the rows of a graph, and a classifier, for one model or many."""

from __future__ import annotations

from torch import Tensor, nn

from graphcaps.errors import ShapeError, check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.replica_linear import ReplicaLinear

__all__ = ["ConvHead"]

_KERNEL = 5
"""Width of the second convolution."""


class ConvHead(nn.Module):
    r"""Classifies graphs of k rows in a fixed order by two convolutions along the rows.

    The head of DGCNN (AAAI 2018), for the sorted nodes of a graph or its clusters: a convolution whose kernel and
    stride are one row, ReLU, a maximum over pairs of rows, a convolution over five rows, ReLU, and a hidden layer:

    .. math::
        a_r &= \mathrm{ReLU}(x_r W_1 + e_1), \quad b_r = \max(a_{2r}, a_{2r+1}), \quad
        c_r = \mathrm{ReLU}([b_r, \dots, b_{r+4}] W_2 + e_2), \\
        z &= \mathrm{dropout}\big(\mathrm{ReLU}([c_0, c_1, \dots] W_3 + e_3)\big) W_4 + e_4

    For one replica it equals :class:`torch.nn.Conv1d` and :class:`torch.nn.MaxPool1d` in this sequence.

    Args:
        in_channels (int): Number of features of a row d.
        num_rows (int): Number of rows k, at least 10.
        num_classes (int): Number of classes O.
        channels (tuple): Number of channels of both convolutions. (default: (16, 32))
        hidden (int): Width of the hidden layer. (default: 128)
        dropout (float): Dropout probability after the hidden layer. (default: 0.5)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: Logits, ``[*lead, B, O]``.

    Raises:
        ArgumentError: If there are fewer than 10 rows, which the second convolution needs.
        ShapeError: If ``x`` has other rows or columns.

    Example:
        >>> ConvHead(8, 10, 2)(torch.rand(3, 10, 8)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        num_rows: int,
        num_classes: int,
        *,
        channels: tuple[int, int] = (16, 32),
        hidden: int = 128,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        check_at_least("ConvHead", 2 * _KERNEL, num_rows=num_rows)
        self.in_channels, self.num_rows, self.lead = in_channels, num_rows, lead
        self.rows = ReplicaLinear(in_channels, channels[0], lead=lead)
        self.windows = ReplicaLinear(_KERNEL * channels[0], channels[1], lead=lead)
        self.inner = ReplicaLinear((num_rows // 2 - _KERNEL + 1) * channels[1], hidden, lead=lead)
        self.outer = ReplicaLinear(hidden, num_classes, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (self.rows, self.windows, self.inner, self.outer, self.dropout):
            part.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of ``x [*lead, B, k, d]``; ``mask [*lead, B]`` is True at real graphs. (default: all are real)"""
        if x.shape[-2:] != (self.num_rows, self.in_channels):
            expected = f"have {self.num_rows} rows of {self.in_channels} columns"
            raise ShapeError("ConvHead", "x", expected, list(x.shape[-2:]))
        # A convolution of one row, or of windows that overlap, is a linear map of rows, which works for replicas.
        B, pairs = x.size(-3), self.num_rows // 2
        a = self.rows(x.flatten(-3, -2)).relu().unflatten(-2, (B, self.num_rows))
        b = a[..., : 2 * pairs, :].unflatten(-2, (pairs, 2)).amax(-2)
        windows = b.unfold(-2, _KERNEL, 1).flatten(-2)  # [*lead, B, pairs − 4, channels · 5]
        c = self.windows(windows.flatten(-3, -2)).relu().unflatten(-2, (B, -1)).flatten(-2)
        z: Tensor = self.outer(self.dropout(self.inner(c).relu(), mask))
        return z

    def extra_repr(self) -> str:
        return f"{self.in_channels}, num_rows={self.num_rows}" + (f", lead={self.lead}" if self.lead else "")
