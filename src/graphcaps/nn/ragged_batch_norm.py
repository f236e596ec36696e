"""Batch normalisation of ragged batches, for one model or many."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.ops.activated_product.activated_product import Parts, activated_product
from graphcaps.ops.batch_norm.batch_norm import Running, batch_norm, standardise
from graphcaps.ops.batch_norm.norm_with_means import NormWithMeans, norm_with_means
from graphcaps.ops.propagation.normalised_dense_hop import DenseHop, normalised_dense_hop
from graphcaps.ops.propagation.normalised_hop import Hop, normalised_hop
from graphcaps.types import EdgeTable, Segments

__all__ = ["RaggedBatchNorm"]


class RaggedBatchNorm(nn.Module):
    r"""Batch normalisation over the real rows of a ragged batch.

    .. math:: y = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta

    with mean and variance over the real rows in training mode, and their running averages in evaluation mode. Without
    padding it equals :class:`torch.nn.BatchNorm1d`, except that a single row is normalised to :math:`\beta` instead of
    raising an error. Rows are the nodes of a batch (``mask=segments.row_mask``) or its graphs, after pooling
    (``mask=segments.graph_mask``).

    Args:
        channels (int): Number of features of a row.
        lead (tuple): Leading axes of the parameters. (default: ())
        momentum (float): Weight of the current batch in the running averages. (default: 0.1)
        epsilon (float): Added to the variance. (default: 1e-5)

    Example:
        >>> RaggedBatchNorm(1)(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([True, True, False])).round()
        tensor([[-1.],
                [ 1.],
                [ 0.]], grad_fn=<RoundBackward0>)
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, channels: int, *, lead: tuple[int, ...] = (), momentum: float = 0.1, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.channels, self.lead, self.momentum, self.epsilon = channels, lead, momentum, epsilon
        self.weight = nn.Parameter(torch.empty(*lead, channels))
        self.bias = nn.Parameter(torch.empty(*lead, channels))
        self.register_buffer("running_mean", torch.empty(*lead, channels))
        self.register_buffer("running_var", torch.empty(*lead, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalises ``x [*lead, V, channels]``; ``mask [*lead, V]`` is True at real rows, others become 0.

        A mask of graphs with n rows each, ``[*lead, V / n]``, stands for all their rows.
        """
        return batch_norm(x, mask, self.weight, self.bias, self._running, **self._options)

    def with_means(
        self, x: Tensor, segments: Segments, *, residual: bool = True, divisor: int | None = None
    ) -> NormWithMeans:
        """Normalises the nodes of a batch, and takes the mean of every graph.

        Equals ``forward`` followed by the mean, in fewer passes over the rows
        (:func:`graphcaps.ops.batch_norm.norm_with_means.norm_with_means`); arguments as in :meth:`hop`.
        """
        return norm_with_means(
            x, self.weight, self.bias, self._running, segments,
            residual=residual, divisor=divisor, **self._options,
        )  # fmt: skip

    def activate_product(
        self,
        parts: Parts,
        matrix: Tensor,
        mask: Tensor | None = None,
        residual: Tensor | None = None,
        *,
        gated: bool = False,
    ) -> Tensor:
        """``residual + relu(forward(x))`` of the product x of all parts, side by side, and W; or with gates.

        Equals ``forward`` and the other operations in fewer passes over the rows
        (:func:`graphcaps.ops.activated_product.activated_product.activated_product`).

        Args:
            parts (tuple): One tensor, or two side by side, ``[*lead, V, K]`` each; padding rows are finite.
            matrix (Tensor): W, ``[*lead, K · len(parts), channels]``.
            mask: As in ``forward``.
            residual (Tensor, optional): Added to the result, ``[*lead, V, C]``. (default: 0)
            gated (bool): Whether the second half of the channels are gates of the first, whose sigmoid multiplies it.
                (default: False)
        """
        return activated_product(
            parts, matrix, mask, self.weight, self.bias, self._running, residual, gated=gated, **self._options
        )

    def standardise(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        r"""As ``forward``, without :math:`\gamma`, :math:`\beta` and gradient. Running averages are updated too.

        For rows that need no gradient: :math:`\gamma` and :math:`\beta` can be folded into the linear map that follows.
        """
        return standardise(x, mask, self._running, **self._options)

    def hop(
        self,
        u: Tensor,
        edges: EdgeTable,
        segments: Segments,
        *,
        residual: bool = True,
        divisor: int | None = None,
    ) -> Hop:
        """Normalises capsules, propagates them along the edges once, and takes their mean in every graph.

        Equals ``forward`` followed by the two other operations, in fewer passes over the rows
        (:func:`graphcaps.ops.propagation.normalised_hop.normalised_hop`).

        Args:
            u (Tensor): Capsules, ``[*lead, V, channels]``.
            edges (EdgeTable): Edges of the batch.
            segments (Segments): Which row belongs to which graph.
            residual (bool): Whether the mean is computed. (default: True)
            divisor (int, optional): Divides the sum of each graph. (default: its number of rows)
        """
        return normalised_hop(
            u, self.weight, self.bias, self._running, edges, segments,
            residual=residual, divisor=divisor, **self._options,
        )  # fmt: skip

    def dense_hop(self, u: Tensor, adjacency: Tensor, mask: Tensor | None = None) -> DenseHop:
        """Normalises the capsules of a level, propagates them once, and takes their mean in every graph.

        Equals ``forward`` followed by the two other operations, in fewer passes over the capsules
        (:func:`graphcaps.ops.propagation.normalised_dense_hop.normalised_dense_hop`).

        Args:
            u (Tensor): Capsules, ``[*lead, B, n, channels]``.
            adjacency (Tensor): Their graph, ``[*lead, B, n, n]``.
            mask (Tensor, optional): True at graphs with nodes, ``[*lead, B]``. (default: all)
        """
        return normalised_dense_hop(
            u, adjacency, mask, self.weight, self.bias, self._running, **self._options
        )

    @property
    def _running(self) -> Running:
        return self.running_mean, self.running_var

    @property
    def _options(self) -> dict[str, Any]:
        return {"training": self.training, "momentum": self.momentum, "epsilon": self.epsilon}

    def extra_repr(self) -> str:
        return f"{self.channels}" + (f", lead={self.lead}" if self.lead else "")
