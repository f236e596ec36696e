"""Deep Graph Convolutional Neural Network with sort pooling."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.conv_head import ConvHead
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.mean_conv import ReplicaMeanConv
from graphcaps.nn.pooling import sort_pool
from graphcaps.registry import MODELS, Choices, DataOption, Interval
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["DGCNN"]

_FEWEST = 10
"""Smallest k, which the head needs."""
_FRACTION = 0.6
"""Fraction of the graphs with at most k nodes, where k is derived from the data."""


@MODELS.register("dgcnn")
class DGCNN(LogitModel):
    r"""Classifies graphs with graph convolutions, and convolutions over their sorted nodes.

    Deep Graph Convolutional Neural Network (AAAI 2018, https://doi.org/10.1609/aaai.v32i1.11782):

    .. math:: Z_{t+1} = \tanh\big(\tilde D^{-1} ((A + I) Z_t W_t + e_t)\big), \quad Z = [Z_1 \,\|\, \dots \,\|\, Z_T]

    where the last :math:`Z_T` has one column. Nodes are sorted by it in descending order, the first k are kept, and
    graphs with fewer nodes are filled with rows of zeros. Convolutions along the sorted nodes classify them
    (:class:`graphcaps.nn.ConvHead`). Trained with cross-entropy.

    Among nodes with equal values in the last column, the last columns of :math:`Z_{T-1}, \dots, Z_1` decide, and then
    the order of nodes. The paper compares all columns one after another; nodes that agree in these columns are in
    general equal in all of them. Where k is not set, it is the 60th percentile of the node counts, at least 10, as in
    the authors' program. With folds all graphs count, because all folds train together; with a split only training
    graphs do. Edge weights, if there are any, multiply the messages.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of columns of each graph convolution before the last. (default: 32)
        num_layers (int): Number of graph convolutions before the last, which has one column. (default: 3)
        k (int): Number of nodes to keep, at least 10; follows from the data if it is not set. (default: 30)
        dense (int): Number of features of the hidden layer. (default: 128)
        dropout (float): Dropout probability before the last linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    export_formats: ClassVar[tuple[str, ...]] = (".pt2",)  # ONNX has no stable sort
    reference: ClassVar[str] = (
        "An End-to-End Deep Learning Architecture for Graph Classification, AAAI 2018, "
        "https://doi.org/10.1609/aaai.v32i1.11782"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden", "k")
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "k": DataOption(lambda size: max(size.nodes_at(_FRACTION), _FEWEST), kept=True, by_default=True)
    }
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((16, 32, 64)),
        "num_layers": Interval(2, 5),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 32,
        num_layers: int = 3,
        k: int = 30,
        dense: int = 128,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("DGCNN", 1, hidden=hidden, num_layers=num_layers, dense=dense)
        check_at_least("DGCNN", _FEWEST, k=k)
        self.k = k
        widths = [in_channels] + [hidden] * num_layers + [1]
        self.layers = nn.ModuleList(ReplicaMeanConv(a, b, lead=lead) for a, b in pairwise(widths))
        # The last column of each layer, from the last layer to the first.
        self._keys = tuple(sum(widths[1 : t + 1]) - 1 for t in range(num_layers + 1, 0, -1))
        self.head = ConvHead(sum(widths[1:]), k, num_classes, hidden=dense, dropout=dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (*self.layers, self.head):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x, edges, segments = self.node_features(batch), batch.edges, batch.segments
        columns: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, edges, segments).tanh()
            columns.append(x)
        rows = sort_pool(torch.cat(columns, -1), segments, k=self.k, keys=self._keys)
        return ModelOutput(self.head(rows, segments.graph_mask))
