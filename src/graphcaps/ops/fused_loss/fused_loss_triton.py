r"""The loss of an HGCN and the gradients of all its parameters in kernels, without autograd.

The layers of :class:`graphcaps.nn.HGCN` are the reference implementation; values and gradients are equal up to
rounding. Written out as a whole, a training step passes over the nodes less often:

* The sum of h over a graph, with which routing begins, is a weighted sum of the primary capsules, with the column sums
  of Â as weights: it is computed together with the statistics of the batch normalisation.
* The class level is one kernel forward and one backward (:mod:`graphcaps.ops.fused_loss.class_level_triton`).
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
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.activation.activation_triton import threshold_and_scale
from graphcaps.ops.batch_norm.batch_norm_triton import combine_statistics
from graphcaps.ops.batch_norm.graph_moments_triton import graph_statistics
from graphcaps.ops.class_code.class_code_triton import code_parameter_gradients
from graphcaps.ops.fused_loss.class_level_triton import (
    ClassWeights,
    CodeSums,
    Decoder,
    MarginOptions,
    NormedCapsules,
    class_level,
    class_level_gradients,
    gram_matrices,
    hop_matrices,
)
from graphcaps.ops.fused_loss.kernel_loss import DropoutOfStep, KernelNetwork
from graphcaps.ops.fused_loss.loss_terms_triton import loss_terms
from graphcaps.ops.fused_loss.node_level_gradient_triton import (
    NodeLevel,
    NodeRows,
    capsule_gradients,
    norm_gradient,
    row_gradients,
    scaled_sums,
    vote_gradients,
)
from graphcaps.ops.fused_loss.written_out_loss import WrittenOutLoss
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
from graphcaps.ops.ragged.ragged_triton import ragged_sum, segment_product
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED
from graphcaps.ops.reconstruction.pair_loss_triton import pair_sums, prepare_tiles
from graphcaps.ops.routing.agreement_triton import agreement_matrices, update_agreement
from graphcaps.ops.routing.capsule_update_triton import (
    final_capsules,
    parameter_gradients,
    statistics_tables,
)
from graphcaps.ops.routing.weighted_sum_triton import Rows, assign_and_sum, input_gradient
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import profiled
from graphcaps.types import FeatureRows, GraphBatch, LossOptions, TrainingLoss

__all__ = ["kernel_loss"]

_ROUTED = {"tf32": torch.float16, "bfloat16": torch.bfloat16}
"""Type of h, which only products read: as many bits as these have. TF32 has those of float16. Normalised capsules are
far from the limits of its range, and so are their averages; sums with edge weights may not be."""
_WEIGHTS, _TABLES, _HOPPED = 0, 1, 2
"""Side streams of :func:`graphcaps.ops._triton.branches.fork`: launches of one stream run in sequence."""


def kernel_loss(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
) -> TrainingLoss | None:
    """As :func:`graphcaps.ops.fused_loss.kernel_loss.kernel_loss`, and never ``None``."""
    with torch.no_grad():
        done = _Pass(network, batch, options, dropout)
    scores = done.level.scores.view(*network.lead, *done.level.scores.shape[1:])
    return WrittenOutLoss.of_values(done.losses.view(-1, *network.lead), scores, done, network.parameters)


class _Pass:
    """A forward pass, and what its backward pass needs. Everything is kept until the end of the backward pass.

    Attributes:
        losses (Tensor): The total, the margin loss and, with a decoder, the reconstruction loss, ``[2 or 3, F]``.
        level (ClassLevel): Results of the class level.
    """

    def __init__(
        self, network: KernelNetwork, batch: GraphBatch, options: LossOptions, dropout: DropoutOfStep
    ) -> None:
        assert isinstance(batch.features, FeatureRows)
        assert batch.y is not None
        segments, F = batch.segments, network.num_replicas
        self.network, self.batch, self.precision = network, batch, dot_precision()
        self.B, self.V, self.d = segments.num_graphs, segments.num_rows, network.weight.size(-1)
        self.ptr = segments.ptr.reshape(F, self.B + 1).contiguous()
        self.rows = Rows(self.ptr, segments.max_size or self.V, F, self.V, self.B, fixed=False)
        self.weight = options.reconstruction_weight
        if isinstance(self.weight, Tensor):
            self.weight = self.weight.float().expand(network.lead).reshape(F).contiguous()
        reconstructs = isinstance(self.weight, Tensor) or self.weight != 0
        self.decoder = Decoder(*network.decoder) if network.decoder is not None and reconstructs else None
        self.margin = MarginOptions(
            batch.y.reshape(F, self.B).contiguous(), network.upper, network.lower, network.absent_weight
        )
        self._primary(dropout)
        self._node_level()
        self._class_level()
        with profiled("reconstruction"):
            self._reconstruct()

    def _primary(self, dropout: DropoutOfStep) -> None:
        """Primary capsules, and beside them what depends on weights or on the batch alone."""
        network, edges, segments = self.network, self.batch.edges, self.batch.segments
        F, V, d = network.num_replicas, self.V, self.d
        norm, features = network.norm, self._features
        with profiled("primary"):
            with fork(stream=_HOPPED) as drawn:
                self.dropout = dropout(segments.row_mask)
            self.statistics = feature_statistics(
                features, (norm.mean, norm.var), training=True, momentum=norm.momentum, epsilon=norm.epsilon
            )
            affine = norm.weight, norm.bias
            folded = fold_projection(features, network.weight, network.bias, affine, self.statistics)
            self.u, self.squares = (network.weight.new_empty(shape) for shape in ((F, V, d), (F, V)))
            with fork(stream=_WEIGHTS) as self._agreements:
                levels = network.nodes, network.classes
                self.agreements = [
                    agreement_matrices(level.weight, level.bias, self.precision) for level in levels
                ]
            with fork(stream=_TABLES) as self._tables:
                self.scale = hop_scale(edges)
                self.hop_sums = hop_sums(edges, self.scale)
                if self.decoder is not None:
                    prepare_tiles(self.u, edges, segments)
            drawn.join()
            capsules = Capsules(self.u, squares=self.squares)
            options = CapsuleOptions(self.dropout, RELEASED_EPSILON)
            write_capsules(features, folded, self.statistics[0], capsules, options, self.precision)

    @property
    def _features(self) -> FeatureRows:
        rows, F = self.batch.features, self.network.num_replicas
        assert isinstance(rows, FeatureRows)
        return FeatureRows(rows.table, rows.node.reshape(F, -1), rows.graphs.reshape(F, -1))

    def _node_level(self) -> None:
        """Normalisation, hop and routing of the nodes; beside its end, the graph of the output capsules."""
        level, edges, segments = self.network.nodes, self.batch.edges, self.batch.segments
        norm, rows, precision, epsilon = level.norm, self.rows, self.precision, RELEASED_EPSILON
        F, B, V, d = self.network.num_replicas, self.B, self.V, self.d
        J, lead = level.weight.size(1), edges.node.shape[:-1]
        self.divisor = float(level.divisor or 0)
        with profiled("hop"):
            self._tables.join()
            moments = graph_statistics(
                self.u, self.ptr, norm.weight, norm.bias, (norm.mean, norm.var),
                momentum=norm.momentum, epsilon=norm.epsilon, divisor=self.divisor if level.residual else None,
                max_size=segments.max_size, row_weights=self.hop_sums.view(F, V),
            )  # fmt: skip
            (mean, var, self.count), self.residual = moments.statistics, moments.means
            assert moments.sums is not None
            self.node_statistics = mean, var
            with fork(moments.sums, stream=_WEIGHTS) as first:
                T, tau = update_agreement(
                    moments.sums, None, self.agreements[0], None, None, rows, epsilon, precision
                )
            terms = NormTerms(mean, var, norm.weight, norm.bias, norm.epsilon)
            nodes = self.u.view(*lead, V, d)
            dtype = None if edges.weight is not None else _ROUTED.get(precision)
            h = adjacency_product(nodes, edges, self.scale, True, precision, terms, dtype)[0].view(F, V, d)
        with profiled("routing"):
            first.join()
            G, m, c = moments.sums, None, None
            for iteration in range(1, level.iterations):
                if iteration > 1:
                    T, tau = update_agreement(G, m, self.agreements[0], T, tau, rows, epsilon, precision)
                G, m, c = assign_and_sum(h, T, tau, rows, iteration == level.iterations - 1, precision)
            assert c is not None
            self.c = c.view(*lead, V, J)
            with fork(stream=_TABLES) as self._coarse:
                coarse = adjacency_product(self.c, edges, None, False, precision)[0]
                adjacency = segment_product(self.c, coarse, segments)
                self.hops = hop_matrices(adjacency.view(F, B, J, J))
            self.tables = statistics_tables(level.weight, rows, precision)
            self.capsules, s, self.G, self.m = final_capsules(
                G, m, level.weight, level.bias, self.residual, rows, epsilon, True, precision, self.tables
            )
            assert s is not None
            self.s = s

    def _class_level(self) -> None:
        """Class capsules, margin loss and code; beside them, what the gradient needs of the assignments."""
        edges, segments = self.batch.edges, self.batch.segments
        level, norm = self.network.classes, self.network.classes.norm
        with profiled("class level"):
            mean, var, self.capsule_count = combine_statistics(
                **self.tables, running=(norm.mean, norm.var), momentum=norm.momentum
            )
            self.inputs = NormedCapsules(self.capsules, mean, var, norm.weight, norm.bias, norm.epsilon)
            self._agreements.join()
            self.class_weights = ClassWeights(
                level.weight, level.bias, self.agreements[1], level.iterations, level.residual
            )
            self.gram = gram_matrices(self.inputs, self.agreements[1], self.precision)
        with profiled("coarsening"):
            self._coarse.join()
        with fork(stream=_HOPPED) as self._hopped:
            F, V, J = self.network.num_replicas, self.V, self.c.size(-1)
            self.hopped = adjacency_product(self.c, edges, self.scale, True, self.precision)[0].view(F, V, J)
            self.hopped_sums = ragged_sum(self.hopped, self.ptr, segments.max_size)
        with profiled("class level"):
            self.level = class_level(
                self.inputs, self.gram, self.hops, self.ptr, self.class_weights, RELEASED_EPSILON, self.precision,
                margin=self.margin, decoder=self.decoder,
            )  # fmt: skip

    def _reconstruct(self) -> None:
        """Sums over all pairs of nodes, and the losses, which nothing of this step reads."""
        self.pairs = None
        if self.decoder is not None:
            lead = self.batch.edges.node.shape[:-1]
            assert self.level.code is not None
            code = self.level.code.view(*lead, self.B, self.d)
            z = self.u.view(*lead, self.V, self.d)
            self.pairs = pair_sums(z, code, self.batch.edges, self.batch.segments, RELEASED, True)
        assert self.level.margin is not None
        parts = None if self.pairs is None else self.pairs.partial
        with fork(stream=_TABLES) as self._losses:
            self.losses = loss_terms(self.level.margin, parts, self.ptr, self.weight)

    def backward(self) -> list[Tensor | None]:
        """Gradients of all parameters; ``None`` for a decoder whose loss has no weight."""
        network, rows, precision = self.network, self.rows, self.precision
        sums = None
        if self.pairs is not None:
            assert self.pairs.sums is not None
            sums = CodeSums(self.pairs.sums, self.pairs.height, self.weight)
        above = class_level_gradients(
            self.level, self.ptr, self.class_weights, RELEASED_EPSILON, precision, self.margin, self.decoder, sums
        )  # fmt: skip
        inputs, statistics = self.inputs, (self.inputs.mean, self.inputs.var, self.capsule_count)
        class_norm = norm_gradient(
            above.sums, above.hat_sums, statistics, (inputs.weight, inputs.bias), inputs.epsilon
        )
        self._hopped.join()
        level = NodeLevel(
            self.s, self.G, network.nodes.weight, self.residual, self.divisor, self.hopped, self.hopped_sums,
            RELEASED_EPSILON,
        )  # fmt: skip
        grads = capsule_gradients(above, self.level, inputs, class_norm, level, self.ptr, precision)
        of_decoder: list[Tensor | None] = [] if network.decoder is None else [None, None]
        with fork(stream=_WEIGHTS) as weights:
            of_nodes = parameter_gradients(self.G, self.m, grads.ds, rows, precision)
            of_class_norm = scaled_sums(grads.deviation_sums, class_norm.rstd), class_norm.shift
            of_classes = parameter_gradients(self.level.G, self.level.m, above.ds, rows, precision)
            if self.decoder is not None:
                assert above.dcode is not None
                of_decoder[:] = code_parameter_gradients(
                    self.level.capsules, self.margin.y, self.decoder.weight, above.dcode, precision
                )
        dG = vote_gradients(grads, level, precision)
        norm = network.nodes.norm
        with fork(dG, stream=_TABLES) as sums_of_nodes:
            statistics = *self.node_statistics, self.count
            affine = norm.weight, norm.bias
            node_norm = norm_gradient(grads.sums, grads.hat_sums, statistics, affine, norm.epsilon)
        node_rows = NodeRows(
            self.u, self.squares, threshold_and_scale(self.dropout)[1],
            None if self.pairs is None else self._pair_gradient(), above.factor,
        )  # fmt: skip
        dhat, _ = input_gradient(self.hopped, dG, rows, precision, shift=grads.shared)
        sums_of_nodes.join()
        dz, offset_sums, deviation_sums = row_gradients(
            dhat, node_norm, node_rows, self.ptr, RELEASED_EPSILON
        )
        with fork(stream=_TABLES) as parts:
            doffset = scaled_sums(offset_sums)
            of_node_norm = scaled_sums(deviation_sums, node_norm.rstd), node_norm.shift
        mean, rstd = self.statistics
        products = weight_products(self._features, mean, dz, network.weight, precision)
        parts.join()
        first = network.norm
        dweight, dgamma, dbeta = combine_products(
            products, network.weight, first.weight, (first.bias, rstd, doffset)
        )
        for branch in (weights, self._losses):
            branch.join()
        of_primary = (dgamma, dbeta, dweight, doffset)
        return [*of_primary, *of_node_norm, *of_nodes, *of_class_norm, *of_classes, *of_decoder]

    def _pair_gradient(self) -> Tensor:
        assert self.pairs is not None
        assert self.pairs.grad_z is not None
        return self.pairs.grad_z.view(self.network.num_replicas, self.V, self.d)
