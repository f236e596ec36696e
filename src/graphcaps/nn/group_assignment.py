"""The assignment of whole groups of nodes to capsules: the option ``parts="groups"`` of HGCN.

This is an extension; it is not in the paper.
"""

from __future__ import annotations

from torch import Tensor, nn

from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops.structure.pool_members import pool_members, spread_groups
from graphcaps.types import CoarseLevel, Segments

__all__ = ["SHARPNESS", "GroupAssignment"]

SHARPNESS = 4.0
"""Initial scale of the logits, in standard deviations over the nodes of a batch."""
_SMALLEST = 1e-30


class GroupAssignment(nn.Module):
    r"""Assigns all nodes of a group to the same capsules, by the mean of their routing logits.

    .. math::
        b_{ij} = \log c_{ij} - \frac1J \sum_k \log c_{ik}, \quad
        \bar b_{gj} = \frac{1}{|g|} \sum_{i \in g} b_{ij}, \quad
        c'_{ij} = \mathrm{softmax}_j \, \mathrm{BN}_j(\bar b_{g(i) j})

    with the coefficients c of a routing, whose logits are b up to a constant, and groups g that are computed from the
    graph (:func:`graphcaps.ops.structure.modularity_groups.modularity_groups`). BatchNorm over the nodes gives every
    capsule the same mean logit, so that none takes all nodes, and logits of the same size on all data sets; its scale
    starts at :data:`SHARPNESS`.

    Args:
        num_capsules (int): Number of capsules J.
        lead (tuple): Leading axes of the parameters. (default: ())

    Returns (from ``forward``):
        Tensor: Assignment c', ``[*lead, V, J]``, 0 at padding; equal for all nodes of a group.

    Example:
        >>> import networkx
        >>> from graphcaps.data.precompute import precompute
        >>> from graphcaps.ops.structure.modularity_groups import ModularityGroups
        >>> store = graphcaps.data.coerce([networkx.barbell_graph(4, 0)]).store  # two cliques, joined by an edge
        >>> batch = precompute(store, ModularityGroups()).batch(torch.ones(8, 1), torch.tensor([0]))
        >>> c = GroupAssignment(3)(torch.rand(8, 3).softmax(-1), batch.levels[0], batch.segments)
        >>> bool((c[:4] == c[0]).all()), bool((c[4:] == c[4]).all())
        (True, True)
    """

    def __init__(self, num_capsules: int, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.norm = RaggedBatchNorm(num_capsules, lead=lead)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.norm.reset_parameters()
        nn.init.constant_(self.norm.weight, SHARPNESS)

    def forward(self, assignment: Tensor, groups: CoarseLevel, segments: Segments) -> Tensor:
        """The assignment of groups from that of nodes, ``[*lead, V, J]``, and the level of groups of the batch."""
        mask = segments.row_mask
        b = assignment.clamp_min(_SMALLEST).log()
        b = b - b.mean(-1, keepdim=True)
        b = spread_groups(pool_members(b, groups, "mean"), groups, segments.num_rows)
        c = self.norm(b, mask).softmax(-1)
        return c if mask is None else c.masked_fill(~mask.unsqueeze(-1), 0)
