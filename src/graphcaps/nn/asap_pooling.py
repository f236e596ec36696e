"""Adaptive structure aware pooling for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.neighbourhoods import DenseNeighbourhoods, Neighbourhoods

__all__ = ["ASAPooling", "convolve"]


class ASAPooling(nn.Module):
    r"""Pools the neighbourhoods of nodes, and keeps those with the highest fitness.

    ASAP (AAAI 2020, https://arxiv.org/abs/1911.07979), with a cluster for each node i, :math:`N(i) \cup \{i\}`:

    .. math::
        \tilde x &= \hat A x W_0 + e_0, \quad m_i = \max_{j} \tilde x_j, \quad
        \alpha_{ij} = \mathrm{softmax}_j \, \mathrm{LeakyReLU}\big(w^\top [W m_i + e \,\|\, \tilde x_j] + b\big), \\
        c_i &= \sum_j \alpha_{ij} x_j, \quad
        \phi_i = \sigma\Big(\sum_j (c_j w_1 + b_1 - c_i w_2) + c_i w_3 + b_3\Big), \\
        I &= \mathrm{top}_{\lceil \rho n \rceil}(\phi), \quad
        X' = (\phi \odot c)_I, \quad A'_{ik} = \sum_{jl} \alpha_{ij} (A + I)_{jl} \alpha_{kl}

    where sums and maxima over j are over the cluster of i. For one replica it equals
    :class:`torch_geometric.nn.ASAPooling` with ``GNN=GCNConv`` and edge weights, but no gradient flows through
    :math:`A'`, as in the authors' program.

    Args:
        channels (int): Number of features of a row.
        ratio (float): Fraction of the clusters to keep.
        dropout (float): Dropout probability of :math:`\alpha`. (default: 0.0)
        negative_slope (float): Slope of the LeakyReLU below 0. (default: 0.2)
        lead (tuple): Leading axes of the parameters. (default: ())
    """

    def __init__(
        self,
        channels: int,
        ratio: float,
        *,
        dropout: float = 0.0,
        negative_slope: float = 0.2,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.ratio, self.negative_slope = ratio, negative_slope
        self.conv = ReplicaGCNConv(channels, channels, lead=lead)
        self.query = ReplicaLinear(channels, channels, lead=lead)
        self.attention = ReplicaLinear(2 * channels, 1, lead=lead)
        self.fitness_member = ReplicaLinear(channels, 1, lead=lead)
        self.fitness_centre = ReplicaLinear(channels, 1, bias=False, lead=lead)
        self.fitness_own = ReplicaLinear(channels, 1, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (
            self.conv,
            self.query,
            self.attention,
            self.fitness_member,
            self.fitness_centre,
            self.fitness_own,
            self.dropout,
        ):
            part.reset_parameters()

    def forward(
        self, x: Tensor, graphs: Neighbourhoods, mask: Tensor | None, *, with_edges: bool = True
    ) -> DenseNeighbourhoods:
        """The pooled graphs.

        Args:
            x (Tensor): Rows of the nodes, ``[*lead, N, channels]``.
            graphs (Neighbourhoods): Their graphs.
            mask (Tensor, optional): True at real rows, ``[*lead, N]``. (default: all are real)
            with_edges (bool): Whether the edges of the pooled graphs are computed. (default: True)
        """
        inner = convolve(self.conv, x, graphs)
        centre = self.query(graphs.maximum(inner))
        # wᵀ[q ‖ x̃] is a sum of two products: no pair of rows is joined.
        to_centre, to_member = self.attention.weight.chunk(2, -2)
        assert self.attention.bias is not None
        member = inner @ to_member + self.attention.bias.unsqueeze(-2)
        dropout = self.dropout.next_dropout(mask)
        attention = graphs.attention(centre @ to_centre, member, self.negative_slope, dropout)
        cluster = graphs.weigh(attention, x)
        logits = graphs.total(self.fitness_member(cluster)) + self.fitness_own(cluster)
        fitness = torch.sigmoid(logits - graphs.count(x.dtype) * self.fitness_centre(cluster))
        pairs = attention.detach() if with_edges else None
        return graphs.coarsen(cluster * fitness, fitness.squeeze(-1), pairs, self.ratio)


def convolve(conv: ReplicaGCNConv, x: Tensor, graphs: Neighbourhoods) -> Tensor:
    """The graph convolution :math:`\\hat A x W + e` on these graphs, ``[*lead, N, in]`` to ``[*lead, N, out]``."""
    # Â(xW) = (Âx)W: the hop is taken where rows are shorter.
    y = graphs.hop(x) @ conv.weight if conv.in_channels < conv.out_channels else graphs.hop(x @ conv.weight)
    return y if conv.bias is None else y + conv.bias.unsqueeze(-2)
