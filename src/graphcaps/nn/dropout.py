"""Dropout with a random stream per replica."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import check_probability
from graphcaps.nn.initialise import draw_seeds_
from graphcaps.ops.activation.hashed_dropout import HashedDropout, apply_dropout, next_step_keys

__all__ = ["ReplicaDropout"]


class ReplicaDropout(nn.Module):
    """Sets elements to zero with probability p in training mode, and scales the others by 1 / (1 − p).

    Which elements are dropped is a hash of the replica's seed, its step and the position of the element; there is no
    generator state. A replica therefore drops the same elements alone and among others, on a CPU and on a GPU. Seed and
    step are saved with the model, so a resumed run continues the stream.

    Args:
        p (float or Tensor): Probability of an element to be dropped, 0 ≤ p < 1; one per replica, ``[*lead]``, as a
            tensor.
        lead (tuple): Leading axes: one stream per replica. (default: ())

    Example:
        >>> ReplicaDropout(0.5).eval()(torch.ones(2, 3))
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """

    seed: Tensor
    step: Tensor

    def __init__(self, p: float | Tensor, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        for each in p.tolist() if isinstance(p, Tensor) else [p]:
            check_probability("ReplicaDropout", dropout=each)
        self._p, self.lead = p, lead
        if isinstance(p, Tensor):
            # As integers, which a change of the model's data type leaves as they are: a rounded probability would
            # drop other elements.
            self.register_buffer("_p_bits", p.double().view(torch.int64), persistent=False)
        self.register_buffer("seed", torch.zeros(lead, dtype=torch.int64))
        self.register_buffer("step", torch.zeros(lead, dtype=torch.int64))
        self.reset_parameters()

    @property
    def p(self) -> float | Tensor:
        """The probability; float64 ``[*lead]`` if there is one per replica."""
        bits = self._buffers.get("_p_bits")
        return self._p if bits is None else bits.view(torch.float64)

    def reset_parameters(self) -> None:
        """Draws a new seed from torch's default generator."""
        draw_seeds_(self.seed)
        self.step.zero_()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Drops from ``x [*lead, V, d]``; ``mask [*lead, V]`` is True at real rows.

        A replica without a real row takes no step.
        """
        dropout = self.next_dropout(mask)
        return x if dropout is None else apply_dropout(x, dropout)

    @torch.no_grad()
    def next_dropout(self, mask: Tensor | None = None) -> HashedDropout | None:
        """What this step drops, ``None`` for nothing; then goes on to the next step."""
        if not self.training or (not isinstance(self._p, Tensor) and self._p == 0):
            return None
        return HashedDropout(next_step_keys(self.seed, self.step, mask), self.p)

    def extra_repr(self) -> str:
        return f"p={self._p.tolist() if isinstance(self._p, Tensor) else self._p}"
