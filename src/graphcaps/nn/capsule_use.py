"""How many capsules of the lowest level a trained model uses, and the warning if it is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hard_assignment import MeanCoefficients, group_nodes, hard_assignment, smallest_share
from graphcaps.types import GraphBatch, HGCNOutput

__all__ = ["CapsuleCollapseWarning", "CapsuleUse", "collapse_warning", "count_nodes", "measure_capsule_use"]


class CapsuleCollapseWarning(UserWarning):
    """One capsule of the lowest level holds almost all nodes, so that the model shows no parts."""


@dataclass(frozen=True)
class CapsuleUse:
    r"""Number of capsules of the lowest level that are in use.

    A node belongs to the capsule that :func:`graphcaps.nn.hard_assignment.hard_assignment` gives, as in drawings of
    explanations. A capsule is in use if at least 5 % of all nodes belong to it, or half of an equal share if that is
    less. With the number of nodes n_j of each capsule:

    .. math::
        \mathrm{in\ use} = \Big|\Big\{j : n_j \ge \min\Big(0.05, \frac{1}{2J}\Big) \sum_k n_k\Big\}\Big|

    Sums of coefficients do not show a collapse: if all nodes have the same coefficients, 0.14 for one capsule and 0.095
    for each of nine others, they belong to the first one.

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
        smallest = smallest_share(J) * counts.sum()
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
        "Try another seed or fewer capsules (docs/parts.md)."
    )


def count_nodes(capsule: Tensor, num_capsules: int, mask: Tensor | None = None) -> Tensor:
    """Number of nodes that belong to each capsule, ``[*lead, J]``.

    Args:
        capsule (Tensor): Capsule of each node, ``[*lead, V]``.
        num_capsules (int): Number of capsules J.
        mask (Tensor, optional): True at nodes, False at padding, ``[*lead, V]``. (default: no padding)
    """
    rows = torch.ones_like(capsule) if mask is None else mask.to(capsule.dtype)
    return capsule.new_zeros(*capsule.shape[:-1], num_capsules).scatter_add_(-1, capsule, rows)


@torch.no_grad()
def measure_capsule_use(
    model: GraphModel, batches: Iterable[GraphBatch], training_batches: Iterable[GraphBatch]
) -> list[CapsuleUse]:
    """Capsules in use of the lowest level over all nodes of some batches.

    Args:
        model (GraphModel): A model; it is evaluated in evaluation mode, and its mode is restored.
        batches (iterable): At least one batch.
        training_batches (iterable): Batches of the training graphs, for the means of routing coefficients; they are
            not read if the model has these means (:attr:`graphcaps.nn.HGCN.mean_coefficients`).

    Returns:
        list: An entry per replica, one without leading axes; empty for a model without capsules.
    """
    if not model.has_capsules:
        return []
    was_training = model.training
    model.eval()
    total: Tensor | None = None
    means = model.mean_coefficients or _measure_means(model, training_batches)
    for batch in batches:
        output = model.forward_batch(batch)
        assert isinstance(output, HGCNOutput)
        c = output.levels[0].assignment
        groups = group_nodes(batch) if model.assigns_groups else None
        capsule = hard_assignment(c, None if means is None else means[0][-1], groups, batch.segments.index)
        counts = count_nodes(capsule, c.size(-1), batch.segments.row_mask)
        total = counts if total is None else total + counts
    model.train(was_training)
    assert total is not None, "no batches"
    return [CapsuleUse.from_counts(counts) for counts in total.cpu().reshape(-1, total.size(-1))]


def _measure_means(model: GraphModel, batches: Iterable[GraphBatch]) -> tuple[Tensor, ...] | None:
    """Means of the routing coefficients over batches, ``None`` without any."""
    means = MeanCoefficients()
    for batch in batches:
        output = model.forward_batch(batch)
        assert isinstance(output, HGCNOutput)
        means.add(output, batch.segments)
    return means.means()
