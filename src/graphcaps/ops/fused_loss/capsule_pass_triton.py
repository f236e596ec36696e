"""From propagated nodes to the losses of an HGCN with one hidden level, and gradients back, without autograd.

Routing of the nodes, the graph of the output capsules, the class level, margin loss and reconstruction. What computes
the nodes, and takes their gradient, is a subclass: kernels for the published model
(:mod:`graphcaps.ops.fused_loss.fused_loss_triton`), or the layers of a model with other message passing
(:mod:`graphcaps.ops.fused_loss.loss_of_rows_triton`).
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from graphcaps.ops._triton.branches import Branch, fork
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.batch_norm.batch_norm_triton import combine_statistics
from graphcaps.ops.class_code.class_code_triton import code_parameter_gradients
from graphcaps.ops.fused_loss.class_level_triton import (
    ClassGradients,
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
from graphcaps.ops.fused_loss.kernel_loss import KernelNetwork
from graphcaps.ops.fused_loss.loss_terms_triton import loss_terms
from graphcaps.ops.fused_loss.node_level_gradient_triton import (
    CapsuleGradients,
    NodeLevel,
    capsule_gradients,
    norm_gradient,
    scaled_sums,
    vote_gradients,
)
from graphcaps.ops.fused_loss.written_out_loss import EarlyGradients, WrittenOutLoss
from graphcaps.ops.propagation.neighbour_sum_triton import adjacency_product
from graphcaps.ops.ragged.ragged_triton import segment_product
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED
from graphcaps.ops.reconstruction.pair_loss_sampled_triton import sampled_pair_sums
from graphcaps.ops.reconstruction.pair_loss_triton import PairSums, pair_sums
from graphcaps.ops.routing.agreement_triton import agreement_matrices, update_agreement
from graphcaps.ops.routing.capsule_update_triton import (
    final_capsules,
    parameter_gradients,
    statistics_tables,
)
from graphcaps.ops.routing.weighted_sum_triton import Rows, assign_and_sum
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import profiled
from graphcaps.types import GraphBatch, LossOptions

__all__ = ["HOPPED", "TABLES", "CapsulePass"]

WEIGHTS, TABLES, HOPPED = 0, 1, 2
"""Side streams of :func:`graphcaps.ops._triton.branches.fork`: launches of one stream run in sequence, and those of the
first one have the lowest priority."""


class VoteGradients(NamedTuple):
    """Gradients down to the sums over nodes.

    Args:
        above (ClassGradients): Of the class level.
        capsules (CapsuleGradients): Of the output capsules over nodes.
        dG (Tensor): Of their sums G, ``[F, J, B, d]``.
        parameters (list): Of weight and bias of the nodes, of the norm of the class level, of the class level and of
            the decoder, which a branch computes; ``None`` for a decoder whose loss has no weight, and for all that were
            early.
        branches (tuple): To be joined before these are read. They read ``above`` and ``capsules``, which have to live
            until then.
    """

    above: ClassGradients
    capsules: CapsuleGradients
    dG: Tensor
    parameters: list[Tensor | None]
    branches: tuple[Branch, ...]


class CapsulePass:
    """A forward pass, and what its backward pass needs. Everything is kept until the end of the backward pass.

    A subclass calls :meth:`_prepare`, :meth:`_route`, :meth:`_class_level` and :meth:`_reconstruct` in this order.

    Args:
        network (KernelNetwork): The model; running averages are updated.
        batch (GraphBatch): Graphs with classes.
        options (LossOptions): Weight of the reconstruction loss.

    Attributes:
        losses (Tensor): The total, the margin loss and, with a decoder, the reconstruction loss, ``[2 or 3, F]``.
        level (ClassLevel): Results of the class level.
        c (Tensor): Assignments of the nodes, ``[*lead, V, J]``.
    """

    def __init__(self, network: KernelNetwork, batch: GraphBatch, options: LossOptions) -> None:
        assert batch.y is not None
        segments, F = batch.segments, network.num_replicas
        self.network, self.batch, self.precision = network, batch, dot_precision()
        self.B, self.V, self.d = segments.num_graphs, segments.num_rows, network.nodes.weight.size(-1)
        self.ptr = segments.ptr.reshape(F, self.B + 1).contiguous()
        self.rows = Rows(self.ptr, segments.max_size or self.V, F, self.V, self.B, fixed=False)
        self.weight = options.reconstruction_weight
        if isinstance(self.weight, Tensor):
            self.weight = self.weight.float().expand(network.lead).reshape(F).contiguous()
        reconstructs = isinstance(self.weight, Tensor) or self.weight != 0
        decoder = network.decoder if reconstructs else None
        self.decoder = None if decoder is None else Decoder(decoder.weight, decoder.bias)
        self.margin = MarginOptions(
            batch.y.reshape(F, self.B).contiguous(), network.upper, network.lower, network.absent_weight
        )

    def result(self) -> WrittenOutLoss:
        """The loss, after the forward pass."""
        scores = self.level.scores.view(*self.network.lead, *self.level.scores.shape[1:])
        losses = self.losses.view(-1, *self.network.lead)
        return WrittenOutLoss.of_values(losses, scores, self, self.network.parameters)

    def backward(self, early: EarlyGradients | None = None) -> list[Tensor | None]:
        """Gradients of all parameters; ``None`` for a decoder whose loss has no weight, and for those that ``early``
        received."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Begins with what depends on weights or on the batch alone, beside what computes the nodes."""
        with fork(stream=WEIGHTS) as self._agreements:
            levels = self.network.nodes, self.network.classes
            self.agreements = [
                agreement_matrices(level.weight, level.bias, self.precision) for level in levels
            ]

    def _agree(
        self, sums: Tensor, m: Tensor | None, T: Tensor | None, tau: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The agreement T and τ after an iteration with the sums G and m."""
        return update_agreement(
            sums, m, self.agreements[0], T, tau, self.rows, RELEASED_EPSILON, self.precision
        )

    def _route(self, h: Tensor, sums: Tensor, T: Tensor, tau: Tensor, residual: Tensor | None) -> None:
        """Routing of the nodes; beside its end, the graph of the output capsules.

        Args:
            h (Tensor): Propagated nodes, ``[F, V, d]``.
            sums (Tensor): Their sums over graphs, ``[F, B, d]``.
            T, tau (Tensor): From :meth:`_agree` with these sums.
            residual (Tensor, optional): Added before the last squash, ``[F, B, d]``.
        """
        level, edges, segments = self.network.nodes, self.batch.edges, self.batch.segments
        rows, precision = self.rows, self.precision
        F, B, J, lead = self.network.num_replicas, self.B, level.weight.size(1), edges.node.shape[:-1]
        self.residual = residual
        with profiled("routing"):
            G, m, c = sums, None, None
            for iteration in range(1, level.iterations):
                if iteration > 1:
                    T, tau = self._agree(G, m, T, tau)
                G, m, c = assign_and_sum(h, T, tau, rows, iteration == level.iterations - 1, precision)
            assert c is not None
            self.c = c.view(*lead, self.V, J)
            with fork(stream=TABLES) as self._coarse:
                coarse = adjacency_product(self.c, edges, None, False, precision)[0]
                adjacency = segment_product(self.c, coarse, segments)
                self.hops = hop_matrices(adjacency.view(F, B, J, J))
            self.tables = statistics_tables(level.weight, rows, precision)
            self.capsules, s, self.G, self.m = final_capsules(
                G, m, level.weight, level.bias, residual, rows, RELEASED_EPSILON, True, precision, self.tables
            )
            assert s is not None
            self.s = s

    def _class_level(self) -> None:
        """Class capsules, margin loss and code; beside them, what :meth:`_beside_class_level` does."""
        level, norm = self.network.classes, self.network.norm
        with profiled("class level"):
            mean, var, self.capsule_count = combine_statistics(
                **self.tables, running=(norm.mean, norm.var), momentum=norm.momentum
            )
            self.inputs = NormedCapsules(self.capsules, mean, var, norm.weight, norm.bias, norm.epsilon)
            self.class_weights = ClassWeights(
                level.weight, level.bias, self.agreements[1], level.iterations, level.residual
            )
            self.gram = gram_matrices(self.inputs, self.agreements[1], self.precision)
        with profiled("coarsening"):
            self._coarse.join()
        self._beside_class_level()
        with profiled("class level"):
            self.level = class_level(
                self.inputs, self.gram, self.hops, self.ptr, self.class_weights, RELEASED_EPSILON, self.precision,
                margin=self.margin, decoder=self.decoder,
            )  # fmt: skip

    def _beside_class_level(self) -> None:
        """What the gradient needs of the assignments."""

    def _reconstruct(self, u: Tensor) -> None:
        """Sums over pairs of nodes, with the primary capsules ``u [F, V, d]``, and the losses, which nothing of this
        step reads."""
        self.pairs: PairSums | None = None
        with profiled("reconstruction"):
            keys = self._sample_keys()
            if self.decoder is not None:
                lead = self.batch.edges.node.shape[:-1]
                assert self.level.code is not None
                code = self.level.code.view(*lead, self.B, self.d)
                self.pairs = self._pair_sums(u.view(*lead, self.V, self.d), code, keys)
            assert self.level.margin is not None
            parts = None if self.pairs is None else self.pairs.partial
            with fork(stream=TABLES) as self._losses:
                self.losses = loss_terms(self.level.margin.flatten(1), parts, self.ptr, self.weight)

    def _sample_keys(self) -> Tensor | None:
        """Keys of the sampled pairs. Drawn in every step, so that they do not depend on other replicas or weights."""
        sampling = None if self.network.decoder is None else self.network.decoder.sampling
        return None if sampling is None else sampling.keys(self.batch.segments.row_mask)

    def _pair_sums(self, z: Tensor, code: Tensor, keys: Tensor | None) -> PairSums:
        """Sums over pairs of nodes, sampled ones if there are keys and the batch has a large graph."""
        edges, segments = self.batch.edges, self.batch.segments
        assert self.network.decoder is not None
        sampling, largest = self.network.decoder.sampling, segments.max_size
        if sampling is None or keys is None or (largest is not None and largest <= sampling.up_to):
            return pair_sums(z, code, edges, segments, RELEASED, True)
        return sampled_pair_sums(z, code, edges, segments, RELEASED, keys, sampling.up_to, sampling.pairs)

    def _vote_gradients(self, early: EarlyGradients | None) -> VoteGradients:
        """Gradients from the losses down to the sums over nodes, and of the parameters on the way. Nothing below reads
        these parameters: they may be updated beside it."""
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
        level = self._node_level()
        grads = capsule_gradients(
            above, self.level, inputs, class_norm, level, self.ptr, precision,
            residual=network.classes.residual,
        )  # fmt: skip
        of_decoder: list[Tensor | None] = [] if network.decoder is None else [None, None]
        with fork(class_norm.rstd, stream=WEIGHTS) as branch:  # the caller keeps the rest
            of_nodes = parameter_gradients(self.G, self.m, grads.ds, rows, precision)
            of_norm = scaled_sums(grads.deviation_sums, class_norm.rstd), class_norm.shift
            of_classes = parameter_gradients(self.level.G, self.level.m, above.ds, rows, precision)
            if self.decoder is not None:
                assert above.dcode is not None
                of_decoder[:] = code_parameter_gradients(
                    self.level.capsules, self.margin.y, self.decoder.weight, above.dcode, precision
                )
        dG = vote_gradients(grads, level, precision)
        parameters = [*of_nodes, *of_norm, *of_classes, *of_decoder]
        if early is None:
            return VoteGradients(above, grads, dG, parameters, (branch,))
        with fork(*parameters, stream=WEIGHTS) as updated:  # behind the branch above, and behind dG
            early([*[None] * (len(network.parameters) - len(parameters)), *parameters])
        return VoteGradients(above, grads, dG, [None] * len(parameters), (branch, updated))

    def _node_level(self) -> NodeLevel:
        """What the gradient of the output capsules over nodes reads."""
        raise NotImplementedError

    def _pair_gradient(self) -> Tensor | None:
        """The gradient of the sums over pairs in the primary capsules, ``[F, V, d]``, if they are in the loss."""
        if self.pairs is None:
            return None
        assert self.pairs.grad_z is not None
        return self.pairs.grad_z.view(self.network.num_replicas, self.V, self.d)
