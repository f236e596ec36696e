"""A training loss whose gradients, or those of the upper part of a model, are written out and not autograd's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from graphcaps.types import LossTerms, TrainingLoss

__all__ = ["EarlyGradients", "ForwardPass", "WrittenOutLoss"]

EarlyGradients = Callable[[Sequence[Tensor | None]], None]
"""Takes the gradient of each parameter, ``None`` for one that has none yet."""


class ForwardPass(Protocol):
    """A forward pass, with what its backward pass needs."""

    def backward(self, early: EarlyGradients | None = None) -> Sequence[Tensor | None]:
        """The gradient of each parameter, in any shape; ``None`` if the loss does not depend on it.

        Args:
            early (callable, optional): May be called before the end with the gradients of some parameters that are not
                read any more, and ``None`` for others. Their result is ``None``.
        """


@dataclass(frozen=True, repr=False, eq=False)
class WrittenOutLoss(TrainingLoss):
    """A loss of which only :meth:`backward` computes gradients; its tensors have none.

    Args:
        forward_pass (ForwardPass): What computed the loss.
        parameters (tuple): The parameters that receive its gradients, in their order.
    """

    forward_pass: ForwardPass = field(repr=False)
    parameters: tuple[Tensor, ...] = field(repr=False)

    @classmethod
    def of_values(
        cls, values: Tensor, class_scores: Tensor, forward_pass: ForwardPass, parameters: tuple[Tensor, ...]
    ) -> WrittenOutLoss:
        """The loss from its total, the margin loss and, with a decoder, the reconstruction loss, ``[terms, *lead]``."""
        total, *terms = values.unbind()
        by_name = dict(zip(("margin", "reconstruction")[: len(terms)], terms, strict=True))
        return cls(LossTerms(total, by_name, values), class_scores, forward_pass, parameters)

    def backward(self, update: Callable[[], None] | None = None) -> None:
        """As :meth:`TrainingLoss.backward`."""

        def early(grads: Sequence[Tensor | None]) -> None:
            self._add(grads)
            assert update is not None
            update()

        with torch.no_grad():
            self._add(self.forward_pass.backward(None if update is None else early))

    def _add(self, grads: Sequence[Tensor | None]) -> None:
        for parameter, grad in zip(self.parameters, grads, strict=True):
            if grad is None or not parameter.requires_grad:
                continue
            shaped = grad.view(parameter.size())
            parameter.grad = shaped if parameter.grad is None else parameter.grad + shaped
