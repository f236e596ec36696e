"""The option ``parts="blocks"`` of HGCN: a loss that makes the capsules of the first level parts of the graph.

This is an extension; it is not in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.nn.graph_model import GraphModel
from graphcaps.ops.block_loss.block_loss import (
    TEMPERATURE,
    assignment_entropy,
    block_loss,
    block_sums,
    loss_of_sums,
)
from graphcaps.types import GraphBatch, HGCNOutput

__all__ = [
    "CONTEXT_HOPS",
    "CONTEXT_LAYERS",
    "TEMPERATURE",
    "Parts",
    "PartsOutput",
    "block_loss",
    "check_parts",
    "measure_block_loss",
]

Parts = Literal["blocks"]

CONTEXT_LAYERS = 3
"""Layers of :class:`graphcaps.nn.Context` under the votes, so that a node sees the part that it belongs to."""
CONTEXT_HOPS = 3
"""Hops after these layers, which make the votes of neighbours similar."""


@dataclass(frozen=True, repr=False, eq=False)
class PartsOutput(HGCNOutput):
    """Output of HGCN with the option ``parts="blocks"``.

    Args:
        parts_loss (Tensor, optional): :func:`block_loss` of the first level, one number per replica, ``[*lead]``.
    """

    parts_loss: Tensor | None = None


def check_parts(parts: str | None, weight: float) -> None:
    """Rejects an unknown option, and a negative or infinite weight."""
    if parts is not None and parts not in get_args(Parts):
        raise ArgumentError("HGCN", "parts", "be None or 'blocks'", repr(parts))
    if not 0 <= weight < float("inf"):
        raise ArgumentError("HGCN", "parts_weight", "be 0 or more, and finite", weight)


@torch.no_grad()
def measure_block_loss(model: GraphModel, batches: Iterable[GraphBatch]) -> float:
    """:func:`block_loss` of the lowest level over the graphs of all batches together.

    Args:
        model (GraphModel): An HGCN without leading axes; it is evaluated in evaluation mode, and its mode is restored.
        batches (iterable): At least one batch.
    """
    was_training = model.training
    model.eval()
    sums: Tensor | None = None
    entropy: Tensor | None = None
    for batch in batches:
        output = model.forward_batch(batch)
        assert isinstance(output, HGCNOutput)
        c = output.levels[0].assignment
        # The loss is no mean over graphs: densities are those of all batches.
        part = block_sums(c, batch.edges, batch.segments).double()
        disorder = assignment_entropy(c).double()
        sums = part if sums is None else sums + part
        entropy = disorder if entropy is None else entropy + disorder
    model.train(was_training)
    assert sums is not None, "no batches"
    assert entropy is not None
    return float(loss_of_sums(sums, entropy))
