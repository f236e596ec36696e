"""Loss and accuracy of every replica on its own part of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.data.batching import collate_padded
from graphcaps.data.store import GraphStore
from graphcaps.training.batch_schedule import pad_rows
from graphcaps.training.streaming import open_store
from graphcaps.types import FeatureTable, GraphBatch

__all__ = ["PartScorer", "PartScores"]


@dataclass(frozen=True)
class PartScores:
    """``loss [F]`` (the classification term, mean over graphs) and ``accuracy [F]``; NaN for an empty part."""

    loss: Tensor
    accuracy: Tensor


class PartScorer:
    """Scores replica f on the graphs ``parts[f]``, again and again; the sums stay on the device until read.

    Args:
        model (Module): Leading axis F; scored in evaluation mode, and left in the mode it was in.
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
        parts (list): Graphs of each replica's part.
        batch_size (int): Graphs of a replica that are scored at a time.
        weights (dict, optional): Arguments of the model's loss.
    """

    def __init__(
        self,
        model: nn.Module,
        store: GraphStore,
        x: Tensor | FeatureTable,
        parts: list[Tensor],
        batch_size: int,
        weights: dict[str, Any] | None = None,
    ) -> None:
        self.weights = weights or {}
        self.model, self.store, self.x = model, store, x
        graphs = pad_rows(parts)
        device = next(model.parameters()).device
        self.sums = torch.zeros(2, len(parts), dtype=torch.float64, device=device)  # loss, right answers
        self.counts = torch.tensor([part.numel() for part in parts], dtype=torch.float64)
        self.chunks = [chunk for chunk in graphs.split(batch_size, 1) if chunk.numel()]

    def launch(self) -> None:
        """Scores all parts."""
        source = open_store(self.store, self.sums.device)
        self._over(source.batch(self.x, chunk) for chunk in self.chunks)

    def body(self) -> Callable[[], None]:
        """The same as a function that asks the host nothing: graphs and sizes are looked up now."""
        sizes = self.store.host_node_ptr.diff()
        ready = []
        for chunk in self.chunks:
            rows = sizes[chunk.clamp_min(0)].masked_fill(chunk < 0, 0).sum(-1)
            ready.append((chunk.to(self.store.device), int(rows.max())))
        return lambda: self._over(collate_padded(self.store, self.x, chunk, slots) for chunk, slots in ready)

    @torch.no_grad()
    def _over(self, batches: Any) -> None:
        was_training = self.model.training
        self.model.eval()
        scoring: Any = self.model
        self.sums.zero_()
        for batch in batches:
            self._add(scoring, batch)
        self.model.train(was_training)

    def _add(self, scoring: Any, batch: GraphBatch) -> None:
        assert batch.y is not None
        output = scoring.forward_batch(batch)
        loss = scoring.loss(output, batch.y, **self.weights).total.double() * (batch.y >= 0).sum(-1)
        right = (output.class_scores.argmax(-1) == batch.y).sum(-1)
        self.sums.add_(torch.stack([loss, right.double()]))

    def read(self) -> PartScores:
        """What the last launch found, on the host."""
        loss, right = self.sums.cpu() / self.counts
        return PartScores(loss, right)
