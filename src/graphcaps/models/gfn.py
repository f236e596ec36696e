"""Graph Feature Network: a set function of precomputed node features."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from graphcaps.nn.conv_classifier import ConvClassifier
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.registry import MODELS
from graphcaps.types import EdgeTable, Segments

__all__ = ["GFN"]


class _NodeLinear(ReplicaLinear):
    """A linear map without bias, drawn by Glorot's rule as the weight of a graph convolution."""

    def reset_parameters(self) -> None:
        glorot_(self.weight, self.in_channels, self.out_channels)


@MODELS.register("gfn")
class GFN(ConvClassifier):
    r"""Classifies graphs as sets of nodes, whose features contain the structure around them.

    Graph Feature Network (Chen, Bian and Sun, https://arxiv.org/abs/1905.04579): the network of
    :class:`~graphcaps.models.gcn.GCN` with every :math:`\hat A` replaced by the identity, and without bias:

    .. math:: H \leftarrow \mathrm{ReLU}\big(\mathrm{BN}(H) W_l\big)

    The network reads no edge. Structure enters through the input columns: the degree, the one-hot degree, and the
    columns that are propagated along the edges (``propagation`` of :class:`graphcaps.config.FeatureConfig`), which are
    the inputs of HGCN too. They are computed once for a data set.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of layers L after the first. (default: 3)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Are Powerful Graph Neural Nets Necessary? A Dissection on Graph Classification, 2019, "
        "https://arxiv.org/abs/1905.04579"
    )

    def make_layer(self, hidden: int, lead: tuple[int, ...]) -> nn.Module:
        return _NodeLinear(hidden, hidden, bias=False, lead=lead)

    def apply_layer(self, layer: nn.Module, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        y: Tensor = layer(x)
        return y
