"""Training metrics of an epoch, accumulated on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphcaps.ops.metric_sums.metric_sums import accumulate_metrics_
from graphcaps.types import LossTerms

__all__ = ["EpochMetrics"]


class EpochMetrics:
    """Sums of losses and correct predictions over the steps of an epoch, per replica. Read once, at its end.

    Args:
        num_replicas (int): Number of replicas F.
        device (device): Device of the sums.
    """

    def __init__(self, num_replicas: int, device: torch.device) -> None:
        self.correct = torch.zeros(num_replicas, dtype=torch.float64, device=device)
        self._steps: list[
            tuple[Tensor, Tensor, Tensor]
        ] = []  # on a CPU: values, scores and classes of each step
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None  # [terms, F]
        self.finite_steps: Tensor | None = None  # steps in which each term was finite, [terms, F]

    def clear(self) -> None:
        """Sets all sums to zero, in place."""
        self._steps.clear()
        for tensor in self._tensors:
            tensor.zero_()

    @property
    def _tensors(self) -> list[Tensor]:
        return [tensor for tensor in (self.correct, self.sums, self.finite_steps) if tensor is not None]

    @torch.no_grad()
    def add(self, terms: LossTerms, scores: Tensor, y: Tensor) -> None:
        """Adds one step. Losses are means over graphs and are weighted by the number of graphs.

        Args:
            terms (LossTerms): Losses of the step, ``[F]`` each.
            scores (Tensor): Class scores, ``[F, B, O]``.
            y (Tensor): Classes, −1 at padding, ``[F, B]``.
        """
        names = ("total", *terms.terms)
        values = terms.values()  # [terms, F]
        if self.sums is None or self.finite_steps is None:
            self.names = names
            self.sums = torch.zeros(values.shape, dtype=torch.float64, device=values.device)
            self.finite_steps = torch.zeros_like(self.sums)
        if values.device.type == "cpu":
            # One pass over the steps of an epoch takes a tenth of the operations of a pass per step.
            self._steps.append((values, scores.detach(), y))
        else:
            accumulate_metrics_(values, scores, y, self.sums, self.finite_steps, self.correct)

    def _add_steps(self, sums: Tensor, finite_steps: Tensor) -> None:
        """Adds the steps that were kept."""
        values = torch.stack([values for values, _, _ in self._steps])  # [S, terms, F]
        counts = torch.stack([(y >= 0).sum(-1) for _, _, y in self._steps])  # [S, F]
        sums += (values.double() * counts.unsqueeze(1)).cumsum(0)[-1]  # in the order of the steps
        finite_steps += values.isfinite().sum(0)
        scores = torch.cat([scores for _, scores, _ in self._steps], 1)
        y = torch.cat([y for _, _, y in self._steps], 1)
        self.correct += (scores.argmax(-1) == y).sum(-1)
        self._steps.clear()

    def read(self, total: Callable[[Tensor], Tensor] | None = None) -> dict[str, Any]:
        """The sums on the host.

        Args:
            total (callable, optional): Returns the sum of a tensor over all ranks. Losses that were added are those of
                the whole batch, and count once for each graph of a rank. (default: one process)

        Returns:
            dict: ``correct [F]``, ``sums [F]`` by term, and ``finite_steps`` by term, the minimum over replicas.
        """
        if self.sums is None or self.finite_steps is None:
            return {"correct": self.correct.cpu(), "sums": {}, "finite_steps": {}}
        if self._steps:
            self._add_steps(self.sums, self.finite_steps)
        packed = torch.cat([self.sums, self.finite_steps, self.correct.unsqueeze(0)]).cpu()
        T = len(self.names)
        if total is not None:  # all ranks have the same finite steps
            added = total(torch.cat([packed[:T], packed[-1:]]))
            packed = torch.cat([added[:T], packed[T : 2 * T], added[-1:]])
        return {
            "correct": packed[-1],
            "sums": dict(zip(self.names, packed[:T], strict=True)),
            "finite_steps": dict(zip(self.names, packed[T : 2 * T].amin(-1).tolist(), strict=True)),
        }
