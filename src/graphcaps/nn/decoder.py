"""Reconstruction of the input graph from the capsules at both ends of the hierarchy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.initialise import linear_
from graphcaps.nn.primary_capsules import Formulation
from graphcaps.ops.activation.hashed_dropout import next_step_keys
from graphcaps.ops.class_code.class_code import class_code
from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED
from graphcaps.ops.reconstruction.pair_loss_sampled import sampled_reconstruction_loss
from graphcaps.types import EdgeTable, Segments

__all__ = ["AdjacencyDecoder"]


class AdjacencyDecoder(nn.Module):
    r"""Asks that capsules can tell which nodes are joined.

    Auxiliary reconstruction of HGCN (AAAI 2021, Eq. 7-8, https://arxiv.org/abs/2012.08734):

    .. math::
        Z = u^{(1)} + (W_r^\top \Phi(u^{(L)}) + e_r), \quad \tilde A = Z Z^\top

    with primary capsules :math:`u^{(1)}` and class capsules :math:`u^{(L)}`, all but one of which
    :math:`\Phi` sets to zero. The loss is the binary cross-entropy between :math:`A` and
    :math:`\tilde A` over all pairs of nodes of a graph.

    Differs from the paper in the released formulation: ReLU around the linear map, products between 0 and
    1 with 0 on the diagonal, 1e-7 inside the logarithms, division by Σn² over the batch. The paper's
    formulation needs a completion to be computable: products are clamped to [1e-7, 1 − 1e-7], and graphs
    count alike.

    Ours, where asked for: of graphs above ``reconstruct_up_to`` nodes a sample of the pairs counts
    (:func:`graphcaps.ops.reconstruction.pair_loss_sampled.sampled_reconstruction_loss`), whose mean over draws
    is the loss
    above. What a step draws follows from the replica's seed and step, which are saved with the model, as those
    of :class:`ReplicaDropout` are; outside training the draw is always the same.

    Args:
        num_classes (int): Number of classes O.
        class_dim (int): Length of a class capsule.
        capsule_dim (int): Length of a primary capsule.
        formulation (str): ``"released"`` or ``"paper"``. (default: "released")
        reconstruct_up_to (int, optional): Nodes of a graph up to which all its pairs count; ``None`` counts
            all pairs of every graph. (default: None)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: The loss, one number per replica, ``[*lead]``.
    """

    seed: Tensor
    step: Tensor

    def __init__(
        self,
        num_classes: int,
        class_dim: int,
        capsule_dim: int,
        *,
        formulation: Formulation = "released",
        reconstruct_up_to: int | None = None,
        lead: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.num_classes, self.class_dim, self.capsule_dim = num_classes, class_dim, capsule_dim
        self.formulation, self.reconstruct_up_to, self.lead = formulation, reconstruct_up_to, lead
        self.weight = nn.Parameter(torch.empty(*lead, num_classes * class_dim, capsule_dim))
        self.bias = nn.Parameter(torch.empty(*lead, capsule_dim))
        if reconstruct_up_to is not None:  # else nothing is drawn, and model files stay as they are
            self.register_buffer("seed", torch.zeros(lead, dtype=torch.int64))
            self.register_buffer("step", torch.zeros(lead, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linear_(self.weight, self.num_classes * self.class_dim)
        linear_(self.bias, self.num_classes * self.class_dim)
        if self.reconstruct_up_to is not None:
            self.seed.copy_(torch.randint(1 << 62, self.lead))  # last: weights start as they do without it
            self.step.zero_()

    def code(self, class_capsules: Tensor, y: Tensor) -> Tensor:
        """What is added to all nodes of a graph, ``[*lead, B, d]``, from its capsule of class ``y [*lead, B]``."""
        return class_code(class_capsules, y, self.weight, self.bias, relu=self.formulation == "released")

    def forward(
        self, primary: Tensor, class_capsules: Tensor, y: Tensor, edges: EdgeTable, segments: Segments
    ) -> Tensor:
        # Z is never formed where kernels serve.
        rule = RELEASED if self.formulation == "released" else PAPER
        code, up_to = self.code(class_capsules, y), self.reconstruct_up_to
        if up_to is None:
            return reconstruction_loss(primary, edges, segments, rule, shift=code)
        keys = None
        if self.training:
            # Also where no graph is large: whether one is may be another replica's matter.
            with torch.no_grad():
                keys = next_step_keys(self.seed, self.step, segments.row_mask)
        return sampled_reconstruction_loss(primary, edges, segments, rule, code, keys=keys, up_to=up_to)

    def extra_repr(self) -> str:
        shown = f"{self.num_classes}, {self.class_dim}, {self.capsule_dim}"
        if self.reconstruct_up_to is not None:
            shown += f", reconstruct_up_to={self.reconstruct_up_to}"
        return shown + (f", lead={self.lead}" if self.lead else "")
