"""Dropout whose stream belongs to the replica: the same numbers whatever runs beside it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError

__all__ = ["ReplicaDropout"]


class ReplicaDropout(nn.Module):
    """Zeroes numbers with probability p while training, and scales the rest by 1 / (1 − p).

    Which numbers are dropped is a hash of the replica's seed, its step, and the place of the number; no
    generator holds a state. So a replica drops the same numbers alone as among others, on a CPU as on a GPU,
    and a resumed run goes on where the broken one stopped: seed and step are saved with the model.

    Args:
        p (float): Share of numbers dropped, 0 ≤ p < 1.
        lead (tuple): Leading axes: one stream per replica. (default: ())
    """

    seed: Tensor
    step: Tensor

    def __init__(self, p: float, *, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ArgumentError("ReplicaDropout", "dropout", "be at least 0 and below 1", p)
        self.p, self.lead = p, lead
        self.register_buffer("seed", torch.zeros(lead, dtype=torch.int64))
        self.register_buffer("step", torch.zeros(lead, dtype=torch.int64))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new seed from torch's own generator."""
        self.seed.copy_(torch.randint(1 << 62, self.lead))
        self.step.zero_()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Drops from ``x [*lead, V, d]``; ``mask [*lead, V]`` is True at real rows.

        A replica without a real row takes no step.
        """
        if not self.training or self.p == 0:
            return x
        keep = _keep(self.seed, self.step, x.size(-2), x.size(-1), self.p)
        with torch.no_grad():
            self.step += 1 if mask is None else mask.any(-1)
        return x * keep.to(x.dtype).mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _keep(seed: Tensor, step: Tensor, rows: int, width: int, p: float) -> Tensor:
    """Which numbers stay, ``[*lead, rows, width]``: a 32-bit mixing of the place under two 32-bit keys."""
    key = _mix64(seed ^ _mix64(step + 1)).unsqueeze(-1)
    first, second = key.to(torch.int32), (key >> 32).to(torch.int32)
    # The place depends on the row and not on how many rows there are: padding moves nothing.
    h = torch.arange(rows * width, dtype=torch.int32, device=seed.device).mul_(-1640531527) + first
    h.bitwise_xor_((h >> 16) & 0xFFFF).mul_(-2048144789)
    h.bitwise_xor_(second)
    h.bitwise_xor_((h >> 13) & 0x7FFFF).mul_(-1028477387)
    h.bitwise_xor_((h >> 16) & 0xFFFF).bitwise_and_(0x7FFFFFFF)
    return (h >= int(p * (1 << 31))).reshape(*seed.shape, rows, width)


def _mix64(x: Tensor) -> Tensor:
    """Spreads every bit of a 64-bit number over all bits; products wrap around."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
