"""Weights averaged over epochs: what is scored and kept, while training goes on from the last ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["WeightAverage"]


class WeightAverage:
    r"""A running mean of a model's weights at the ends of its epochs.

    Single steps are noisy, small batches most of all; their mean lies nearer to the middle of what fits. After
    epoch t the mean moves towards the last weights by

    .. math:: \max(1/t,\; 1/n)

    so it is the plain mean of the first n epochs, and forgets older ones at that rate from then on. Running
    statistics are averaged with the weights; counters are not.

    Args:
        model (Module): Holds its last weights while it learns, and the mean between epochs.
        epochs (int): n; with 1 the mean is the last weights.
    """

    def __init__(self, model: nn.Module, epochs: int) -> None:
        values = {name: value.detach() for name, value in model.state_dict().items()}
        self._own = {name: value for name, value in values.items() if value.is_floating_point()}
        self._last = {name: value.clone() for name, value in self._own.items()}
        self._mean = [value.clone() for value in self._own.values()]
        self.epochs, self.seen = epochs, 0

    def begin(self) -> None:
        """Before an epoch: the model goes on from its last weights."""
        if self.seen:  # before the first it holds those that it starts with
            torch._foreach_copy_([*self._own.values()], [*self._last.values()])

    def end(self) -> None:
        """After an epoch: the model holds the mean."""
        own, last = [*self._own.values()], [*self._last.values()]
        torch._foreach_copy_(last, own)
        self.seen += 1
        torch._foreach_lerp_(self._mean, last, max(1 / self.seen, 1 / self.epochs))
        torch._foreach_copy_(own, self._mean)

    def state(self) -> dict[str, Tensor]:
        """The last weights; the mean is the model's own between epochs."""
        return dict(self._last) if self.seen else {}

    def load_state(self, state: dict[str, Tensor], epoch: int) -> None:
        """Goes on where :meth:`state` was taken, after as many epochs. The model has the mean already."""
        self.seen = epoch
        for name, last in self._last.items() if epoch else ():
            last.copy_(state[name])
        torch._foreach_copy_(self._mean, [*self._own.values()])
