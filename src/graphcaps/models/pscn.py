"""Convolutions over receptive fields of nodes in a canonical order (PATCHY-SAN)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from graphcaps.data.structures.receptive_fields import ReceptiveFields
from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.field_conv import FieldConv
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.registry import MODELS, Choices, DataOption, Interval
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["PSCN"]

_KERNEL = 10
"""Number of fields in a window of the second convolution, and smallest number of fields."""


@MODELS.register("pscn")
class PSCN(LogitModel):
    r"""Classifies graphs with convolutions over receptive fields of their nodes in a canonical order.

    PATCHY-SAN (ICML 2016, https://arxiv.org/abs/1605.05273). Nodes are ranked by their Weisfeiler-Lehman colours. The
    first w nodes are the roots of fields: a breadth-first search grows a field until it has at least k nodes, and the
    first k by distance to the root, and then by rank, are kept. A graph is then a sequence of w · k rows of features,
    with zeros for missing nodes and fields, and is classified by convolutions along it:

    .. math::
        a_f &= \mathrm{ReLU}\Big(\sum_{p=1}^{k} x_{f_p} W_p + e_1\Big), \quad
        b_f = \mathrm{ReLU}([a_f, \dots, a_{f+9}] W + e_2), \\
        z &= \mathrm{dropout}\big(\mathrm{ReLU}([b_1, b_2, \dots] W_3 + e_3)\big) W_4 + e_4

    where :math:`f_p` is the p-th node of field f. The first convolution has 16 channels and the second 8. Trained with
    cross-entropy. Fields are computed once per data set (:mod:`graphcaps.data.structures.receptive_fields`).

    There is no released program. Completed here: colours start from degrees, the highest first, and labels do not enter
    the ranking; fields are ordered by the ranks in the whole graph; nodes of one colour are ordered by their indices,
    where the paper computes a canonical form. So scores may depend on the order in which nodes are listed. A BatchNorm
    precedes the first convolution, because attributes may have any scale. Where w is not set, it is the mean number of
    nodes, at least 10. With folds all graphs count, because all folds train together; with a split only training
    graphs do. Edge weights and edge labels are not read, other than as counts in the features.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        num_fields (int): Number of receptive fields w, at least 10; follows from the data if it is not set.
            (default: 20)
        field_size (int): Number of nodes k of a field. (default: 10)
        channels (tuple): Number of channels of both convolutions. (default: (16, 8))
        dense (int): Number of features of the hidden layer. (default: 128)
        dropout (float): Dropout probability before the last linear layer. (default: 0.5)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If an option is out of range.
    """

    export_formats: ClassVar[tuple[str, ...]] = ()  # fields are computed beforehand
    order_invariant: ClassVar[bool] = False
    reference: ClassVar[str] = (
        "Learning Convolutional Neural Networks for Graphs, ICML 2016, https://arxiv.org/abs/1605.05273"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "dense"
    memory_options: ClassVar[tuple[str, ...]] = ("num_fields", "field_size", "channels")
    data_options: ClassVar[Mapping[str, DataOption]] = {
        "num_fields": DataOption(
            lambda size: max(round(size.mean_nodes), _KERNEL), kept=True, by_default=True
        )
    }
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "field_size": Choices((5, 10)),
        "dense": Choices((64, 128)),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        num_fields: int = 20,
        field_size: int = 10,
        channels: tuple[int, int] = (16, 8),
        dense: int = 128,
        dropout: float = 0.5,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("PSCN", _KERNEL, num_fields=num_fields)
        check_at_least("PSCN", 1, field_size=field_size, channels=min(channels), dense=dense)
        self.num_fields, self.field_size = num_fields, field_size
        first, second = channels
        self.input_norm = RaggedBatchNorm(in_channels, lead=lead)
        self.fields = FieldConv(in_channels, first, num_fields, field_size, lead=lead)
        self.windows = ReplicaLinear(_KERNEL * first, second, lead=lead)
        self.inner = ReplicaLinear((num_fields - _KERNEL + 1) * second, dense, lead=lead)
        self.outer = ReplicaLinear(dense, num_classes, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    @property
    def precomputation(self) -> ReceptiveFields:
        return ReceptiveFields(self.num_fields, self.field_size)

    def reset_parameters(self) -> None:
        parts = (self.input_norm, self.fields, self.windows, self.inner, self.outer, self.dropout)
        for part in parts:
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x = self.input_norm(self.node_features(batch), batch.segments.row_mask)
        a = self.fields(x, batch.levels[0]).relu()  # [*lead, B, w, first]
        # A convolution is a linear map of overlapping windows, which works for replicas.
        windows = a.unfold(-2, _KERNEL, 1).flatten(-2)  # [*lead, B, w − 9, first · 10]
        b = self.windows(windows.flatten(-3, -2)).relu().unflatten(-2, (a.size(-3), -1)).flatten(-2)
        return ModelOutput(self.outer(self.dropout(self.inner(b).relu(), batch.segments.graph_mask)))
