"""Graph convolutions with pooling by eigenvectors of spectral clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from graphcaps.data.structures.eigen_modes import EigenLevels
from graphcaps.errors import check_at_least
from graphcaps.nn.coarsening_network import CoarseningNetwork
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["EigenPool"]


@MODELS.register("eigenpool")
class EigenPool(CoarseningNetwork):
    r"""Classifies graphs with graph convolutions and pooling by Laplacian eigenvectors of spectral clusters.

    EigenPooling (KDD 2019, https://arxiv.org/abs/1904.13107). A graph of n nodes is clustered into
    :math:`\max(1, \lfloor n / s \rfloor)` clusters. With the membership :math:`\Omega`, the edges
    :math:`A_\mathrm{ext}` between clusters, and :math:`\Theta_h` that holds the h-th Laplacian eigenvector of the
    induced subgraph of every cluster:

    .. math:: A' = \Omega^\top A_\mathrm{ext} \Omega, \quad
        X' = [\Theta_1^\top X, \dots, \Theta_H^\top X]

    The coarsest graph is pooled into one row in the same way. Clusters and eigenvectors are computed once per data set
    (:mod:`graphcaps.data.structures.eigen_modes`).

    Differs from the published program: clusters come from a deterministic spectral clustering without k-means; the
    first eigenvector is constant also where a cluster is not connected; a cluster of one node keeps its features, which
    the program multiplies by 0; the convolutions are those of GCN with a trained BatchNorm, where the program makes
    one anew in each call. With one mode a row is the sum over a cluster divided by the square root of its size.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of graph convolutions before each pooling. (default: 3)
        cluster_sizes (tuple): Mean number of nodes s of a cluster, for each coarser level. (default: (10,))
        modes (int): Number of eigenvectors H of a cluster. (default: 3)
        final_modes (int): Number of eigenvectors of the coarsest graph. (default: 1)
        dropout (float): Dropout probability before the last linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Graph Convolutional Networks with EigenPooling, KDD 2019, https://arxiv.org/abs/1904.13107"
    )
    order_invariant: ClassVar[bool] = False
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_layers": Interval(1, 5),
        "modes": Interval(1, 5),
        "dropout": Interval(0.0, 0.7),
    }

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        num_layers: int = 3,
        cluster_sizes: tuple[int, ...] = (10,),
        modes: int = 3,
        final_modes: int = 1,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        check_at_least("EigenPool", 1, modes=modes, final_modes=final_modes)
        if cluster_sizes:
            check_at_least("EigenPool", 2, cluster_sizes=min(cluster_sizes))
        widths = (*(modes for _ in cluster_sizes), final_modes)
        super().__init__(
            in_channels, num_classes, hidden=hidden, num_layers=num_layers, pooled_widths=widths, reduction="sum",
            batch_norm=True, dropout=dropout, lead=lead,
        )  # fmt: skip
        self.levels = EigenLevels(tuple(cluster_sizes), modes, final_modes)

    @property
    def precomputation(self) -> EigenLevels:
        return self.levels
