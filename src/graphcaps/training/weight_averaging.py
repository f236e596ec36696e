"""Weight averaging: the evaluated weights are a running mean, and training continues from the latest weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["WeightAverage"]


class WeightAverage:
    r"""A running mean of a model's weights at the ends of its epochs.

    The mean over epochs reduces the noise of single steps. After epoch t the mean :math:`\bar w` becomes

    .. math:: \bar w \leftarrow \bar w + \max(1/t,\; 1/n)\, (w - \bar w)

    with the latest weights :math:`w`: the plain mean of the first n epochs, and an exponential moving average from
    then on. Running statistics are averaged with the weights; integer buffers are not.

    Args:
        model (Module): Holds the latest weights during an epoch, and the mean between epochs.
        epochs (int): n; with 1 the mean equals the latest weights.
    """

    def __init__(self, model: nn.Module, epochs: int) -> None:
        values = {name: value.detach() for name, value in model.state_dict().items()}
        self._current = {name: value for name, value in values.items() if value.is_floating_point()}
        self._last = {name: value.clone() for name, value in self._current.items()}
        self._mean = [value.clone() for value in self._current.values()]
        self.epochs, self.seen = epochs, 0

    def begin(self) -> None:
        """Call before an epoch: the model gets its latest weights back."""
        if self.seen:  # before the first epoch it has its initial weights
            torch._foreach_copy_([*self._current.values()], [*self._last.values()])

    def end(self) -> None:
        """Call after an epoch: the model gets the mean."""
        current, last = [*self._current.values()], [*self._last.values()]
        torch._foreach_copy_(last, current)
        self.seen += 1
        torch._foreach_lerp_(self._mean, last, max(1 / self.seen, 1 / self.epochs))
        torch._foreach_copy_(current, self._mean)

    def state(self) -> dict[str, Tensor]:
        """The latest weights; the mean is the state of the model itself between epochs."""
        return dict(self._last) if self.seen else {}

    def load_state(self, state: dict[str, Tensor], epoch: int) -> None:
        """Continues from a result of :meth:`state` after ``epoch`` epochs. The model must already hold the mean."""
        self.seen = epoch
        for name, last in self._last.items() if epoch else ():
            last.copy_(state[name])
        torch._foreach_copy_(self._mean, [*self._current.values()])
