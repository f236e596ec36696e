"""GraphSAGE for whole graphs."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from graphcaps.nn.conv_classifier import ConvClassifier
from graphcaps.nn.sage_conv import ReplicaSAGEConv
from graphcaps.registry import MODELS

__all__ = ["GraphSAGE"]


@MODELS.register("sage")
class GraphSAGE(ConvClassifier):
    r"""Classifies graphs with means over neighbours and a sum over nodes.

    GraphSAGE (NeurIPS 2017, https://arxiv.org/abs/1706.02216) with the mean of all neighbours:

    .. math::
        h_i \leftarrow \mathrm{ReLU}\Big(\frac{1}{|N(i)|} \sum_{j \in N(i)} \bar h_j \, W_1 + e + \bar h_i W_2\Big),
        \quad \bar h = \mathrm{BN}(h)

    The publication classifies nodes. For whole graphs, the layers stand in the network of
    :class:`~graphcaps.models.gcn.GCN` (:class:`graphcaps.nn.ConvClassifier`), so that the two models
    differ in their layers only. Neighbours are not sampled, and rows are not scaled to length 1. Edge weights, if there
    are any, multiply the rows of neighbours. Edge labels are not read in the messages, only as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of layers L. (default: 3)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Inductive Representation Learning on Large Graphs, NeurIPS 2017, https://arxiv.org/abs/1706.02216"
    )

    def make_layer(self, hidden: int, lead: tuple[int, ...]) -> nn.Module:
        return ReplicaSAGEConv(hidden, hidden, lead=lead)
