"""A multilayer perceptron on the nodes of a graph: the baseline without edges."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.pooling import sum_pool
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.registry import MODELS, Choices, Interval
from graphcaps.types import GraphBatch, ModelOutput

__all__ = ["MLP"]


@MODELS.register("mlp")
class MLP(LogitModel):
    r"""Classifies graphs as sets of nodes and reads no edge.

    The structure-agnostic baseline of Errica et al. (ICLR 2020, https://arxiv.org/abs/1912.09893): a linear map with
    ReLU for each node, a sum over the nodes of a graph, and two linear maps,

    .. math::
        H = \mathrm{ReLU}(X W_1 + e_1), \quad
        z = \mathrm{ReLU}\Big(\sum_i H_i W_2 + e_2\Big) W_3 + e_3

    with logits :math:`z`. With ``node_layers=0`` the input columns themselves are summed; Errica et al. do so for
    molecules and proteins without attributes. Trained with cross-entropy.

    Whether a run uses edges at all depends on its input columns too: degrees and propagated columns are computed from
    them. The preset ``published`` has neither.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features. (default: 128)
        node_layers (int): Number of linear maps before the sum, 0 for none. (default: 1)
        dropout (float): Dropout probability before the last linear layer. (default: 0.0)
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If a size or the dropout probability is out of range.
    """

    reference: ClassVar[str] = (
        "A Fair Comparison of Graph Neural Networks for Graph Classification, ICLR 2020, "
        "https://arxiv.org/abs/1912.09893"
    )
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden",)
    searched: ClassVar[Mapping[str, Choices | Interval]] = {
        "hidden": Choices((32, 128, 256)),
        "node_layers": Interval(0, 2),
        "dropout": Interval(0.0, 0.7),
    }
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int = 128,
        node_layers: int = 1,
        dropout: float = 0.0,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least("MLP", 1, hidden=hidden)
        check_at_least("MLP", 0, node_layers=node_layers)
        widths = [in_channels] + [hidden] * node_layers
        self.nodes = nn.ModuleList(ReplicaLinear(a, b, lead=lead) for a, b in pairwise(widths))
        self.inner = ReplicaLinear(widths[-1], hidden, lead=lead)
        self.outer = ReplicaLinear(hidden, num_classes, lead=lead)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (*self.nodes, self.inner, self.outer, self.dropout):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x, segments = self.node_features(batch), batch.segments
        for linear in self.nodes:
            x = linear(x).relu()
        g = self.inner(sum_pool(x, segments)).relu()
        return ModelOutput(self.outer(self.dropout(g, segments.graph_mask)))
