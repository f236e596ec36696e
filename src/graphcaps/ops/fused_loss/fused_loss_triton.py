r"""The loss of an HGCN and the gradients of all its parameters in kernels, without autograd.

The layers of :class:`graphcaps.nn.HGCN` are the reference implementation; values and gradients are equal up to
rounding. Written out as a whole, a training step passes over the nodes less often:

* The sum of h over a graph, with which routing begins, is a weighted sum of the primary capsules, with the column sums
  of Â as weights: it is computed together with the statistics of the batch normalisation.
* The iterations of the class level are one kernel, and its gradient is one
  (:mod:`graphcaps.ops.fused_loss.class_level_triton`).
* The gradient of the nodes is a sum over output capsules, not over neighbours, and one pass over the rows computes it
  down to the projection of the features (:mod:`graphcaps.ops.fused_loss.node_level_gradient_triton`).

What the next kernel does not read runs beside it (:mod:`graphcaps.ops._triton.branches`): products of weights alone,
tables of the batch, the first agreement beside the hop, the coarse adjacency beside the output capsules, and the
gradients of the weights of a level beside the gradients below it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.branches import fork
from graphcaps.ops.activation.activation_triton import threshold_and_scale
from graphcaps.ops.batch_norm.graph_moments_triton import graph_statistics
from graphcaps.ops.fused_loss.capsule_pass_triton import HOPPED, TABLES, CapsulePass
from graphcaps.ops.fused_loss.kernel_loss import DropoutOfStep, KernelNetwork
from graphcaps.ops.fused_loss.node_level_gradient_triton import (
    NodeLevel,
    NodeRows,
    norm_gradient,
    row_gradients,
    scaled_sums,
)
from graphcaps.ops.fused_loss.written_out_loss import EarlyGradients
from graphcaps.ops.projection.projection_triton import (
    CapsuleOptions,
    Capsules,
    combine_products,
    feature_statistics,
    fold_projection,
    weight_products,
    write_capsules,
)
from graphcaps.ops.propagation.neighbour_sum_triton import (
    NormTerms,
    adjacency_product,
    hop_scale,
    hop_sums,
)
from graphcaps.ops.ragged.ragged_triton import ragged_sum
from graphcaps.ops.reconstruction.pair_loss_triton import prepare_tiles
from graphcaps.ops.routing.weighted_sum_triton import input_gradient
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import profiled
from graphcaps.types import FeatureRows, GraphBatch, LossOptions, TrainingLoss

__all__ = ["kernel_loss"]

_ROUTED = {"tf32": torch.float16, "bfloat16": torch.bfloat16}
"""Type of h, which only products read: as many bits as these have. TF32 has those of float16. Normalised capsules are
far from the limits of its range, and so are their averages; sums with edge weights may not be."""


def kernel_loss(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
) -> TrainingLoss | None:
    """As :func:`graphcaps.ops.fused_loss.kernel_loss.kernel_loss`, and never ``None``."""
    with torch.no_grad():
        return _Pass(network, batch, options, dropout).result()


class _Pass(CapsulePass):
    """All of the model in kernels."""

    def __init__(
        self, network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
    ) -> None:
        super().__init__(network, batch, options)
        assert network.primary is not None
        self.primary = network.primary
        self._project(dropout)
        self._hop()
        self._class_level()
        self._reconstruct(self.u)

    def _project(self, dropout: DropoutOfStep) -> None:
        """Primary capsules, and beside them what depends on weights or on the batch alone."""
        primary, edges, segments = self.primary, self.batch.edges, self.batch.segments
        F, V, d = self.network.num_replicas, self.V, self.d
        norm, features = primary.norm, self._features
        with profiled("primary"):
            self.u, self.squares = (primary.weight.new_empty(shape) for shape in ((F, V, d), (F, V)))
            # Before the kernels that fill the GPU: behind them, these would wait, and what reads them would too.
            with fork(stream=HOPPED) as drawn:
                self.dropout = dropout(segments.row_mask)
            with fork(stream=TABLES) as self._tables:
                self.scale = hop_scale(edges)
                self.hop_sums = hop_sums(edges, self.scale)
                if self.decoder is not None:
                    prepare_tiles(self.d, edges, segments)
            self._prepare()
            self.statistics = feature_statistics(
                features, (norm.mean, norm.var), training=True, momentum=norm.momentum, epsilon=norm.epsilon
            )
            affine = norm.weight, norm.bias
            folded = fold_projection(features, primary.weight, primary.bias, affine, self.statistics)
            drawn.join()
            capsules = Capsules(self.u, squares=self.squares)
            options = CapsuleOptions(self.dropout, RELEASED_EPSILON)
            write_capsules(features, folded, self.statistics[0], capsules, options, self.precision)

    @property
    def _features(self) -> FeatureRows:
        rows, F = self.batch.features, self.network.num_replicas
        assert isinstance(rows, FeatureRows)
        return FeatureRows(rows.table, rows.node.reshape(F, -1), rows.graphs.reshape(F, -1))

    def _hop(self) -> None:
        """Normalisation, hop and routing of the nodes."""
        level, edges, segments = self.network.nodes, self.batch.edges, self.batch.segments
        norm, precision = self.primary.nodes, self.precision
        F, V, d, lead = self.network.num_replicas, self.V, self.d, edges.node.shape[:-1]
        self.divisor = float(level.divisor or 0)
        with profiled("hop"):
            self._tables.join()
            moments = graph_statistics(
                self.u, self.ptr, norm.weight, norm.bias, (norm.mean, norm.var),
                momentum=norm.momentum, epsilon=norm.epsilon, divisor=self.divisor if level.residual else None,
                max_size=segments.max_size, row_weights=self.hop_sums.view(F, V),
            )  # fmt: skip
            mean, var, self.count = moments.statistics
            assert moments.sums is not None
            self.node_statistics = mean, var
            # The programs of the first agreement are few and large. Those of the hop would leave no room for them, and
            # do not go first in a branch.
            with fork(stream=HOPPED) as hopped:
                terms = NormTerms(mean, var, norm.weight, norm.bias, norm.epsilon)
                nodes = self.u.view(*lead, V, d)
                dtype = None if edges.weight is not None else _ROUTED.get(precision)
                h = adjacency_product(nodes, edges, self.scale, True, precision, terms, dtype)[0].view(
                    F, V, d
                )
        with profiled("routing"):
            self._agreements.join()
            T, tau = self._agree(moments.sums, None, None, None)
            hopped.join()
        self._route(h, moments.sums, T, tau, moments.means)

    def _beside_class_level(self) -> None:
        edges, F, V, J = self.batch.edges, self.network.num_replicas, self.V, self.c.size(-1)
        with fork(stream=HOPPED) as self._hopped:
            self.hopped = adjacency_product(self.c, edges, self.scale, True, self.precision)[0].view(F, V, J)
            self.hopped_sums = ragged_sum(self.hopped, self.ptr, self.batch.segments.max_size)

    def _node_level(self) -> NodeLevel:
        self._hopped.join()
        return NodeLevel(
            self.s, self.G, self.network.nodes.weight, self.residual, self.divisor, RELEASED_EPSILON, self.hopped_sums
        )  # fmt: skip

    def backward(self, early: EarlyGradients | None = None) -> list[Tensor | None]:
        """As :meth:`CapsulePass.backward`."""
        primary, rows, precision = self.primary, self.rows, self.precision
        above, grads, dG, of_capsules, branches = self._vote_gradients(early)
        norm = primary.nodes
        with fork(dG, stream=TABLES) as sums_of_nodes:
            assert grads.sums is not None
            assert grads.hat_sums is not None
            statistics = *self.node_statistics, self.count
            affine = norm.weight, norm.bias
            node_norm = norm_gradient(grads.sums, grads.hat_sums, statistics, affine, norm.epsilon)
        node_rows = NodeRows(
            self.u, self.squares, threshold_and_scale(self.dropout)[1], self._pair_gradient(), above.factor
        )
        dhat, _ = input_gradient(self.hopped, dG, rows, precision, shift=grads.shared)
        sums_of_nodes.join()
        dz, offset_sums, deviation_sums = row_gradients(
            dhat, node_norm, node_rows, self.ptr, RELEASED_EPSILON
        )
        with fork(stream=TABLES) as parts:
            doffset = scaled_sums(offset_sums)
            of_node_norm = scaled_sums(deviation_sums, node_norm.rstd), node_norm.shift
        mean, rstd = self.statistics
        products = weight_products(self._features, mean, dz, primary.weight, precision)
        parts.join()
        first = primary.norm
        dweight, dgamma, dbeta = combine_products(
            products, primary.weight, first.weight, (first.bias, rstd, doffset)
        )
        for branch in (*branches, self._losses):
            branch.join()
        return [dgamma, dbeta, dweight, doffset, *of_node_norm, *of_capsules]
