"""Loss and accuracy of every replica on its own part of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore

__all__ = ["PartScores", "pad_rows", "score_parts"]


@dataclass(frozen=True)
class PartScores:
    """``loss [F]`` (the classification term, mean over graphs) and ``accuracy [F]``; NaN for an empty part."""

    loss: Tensor
    accuracy: Tensor


def pad_rows(rows: list[Tensor]) -> Tensor:
    """Index vectors of several lengths as one matrix, −1 after the end of each."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


@torch.no_grad()
def score_parts(
    model: nn.Module, store: GraphStore, x: Tensor, parts: list[Tensor], batch_size: int
) -> PartScores:
    """Scores replica f of ``model`` on the graphs ``parts[f]``, in evaluation mode.

    The mode the model was in is restored.
    """
    graphs = pad_rows(parts)
    F, most = graphs.shape
    device = x.device
    loss = torch.zeros(F, dtype=torch.float64, device=device)
    right = torch.zeros(F, dtype=torch.float64, device=device)
    was_training = model.training
    model.eval()
    scoring: Any = model
    for start in range(0, most, batch_size):
        batch = store.batch(x, graphs[:, start : start + batch_size])
        assert batch.y is not None
        output = scoring.forward_batch(batch)
        counts = (batch.y >= 0).sum(-1)
        loss += scoring.loss(output, batch.y).total.double() * counts
        right += ((output.class_scores.argmax(-1) == batch.y) & (batch.y >= 0)).sum(-1)
    model.train(was_training)
    total = torch.tensor([part.numel() for part in parts], dtype=torch.float64, device=device)
    return PartScores(loss / total, right / total)
