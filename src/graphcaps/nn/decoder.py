"""Reconstruction of the adjacency matrix from primary and class capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.nn.graph_layer import resolve_graph
from graphcaps.nn.initialise import draw_seeds_, linear_
from graphcaps.nn.primary_capsules import Formulation
from graphcaps.ops.activation.hashed_dropout import next_step_keys
from graphcaps.ops.batch_shard import current_shard
from graphcaps.ops.class_code.class_code import class_code
from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED
from graphcaps.ops.reconstruction.pair_loss_sampled import sampled_reconstruction_loss
from graphcaps.types import EdgeTable, Segments

__all__ = ["AdjacencyDecoder"]


class AdjacencyDecoder(nn.Module):
    r"""Reconstructs the edges of a graph from its capsules, as a regulariser.

    Auxiliary reconstruction of HGCN (AAAI 2021, Eq. 7-8, https://arxiv.org/abs/2012.08734):

    .. math::
        Z = u^{(1)} + (W_r^\top \Phi(u^{(L)}) + e_r), \quad \tilde A = Z Z^\top

    with primary capsules :math:`u^{(1)}` and class capsules :math:`u^{(L)}`, of which :math:`\Phi` keeps one and sets
    the others to zero. The loss is the binary cross-entropy between :math:`A` and :math:`\tilde A` over all pairs of
    nodes of a graph.

    The released formulation differs from the paper: ReLU after the linear map, products clamped to [0, 1] with a zero
    diagonal, 1e-7 inside the logarithms, division by Σn² over the batch. The formulation of the paper is completed
    where it leaves a choice: products are clamped to [1e-7, 1 − 1e-7], and all graphs have the same weight.

    Extension: for graphs with more than ``reconstruct_up_to`` nodes the loss is an unbiased estimate from sampled pairs
    (:func:`graphcaps.ops.reconstruction.pair_loss_sampled.sampled_reconstruction_loss`). The sample of a step is a
    function of the replica's seed and step, which are saved with the model as in :class:`ReplicaDropout`. In evaluation
    mode the sample is fixed.

    Args:
        num_classes (int): Number of classes O.
        class_dim (int): Length of a class capsule.
        capsule_dim (int): Length of a primary capsule.
        formulation (str): ``"released"`` or ``"paper"``. (default: "released")
        reconstruct_up_to (int, optional): Largest number of nodes of a graph for which the loss is exact;
            ``None`` for all graphs. (default: None)
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: The loss, one number per replica, ``[*lead]``.

    Example:
        >>> decoder = AdjacencyDecoder(num_classes=2, class_dim=8, capsule_dim=16)
        >>> primary, capsules = torch.rand(4, 16), torch.rand(1, 2, 8)
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> decoder(primary, edge_index, class_capsules=capsules, y=torch.tensor([1])).shape
        torch.Size([])
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
        if (
            reconstruct_up_to is not None
        ):  # otherwise nothing is sampled, and the state dict has no such buffers
            self.register_buffer("seed", torch.zeros(lead, dtype=torch.int64))
            self.register_buffer("step", torch.zeros(lead, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        linear_(self.weight, self.num_classes * self.class_dim)
        linear_(self.bias, self.num_classes * self.class_dim)
        if self.reconstruct_up_to is not None:
            draw_seeds_(self.seed)  # last, so that the initial weights do not depend on it
            self.step.zero_()

    def code(self, class_capsules: Tensor, y: Tensor) -> Tensor:
        """The vector added to all nodes of a graph, ``[*lead, B, d]``, from its capsule of class ``y [*lead, B]``."""
        return class_code(class_capsules, y, self.weight, self.bias, relu=self.formulation == "released")

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeTable,
        batch: Tensor | Segments | None = None,
        *,
        class_capsules: Tensor,
        y: Tensor,
        edge_weight: Tensor | None = None,
        num_graphs: int | None = None,
    ) -> Tensor:
        """The reconstruction loss of a batch.

        Args:
            x (Tensor): Primary capsules of the nodes, ``[*lead, V, d]``.
            edge_index, batch, edge_weight, num_graphs: As in :meth:`GraphLayer.forward`.
            class_capsules (Tensor): Class capsules of the graphs, ``[*lead, B, O, d]``.
            y (Tensor): Class of each graph whose capsule is kept, −1 at padding, ``[*lead, B]``.
        """
        edges, segments = resolve_graph(self, self.lead, x, edge_index, batch, edge_weight, num_graphs)
        # The kernels add the code while they read primary capsules: Z is not stored.
        rule = RELEASED if self.formulation == "released" else PAPER
        code, up_to = self.code(class_capsules, y), self.reconstruct_up_to
        share = self._share(segments)
        if up_to is None:
            loss = reconstruction_loss(x, edges, segments, rule, shift=code)
            return loss if share is None else loss * share.to(loss.dtype)
        # Also without a large graph in the batch: the stream must not depend on the other replicas.
        keys = self.next_keys(segments.row_mask) if self.training else None
        loss = sampled_reconstruction_loss(x, edges, segments, rule, code, keys=keys, up_to=up_to)
        return loss if share is None else loss * share.to(loss.dtype)

    def next_keys(self, mask: Tensor | None) -> Tensor:
        """The keys of the sample of the next step, ``[*lead, 2]``; ``mask [*lead, V]`` is true at the real rows."""
        with torch.no_grad():
            return next_step_keys(self.seed, self.step, mask)

    def _share(self, segments: Segments) -> Tensor | None:
        """The weight of a shard's own mean in the mean over the whole batch; ``None`` if the batch is whole."""
        shard = current_shard()
        if shard is None:
            return None
        if self.formulation == "released":
            own, whole = segments.sizes.double().square().sum(-1), shard.num_pairs
        else:
            own, whole = (segments.sizes > 0).sum(-1), shard.num_graphs
        return own / whole.clamp_min(1)

    def extra_repr(self) -> str:
        shown = f"{self.num_classes}, {self.class_dim}, {self.capsule_dim}"
        if self.reconstruct_up_to is not None:
            shown += f", reconstruct_up_to={self.reconstruct_up_to}"
        return shown + (f", lead={self.lead}" if self.lead else "")
