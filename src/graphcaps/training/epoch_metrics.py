"""Losses and right answers of an epoch, added up on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops.metric_sums.metric_sums import accumulate_metrics_
from graphcaps.types import LossTerms

__all__ = ["Tally"]


class Tally:
    """Sums over the steps of an epoch, per replica; read once, at its end.

    Args:
        num_replicas (int): F.
        device (device): Where the sums are kept.
    """

    def __init__(self, num_replicas: int, device: torch.device) -> None:
        self.right = torch.zeros(num_replicas, dtype=torch.float64, device=device)
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None  # [terms, F]
        self.sound: Tensor | None = None  # steps in which each term was a number, [terms, F]

    def clear(self) -> None:
        for tensor in self.tensors:
            tensor.zero_()

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.right, self.sums, self.sound) if tensor is not None]

    @torch.no_grad()
    def add(self, terms: LossTerms, scores: Tensor, y: Tensor) -> None:
        """Counts one step: a mean over graphs weighs as many graphs as it was taken over."""
        names = ("total", *terms.terms)
        values = torch.stack([terms.total, *terms.terms.values()]).detach()  # [terms, F]
        if self.sums is None or self.sound is None:
            self.names = names
            self.sums = torch.zeros(values.shape, dtype=torch.float64, device=values.device)
            self.sound = torch.zeros_like(self.sums)
        accumulate_metrics_(values, scores, y, self.sums, self.sound, self.right)

    def read(self) -> dict[str, Any]:
        """On the host: ``right [F]``, ``sums`` by name ``[F]`` each, ``sound`` by name (of the worst replica)."""
        if self.sums is None or self.sound is None:
            return {"right": self.right.cpu(), "sums": {}, "sound": {}}
        packed = torch.cat([self.sums, self.sound, self.right.unsqueeze(0)]).cpu()
        T = len(self.names)
        return {
            "right": packed[-1],
            "sums": dict(zip(self.names, packed[:T], strict=True)),
            "sound": dict(zip(self.names, packed[T : 2 * T].amin(-1).tolist(), strict=True)),
        }
