"""Deep Graph Convolutional Neural Network with sort pooling."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.initialise import glorot_
from graphcaps.nn.losses import cross_entropy
from graphcaps.nn.pooling import sort_pool
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.propagation.propagation import degrees, neighbour_sum
from graphcaps.registry import MODELS, Choices, DataOption, Interval, ScoreKind
from graphcaps.types import EdgeTable, GraphBatch, LossOptions, LossTerms, ModelOutput

__all__ = ["DGCNN"]

_WINDOW = 5
"""Positions that the second convolution over sorted nodes reads."""
_FEWEST = 2 * _WINDOW
"""Smallest k: after the maximum over pairs, one window is left."""
_FRACTION = 0.6
"""Fraction of the graphs with at most k nodes, where k is derived from the data."""


class _Layer(nn.Module):
    """tanh(D̃⁻¹((A + I) x W + e)): a graph convolution that averages over a node and its neighbours."""

    def __init__(self, in_channels: int, out_channels: int, lead: tuple[int, ...]) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.weight = nn.Parameter(torch.empty(*lead, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(*lead, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight, self.in_channels, self.out_channels)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edges: EdgeTable, divisor: Tensor) -> Tensor:
        # The hop is taken where rows are shorter.
        if self.in_channels < self.out_channels:
            y = (x + neighbour_sum(x, edges)) @ self.weight
        else:
            y = x @ self.weight
            y = y + neighbour_sum(y, edges)
        return ((y + self.bias.unsqueeze(-2)) / divisor).tanh()


@MODELS.register("dgcnn")
class DGCNN(GraphModel):
    r"""Classifies graphs with graph convolutions, and convolutions over their sorted nodes.

    Deep Graph Convolutional Neural Network (AAAI 2018, https://doi.org/10.1609/aaai.v32i1.11782):

    .. math:: Z_{t+1} = \tanh\big(\tilde D^{-1} ((A + I) Z_t W_t + e_t)\big), \quad Z = [Z_1 \,\|\, \dots \,\|\, Z_T]

    where the last :math:`Z_T` has one column. Nodes are sorted by it in descending order, the first k are kept, and
    graphs with fewer nodes are filled with rows of zeros. Two convolutions follow along the sorted nodes, of 16 and 32
    channels with ReLU: the first reads one row, and the second five results after the maximum over pairs. Then come a
    hidden layer of 128 features, dropout and a linear layer. Trained with cross-entropy.

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

    scores: ClassVar[ScoreKind] = "logits"
    reference: ClassVar[str] = (
        "An End-to-End Deep Learning Architecture for Graph Classification, AAAI 2018, "
        "https://doi.org/10.1609/aaai.v32i1.11782"
    )
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
        for name, value, least in (
            ("hidden", hidden, 1),
            ("num_layers", num_layers, 1),
            ("k", k, _FEWEST),
            ("dense", dense, 1),
        ):
            if value < least:
                raise ArgumentError("DGCNN", name, f"be at least {least}", value)
        self.k = k
        widths = [in_channels] + [hidden] * num_layers + [1]
        self.layers = nn.ModuleList(_Layer(a, b, lead) for a, b in pairwise(widths))
        # The last column of each layer, from the last layer to the first.
        self._keys = tuple(sum(widths[1 : t + 1]) - 1 for t in range(num_layers + 1, 0, -1))
        self.rows = ReplicaLinear(sum(widths[1:]), 16, lead=lead)
        self.windows = ReplicaLinear(16 * _WINDOW, 32, lead=lead)
        self.inner = ReplicaLinear(32 * (k // 2 - _WINDOW + 1), dense, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.outer = ReplicaLinear(dense, num_classes, lead=lead)

    @property
    def capturable(self) -> bool:
        """True: no step synchronises with the host."""
        return True

    def reset_parameters(self) -> None:
        for part in (*self.layers, self.rows, self.windows, self.inner, self.dropout, self.outer):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x, edges, segments = self.node_features(batch), batch.edges, batch.segments
        divisor = (degrees(edges).to(x.dtype) + 1).clamp_min(1).unsqueeze(-1)
        columns: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, edges, divisor)
            columns.append(x)
        sorted_rows = sort_pool(torch.cat(columns, -1), segments, k=self.k, keys=self._keys)
        g = self._convolve(sorted_rows)
        hidden = self.dropout(self.inner(g).relu(), segments.graph_mask)
        return ModelOutput(self.outer(hidden))

    def _convolve(self, rows: Tensor) -> Tensor:
        """Both convolutions along the sorted nodes, ``[*lead, B, k, d]`` to ``[*lead, B, 32 (k // 2 − 4)]``.

        A convolution of one row, or of windows that overlap, is a linear map of rows, which works for replicas.
        """
        *lead, B, k, d = rows.shape
        pairs = k // 2
        z = self.rows(rows.reshape(*lead, B * k, d)).relu().reshape(*lead, B, k, -1)
        z = z[..., : 2 * pairs, :].unflatten(-2, (pairs, 2)).amax(-2)
        windows = z.unfold(-2, _WINDOW, 1).flatten(-2)  # [*lead, B, pairs − 4, 16 · 5]
        count = windows.size(-2)
        z = self.windows(windows.reshape(*lead, B * count, windows.size(-1))).relu()
        return z.reshape(*lead, B, count * z.size(-1))

    def loss(self, output: ModelOutput, y: Tensor, options: LossOptions = LossOptions()) -> LossTerms:
        """Cross-entropy loss."""
        loss = cross_entropy(output.class_scores, y, options.class_weight, options.graph_weight)
        return LossTerms(loss, {"cross-entropy": loss})
