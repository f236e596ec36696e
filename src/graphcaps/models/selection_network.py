"""What networks that select nodes have in common: graph convolutions, a readout of selected nodes, and a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from graphcaps.errors import check_at_least, check_fraction
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.ragged.selection import Selection, selected_max, selected_mean
from graphcaps.registry import Choices, Interval
from graphcaps.types import ModelOutput, Segments

__all__ = ["SelectionNetwork", "graph_convs", "read_out"]


class SelectionNetwork(LogitModel):
    r"""Graph convolutions, and a classifier of what :func:`read_out` gives for selected nodes.

    .. math:: z = \mathrm{ReLU}\big(\mathrm{dropout}(\mathrm{ReLU}(r W_1 + e_1)) W_2 + e_2\big) W_3 + e_3

    with the readout :math:`r` and logits :math:`z`. The hidden layers have ``hidden`` and ``hidden / 2`` features.
    Trained with cross-entropy. A subclass implements ``forward_batch``.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features, at least 2.
        ratio (float): Fraction of the nodes that a selection keeps.
        num_layers (int): Number of graph convolutions.
        readout (int): Number of features of a readout.
        dropout (float): Dropout probability after the first linear layer.
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())
    """

    export_formats: ClassVar[tuple[str, ...]] = (".pt2",)  # ONNX has no stable sort
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden",)
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 64, 128)),
        "num_layers": Interval(2, 4),
        "ratio": Interval(0.25, 0.8),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int,
        ratio: float,
        num_layers: int,
        readout: int,
        dropout: float,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        owner = type(self).__name__
        check_at_least(owner, 2, hidden=hidden)
        check_at_least(owner, 1, num_layers=num_layers)
        check_fraction(owner, ratio=ratio)
        self.ratio = ratio
        widths = [in_channels] + [hidden] * num_layers
        self.convs = nn.ModuleList(ReplicaGCNConv(a, b, lead=lead) for a, b in pairwise(widths))
        self.first = ReplicaLinear(readout, hidden, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)
        self.second = ReplicaLinear(hidden, hidden // 2, lead=lead)
        self.last = ReplicaLinear(hidden // 2, num_classes, lead=lead)

    def reset_parameters(self) -> None:
        for part in (*self.convs, self.first, self.dropout, self.second, self.last):
            part.reset_parameters()

    def classify(self, readout: Tensor, segments: Segments) -> ModelOutput:
        """Logits of graphs from their readouts, ``[*lead, B, readout]``."""
        hidden = self.dropout(self.first(readout).relu(), segments.graph_mask)
        return ModelOutput(self.last(self.second(hidden).relu()))


def graph_convs(modules: nn.ModuleList) -> list[ReplicaGCNConv]:
    """The modules of a list of graph convolutions, with their type."""
    return [cast(ReplicaGCNConv, module) for module in modules]


def read_out(x: Tensor, segments: Segments, selection: Selection) -> Tensor:
    """Maximum and mean over the selected rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, 2 d]``."""
    return torch.cat([selected_max(x, segments, selection), selected_mean(x, segments, selection)], -1)
