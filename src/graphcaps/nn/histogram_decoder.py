"""Reconstruction of the histograms of a graph's input columns from its class capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.initialise import linear_
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.class_code.class_code import class_code
from graphcaps.ops.graph_mean import mean_over_graphs
from graphcaps.ops.ragged.reductions import segment_mean
from graphcaps.types import Segments

__all__ = ["HistogramDecoder"]


class HistogramDecoder(nn.Module):
    r"""Reconstructs how many nodes of a graph have each label and degree, as a regulariser.

    The auxiliary loss of CapsGNN (ICLR 2019), from the capsule :math:`u_y` of the true class:

    .. math::
        p &= \sigma\big(\mathrm{ReLU}(W_y^\top u_y + e) W' + e'\big), \quad
        m_k = \frac{1}{n} \big|\{i : x_{ik} \ne 0\}\big| \\
        \mathcal L &= \max_{k : m_k > 0} (p_k - m_k)^2 + \max_{k : m_k = 0} p_k^2

    The histogram :math:`m` holds, for each input column, the fraction of the nodes where it is not 0: for one-hot
    labels and degrees these are the frequencies of labels and degrees. A maximum over no columns is 0.

    Args:
        num_classes (int): Number of classes O.
        class_dim (int): Length of a class capsule d.
        columns (int): Number of input columns.
        hidden (int): Width of the hidden layer. (default: 128)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: The loss, mean over graphs with a class, one number per replica, ``[*lead]``.
    """

    def __init__(
        self,
        num_classes: int,
        class_dim: int,
        columns: int,
        *,
        hidden: int = 128,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.fan_in = num_classes * class_dim
        self.weight = nn.Parameter(torch.empty(*lead, self.fan_in, hidden))
        self.bias = nn.Parameter(torch.empty(*lead, hidden))
        self.outer = ReplicaLinear(hidden, columns, lead=lead)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linear_(self.weight, self.fan_in)
        linear_(self.bias, self.fan_in)
        self.outer.reset_parameters()

    def forward(self, x: Tensor, segments: Segments, *, class_capsules: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            x (Tensor): Input features, ``[*lead, V, columns]``.
            segments (Segments): Graph of each node.
            class_capsules (Tensor): Class capsules, ``[*lead, B, O, d]``.
            y (Tensor): Class of each graph, −1 at padding, ``[*lead, B]``.
        """
        histogram = segment_mean((x != 0).to(x.dtype), segments)  # [*lead, B, columns]
        found = self.outer(class_code(class_capsules, y, self.weight, self.bias, relu=True)).sigmoid()
        error, absent = (found - histogram).square(), histogram == 0
        largest = error.masked_fill(absent, 0).amax(-1) + error.masked_fill(~absent, 0).amax(-1)
        return mean_over_graphs(largest, y)
