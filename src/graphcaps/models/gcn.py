"""Graph Convolutional Network."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from graphcaps.nn.conv_classifier import ConvClassifier
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.registry import MODELS

__all__ = ["GCN"]


@MODELS.register("gcn")
class GCN(ConvClassifier):
    r"""Classifies graphs with graph convolutions and a sum over nodes.

    Graph Convolutional Network (ICLR 2017, https://arxiv.org/abs/1609.02907), in the network of Chen, Bian and Sun
    (:class:`graphcaps.nn.ConvClassifier`), whose results the HGCN paper quotes. Its layers are

    .. math:: H \leftarrow \mathrm{ReLU}\big(\hat A \, \mathrm{BN}(H) W_l + e_l\big)

    with :math:`\hat A` of :class:`graphcaps.nn.ReplicaGCNConv`. Edge weights, if there are any, enter :math:`\hat A`.
    Edge labels are not read in the messages, only as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        num_layers (int): Number of graph convolutions L. (default: 3)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    reference: ClassVar[str] = (
        "Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017, "
        "https://arxiv.org/abs/1609.02907"
    )

    def make_layer(self, hidden: int, lead: tuple[int, ...]) -> nn.Module:
        return ReplicaGCNConv(hidden, hidden, lead=lead)
