"""Graph convolutions with pooling into Haar coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from graphcaps.data.structures.haar_basis import HaarLevels
from graphcaps.errors import check_at_least
from graphcaps.nn.coarsening_network import CoarseningNetwork
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["HaarPool"]


@MODELS.register("haarpool")
class HaarPool(CoarseningNetwork):
    r"""Classifies graphs with graph convolutions and pooling into coefficients of a Haar basis.

    Haar graph pooling (ICML 2020, https://arxiv.org/abs/1909.11580). A chain of spectral clusterings divides n nodes
    into :math:`\lfloor n / 2 \rfloor + 1` clusters each time, and into one at last. It defines a Haar basis on every
    level, and a level of N nodes with N' clusters is pooled with the first N' of its vectors:

    .. math:: X' = \Phi^\top X, \quad \Phi \in \mathbb{R}^{N \times N'}, \quad \Phi^\top \Phi = I

    This is the sum over each cluster divided by the square root of its size, rotated by the basis of the coarse level.
    Before each pooling there are graph convolutions. Clusters and bases are computed once per data set
    (:mod:`graphcaps.data.structures.haar_basis`). With ``num_pools=1`` the result is :math:`\sum_i x_i / \sqrt n`.

    Differs from the publication: the spectral clustering is deterministic, without k-means, and counts of edges between
    clusters are the weights of coarse edges; in clusters of more than 32 nodes, contrasts are between halves, which
    spans the same space with n log n instead of n² entries.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of graph convolutions before each pooling. (default: 2)
        num_pools (int): Number of clusterings. (default: 3)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = "Haar Graph Pooling, ICML 2020, https://arxiv.org/abs/1909.11580"
    order_invariant: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_layers": Interval(1, 3),
        "num_pools": Interval(1, 3),
        "dropout": Interval(0.0, 0.7),
    }

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        num_layers: int = 2,
        num_pools: int = 3,
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        check_at_least("HaarPool", 1, num_pools=num_pools)
        super().__init__(
            in_channels, num_classes, hidden=hidden, num_layers=num_layers, pooled_widths=(1,) * num_pools,
            reduction="sum", batch_norm=False, dropout=dropout, lead=lead,
        )  # fmt: skip
        self.num_pools = num_pools

    @property
    def precomputation(self) -> HaarLevels:
        return HaarLevels(self.num_pools)
