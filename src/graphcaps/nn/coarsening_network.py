"""Graph convolutions on a graph and on its precomputed coarser levels."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from graphcaps.errors import check_at_least
from graphcaps.nn.dropout import ReplicaDropout
from graphcaps.nn.gcn_conv import ReplicaGCNConv
from graphcaps.nn.logit_model import LogitModel
from graphcaps.nn.pooling import sum_pool
from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.nn.replica_linear import ReplicaLinear
from graphcaps.ops.structure.pool_members import MemberReduction, pool_members
from graphcaps.types import EdgeTable, GraphBatch, ModelOutput, Segments

__all__ = ["CoarseningNetwork"]


class _Block(nn.Module):
    """Graph convolutions, each after a BatchNorm if there is one, and followed by ReLU."""

    def __init__(
        self, in_channels: int, hidden: int, num_layers: int, batch_norm: bool, lead: tuple[int, ...]
    ) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * (num_layers - 1)]
        self.convs = nn.ModuleList(ReplicaGCNConv(width, hidden, lead=lead) for width in widths)
        self.norms = nn.ModuleList(RaggedBatchNorm(width, lead=lead) for width in widths if batch_norm)

    def reset_parameters(self) -> None:
        for part in (*self.convs, *self.norms):
            part.reset_parameters()

    def forward(self, x: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
        norms = self.norms or [None] * len(self.convs)
        for norm, conv in zip(norms, self.convs, strict=True):
            x = x if norm is None else norm(x, segments.row_mask)
            x = conv(x, edges, segments).relu()
        return x


class CoarseningNetwork(LogitModel):
    r"""Blocks of graph convolutions, the first on the graph and every other one on the next precomputed level.

    .. math::
        H^{(0)} = \mathrm{Block}_0(X, A), \quad
        H^{(l)} = \mathrm{Block}_l\big(\mathrm{pool}_l(H^{(l-1)}), A_l\big), \quad
        z = \mathrm{ReLU}(g W + e) W' + e'

    A block is :math:`H \leftarrow \mathrm{ReLU}(\hat A H W + e)`, repeated. Levels that remain after the last block are
    pooled too, and :math:`g` is the sum over the rows of a graph that result. Trained with cross-entropy. A subclass
    states the levels in its ``precomputation``. Edge weights, if there are any, are read by the first block only.

    Args:
        in_channels (int): Number of input features.
        num_classes (int): Number of classes.
        hidden (int): Number of hidden features.
        num_layers (int): Number of graph convolutions of a block.
        pooled_widths (tuple): For each block after the first, and then for the readout, the number of rows of length
            ``hidden`` that one row holds after pooling: the weights H of a member, or 1.
        reduction (str): How members are combined, see :func:`graphcaps.ops.structure.pool_members.pool_members`.
        batch_norm (bool): Whether a BatchNorm precedes every convolution and both linear layers.
        dropout (float): Dropout probability before the last linear layer.
        lead (tuple): Leading axes: ``(F,)`` holds F independent models. (default: ())

    Raises:
        ArgumentError: If a number is below 1.

    Example:
        >>> from graphcaps.models.cliquepool import CliquePool
        >>> triangle_and_edge = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
        >>> CliquePool(4, 2, hidden=8)(torch.rand(4, 4), triangle_and_edge).class_scores.shape
        torch.Size([1, 2])
    """

    export_formats: ClassVar[tuple[str, ...]] = ()  # levels are computed beforehand
    replica_options: ClassVar[tuple[str, ...]] = ("dropout",)
    width_option: ClassVar[str | None] = "hidden"
    memory_options: ClassVar[tuple[str, ...]] = ("hidden",)
    capturable: bool = True

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        hidden: int,
        num_layers: int,
        pooled_widths: tuple[int, ...],
        reduction: MemberReduction,
        batch_norm: bool,
        dropout: float,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__(in_channels, num_classes, lead=lead)
        check_at_least(type(self).__name__, 1, hidden=hidden, num_layers=num_layers)
        self.reduction = reduction
        widths = [in_channels, *(factor * hidden for factor in pooled_widths[:-1])]
        self.blocks = nn.ModuleList(_Block(width, hidden, num_layers, batch_norm, lead) for width in widths)
        readout = pooled_widths[-1] * hidden
        self.inner = ReplicaLinear(readout, hidden, lead=lead)
        self.outer = ReplicaLinear(hidden, num_classes, lead=lead)
        sizes = (readout, hidden) if batch_norm else ()
        self.norms = nn.ModuleList(RaggedBatchNorm(size, lead=lead) for size in sizes)
        self.dropout = ReplicaDropout(dropout, lead=lead)

    def reset_parameters(self) -> None:
        for part in (*self.blocks, self.inner, self.outer, *self.norms, self.dropout):
            part.reset_parameters()

    def forward_batch(self, batch: GraphBatch, y: Tensor | None = None) -> ModelOutput:
        """Logits of the graphs of a batch; ``y`` is ignored."""
        x, edges, segments = self.node_features(batch), batch.edges, batch.segments
        for number, block in enumerate(self.blocks):
            if number:
                level = batch.levels[number - 1]
                x, edges, segments = pool_members(x, level, self.reduction), level.edges, level.segments
            x = block(x, edges, segments)
        for level in batch.levels[len(self.blocks) - 1 :]:
            x, segments = pool_members(x, level, self.reduction), level.segments
        g, mask = sum_pool(x, segments), batch.segments.graph_mask
        if self.norms:
            g = self.norms[0](g, mask)
        g = self.inner(g).relu()
        if self.norms:
            g = self.norms[1](g, mask)
        return ModelOutput(self.outer(self.dropout(g, mask)))
