"""How many capsules of the lowest level a trained model uses, and the warning if it is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.nn.graph_model import GraphModel
from graphcaps.types import GraphBatch, HGCNOutput

__all__ = ["CapsuleCollapseWarning", "CapsuleUse", "collapse_warning", "count_nodes", "measure_capsule_use"]

MIN_SHARE = 0.05
"""Share of the nodes from which a capsule is in use; with more than ten capsules, half of an equal share."""


class CapsuleCollapseWarning(UserWarning):
    """One capsule of the lowest level holds almost all nodes, so that the model shows no parts."""


@dataclass(frozen=True)
class CapsuleUse:
    r"""Number of capsules of the lowest level that are in use.

    A node belongs to the capsule with its largest routing coefficient, as in drawings of explanations. A capsule is in
    use if at least 5 % of all nodes belong to it, or half of an equal share if that is less:

    .. math::
        n_j = |\{i : \arg\max_k c_{ik} = j\}|, \quad
        \mathrm{in\ use} = \Big|\Big\{j : n_j \ge \min\Big(0.05, \frac{1}{2J}\Big) \sum_k n_k\Big\}\Big|

    Sums of coefficients do not show a collapse: with coefficients of 0.14 for one capsule and 0.095 for each of nine
    others, all nodes belong to the first one.

    Args:
        in_use (int): Number of capsules in use.
        capsules (int): Number of capsules J.
    """

    in_use: int
    capsules: int

    @classmethod
    def from_counts(cls, counts: Tensor) -> CapsuleUse:
        """From the number of nodes of each capsule, ``[J]``."""
        J = counts.size(-1)
        smallest = min(MIN_SHARE, 0.5 / J) * counts.sum()
        return cls(int(((counts >= smallest) & (counts > 0)).sum()), J)

    @property
    def collapsed(self) -> bool:
        """Whether one of several capsules is in use."""
        return self.in_use == 1 < self.capsules

    @property
    def warning(self) -> str:
        """What a collapse means and what to do, or "" if there is none."""
        return collapse_warning([self])


def collapse_warning(uses: Iterable[CapsuleUse]) -> str:
    """A warning if capsules have collapsed in one of several trainings of a model, else "".

    Args:
        uses (iterable): Capsules in use of each training.
    """
    listed = [*uses]
    collapsed = [use for use in listed if use.collapsed]
    if not collapsed:
        return ""
    only = f"nly {collapsed[0].in_use} of {collapsed[0].capsules} capsules is in use"
    start = f"O{only}" if len(listed) == 1 else f"In {len(collapsed)} of {len(listed)} trainings o{only}"
    return (
        f"{start}: almost all nodes belong to it, so the parts in explanations say little. "
        'Try parts="groups" (train --parts groups), another seed or fewer capsules (docs/parts.md).'
    )


def count_nodes(assignment: Tensor, mask: Tensor | None = None) -> Tensor:
    """Number of nodes that belong to each capsule, ``[*lead, J]``: those whose largest coefficient it has.

    Args:
        assignment (Tensor): Routing coefficients, ``[*lead, V, J]``.
        mask (Tensor, optional): True at nodes, False at padding, ``[*lead, V]``. (default: no padding)
    """
    top = assignment.argmax(-1)
    rows = torch.ones_like(top) if mask is None else mask.to(top.dtype)
    counts = top.new_zeros(*top.shape[:-1], assignment.size(-1))
    return counts.scatter_add_(-1, top, rows)


@torch.no_grad()
def measure_capsule_use(model: GraphModel, batches: Iterable[GraphBatch]) -> list[CapsuleUse]:
    """Capsules in use of the lowest level over all nodes of some batches.

    Args:
        model (GraphModel): A model; it is evaluated in evaluation mode, and its mode is restored.
        batches (iterable): At least one batch.

    Returns:
        list: An entry per replica, one without leading axes; empty for a model without capsules.
    """
    if not model.has_capsules:
        return []
    was_training = model.training
    model.eval()
    total: Tensor | None = None
    for batch in batches:
        output = model.forward_batch(batch)
        assert isinstance(output, HGCNOutput)
        counts = count_nodes(output.levels[0].assignment, batch.segments.row_mask)
        total = counts if total is None else total + counts
    model.train(was_training)
    assert total is not None, "no batches"
    return [CapsuleUse.from_counts(counts) for counts in total.cpu().reshape(-1, total.size(-1))]
