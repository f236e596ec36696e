"""The loss of an HGCN whose nodes are propagated by layers: kernels from the votes on, autograd below them.

This serves models with message passing of their own under the votes, and other primary capsules. The gradient of the
propagated nodes is written out, and autograd takes it from there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.branches import fork
from graphcaps.ops.fused_loss.capsule_pass_triton import HOPPED, CapsulePass
from graphcaps.ops.fused_loss.kernel_loss import KernelNetwork, PropagatedRows
from graphcaps.ops.fused_loss.node_level_gradient_triton import NodeLevel
from graphcaps.ops.fused_loss.written_out_loss import EarlyGradients
from graphcaps.ops.propagation.normalised_hop import Hop
from graphcaps.ops.ragged.ragged_triton import ragged_sum
from graphcaps.ops.routing.weighted_sum_triton import input_gradient
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.profiling import profiled
from graphcaps.types import GraphBatch, LossOptions, TrainingLoss

__all__ = ["loss_of_rows"]


def loss_of_rows(
    network: KernelNetwork, batch: GraphBatch, options: LossOptions, rows: PropagatedRows
) -> TrainingLoss | None:
    """As :func:`graphcaps.ops.fused_loss.kernel_loss.loss_of_rows`, and never ``None``."""
    return _Pass(network, batch, options, rows).result()


class _Pass(CapsulePass):
    """Kernels from the votes on.

    Attributes:
        hop (Hop): What the votes read, with the graph of autograd.
    """

    def __init__(
        self, network: KernelNetwork, batch: GraphBatch, options: LossOptions, rows: PropagatedRows
    ) -> None:
        super().__init__(network, batch, options)
        with torch.no_grad():
            self._prepare()
        self.hop: Hop = rows()
        with torch.no_grad():
            self._run()

    def _run(self) -> None:
        hop, F = self.hop, self.network.num_replicas
        # Layers may compute in half precision, with autocast.
        h, u = (each.float().reshape(F, self.V, self.d).contiguous() for each in (hop.h, hop.inputs))
        residual = None if hop.mean is None else hop.mean.float().reshape(F, self.B, self.d).contiguous()
        with profiled("routing"):
            sums = ragged_sum(h, self.ptr, self.batch.segments.max_size)
            self._agreements.join()
            T, tau = self._agree(sums, None, None, None)
        self._route(h, sums, T, tau, residual)
        self._class_level()
        self._reconstruct(u)

    def _node_level(self) -> NodeLevel:
        # With a divisor of 1, the gradient that the nodes of a graph have in common is that of the residual.
        return NodeLevel(self.s, self.G, self.network.nodes.weight, self.residual, 1.0, RELEASED_EPSILON)

    def backward(self, early: EarlyGradients | None = None) -> list[Tensor | None]:
        """Gradients of the parameters from the votes on; those below are added by autograd."""
        above, grads, dG, of_capsules, branches = self._vote_gradients(early)
        hop, pairs = self.hop, self._pair_gradient()
        F, V, J = self.network.num_replicas, self.V, self.c.size(-1)
        with fork(pairs, above.factor, stream=HOPPED) as scaled:
            if pairs is not None:
                assert above.factor is not None
                pairs = pairs * above.factor[:, None, None]
        dh, _ = input_gradient(self.c.view(F, V, J), dG, self.rows, self.precision)
        scaled.join()
        outputs: list[tuple[Tensor, Tensor]] = [(hop.h, dh)]
        if hop.mean is not None:
            assert grads.shared is not None
            outputs.append((hop.mean, grads.shared))
        if pairs is not None:
            outputs.append((hop.inputs, pairs))
        needed = [(tensor, grad.view(tensor.shape)) for tensor, grad in outputs if tensor.requires_grad]
        if needed:
            tensors, gradients = zip(*needed, strict=True)
            with torch.enable_grad():
                root: Tensor = _Root.apply(gradients, *tensors)
            root.backward()
        for branch in (*branches, self._losses):
            branch.join()
        return of_capsules


class _Root(torch.autograd.Function):
    """A number of which tensors have given gradients; its value has no meaning.

    ``torch.autograd.backward`` does the same with gradients as an argument, but then imports sympy for half a second.
    """

    @staticmethod
    def forward(ctx: Any, gradients: tuple[Tensor, ...], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return tensors[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Any:
        return None, *ctx.gradients
