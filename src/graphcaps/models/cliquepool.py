"""Graph convolutions with pooling of cliques."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from graphcaps.data.structures.cliques import CliqueLevels
from graphcaps.errors import ArgumentError, check_at_least
from graphcaps.nn.coarsening_network import CoarseningNetwork
from graphcaps.registry import MODELS, Choices, Interval

__all__ = ["CliquePool"]


@MODELS.register("cliquepool")
class CliquePool(CoarseningNetwork):
    r"""Classifies graphs with graph convolutions, each but the last followed by pooling of cliques.

    Clique pooling (ICLR 2019 workshop, https://arxiv.org/abs/1904.00374). The nodes of a coarser level are the maximal
    cliques of the level below; each node stays only in the largest of its cliques, in all of them if several are
    equally large, and cliques without nodes are removed:

    .. math:: x'_c = \max_{i \in c} x_i \text{ or } \frac{1}{|c|} \sum_{i \in c} x_i, \quad
        A' = 1[S^\top A S > 0]

    with the membership S. Cliques are computed once per data set (:class:`graphcaps.data.structures.cliques`). The
    publication has no program: convolutions, BatchNorm and the sum over the last level are those of the GCN classifier
    of Chen, Bian and Sun (https://arxiv.org/abs/1905.04579).

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_pools (int): Number of coarser levels. (default: 2)
        reduction (str): ``"max"`` or ``"mean"`` over the members of a clique. (default: "max")
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Clique pooling for graph classification, 2019, https://arxiv.org/abs/1904.00374"
    )
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_pools": Interval(1, 3),
        "reduction": Choices(("max", "mean")),
        "dropout": Interval(0.0, 0.7),
    }

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        num_pools: int = 2,
        reduction: Literal["max", "mean"] = "max",
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        check_at_least("CliquePool", 1, num_pools=num_pools)
        if reduction not in ("max", "mean"):
            raise ArgumentError("CliquePool", "reduction", "be 'max' or 'mean'", repr(reduction))
        super().__init__(
            in_channels, num_classes, hidden=hidden, num_layers=1, pooled_widths=(1,) * (num_pools + 1),
            reduction=reduction, batch_norm=True, dropout=dropout, lead=lead,
        )  # fmt: skip
        self.num_pools = num_pools

    @property
    def precomputation(self) -> CliqueLevels:
        return CliqueLevels(self.num_pools)
