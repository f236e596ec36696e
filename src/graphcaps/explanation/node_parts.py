"""To which whole each node was routed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.nn.hgcn import HGCN
from graphcaps.types import HGCNOutput

__all__ = ["NodeParts", "node_parts"]


@dataclass(frozen=True, eq=False)
class NodeParts:
    """What the first capsule layer made of the nodes of G graphs.

    Args:
        assignment (Tensor): How far each node belongs to each whole; rows sum to 1, ``[N, J]``.
        class_scores (Tensor): Lengths of the class capsules, ``[G, O]``.
    """

    assignment: Tensor
    class_scores: Tensor

    @property
    def capsule(self) -> Tensor:
        """The whole that each node belongs to most, ``[N]``."""
        return self.assignment.argmax(-1)


@torch.no_grad()
def node_parts(model: HGCN, store: GraphStore, x: Tensor, *, batch_size: int = 64) -> NodeParts:
    """Routes the nodes of all graphs of a store, in evaluation mode.

    Args:
        model (HGCN): A single model, without leading axes.
        store (GraphStore): Graphs.
        x (Tensor): Features of all their nodes, ``[N, in]``.
        batch_size (int): Graphs at a time; it changes nothing but memory. (default: 64)
    """
    if not isinstance(model, HGCN):
        raise ArgumentError("node_parts", "model", "have capsules", type(model).__name__)
    was_training = model.training
    model.eval()
    assignment, scores = [], []
    for chosen in torch.arange(len(store)).split(batch_size):
        output: HGCNOutput = model.forward_batch(store.batch(x, chosen))
        assignment.append(output.levels[0].assignment.cpu())
        scores.append(output.class_scores.cpu())
    model.train(was_training)
    return NodeParts(torch.cat(assignment), torch.cat(scores))
