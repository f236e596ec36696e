"""From projected features to capsules: ReLU, dropout by a hash, and squash, over rows of a ragged batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import kernels_serve
from graphcaps.ops.squash import RELEASED_EPSILON, squash

__all__ = ["BiasPlace", "Drop", "activate", "drop", "hashes", "rectify", "take_step"]

BiasPlace = Literal["inside", "outside"]

_WIDEST = 1024
"""Longest row that a kernel holds at once."""


@dataclass(frozen=True)
class Drop:
    """Which numbers are dropped: those whose hash under ``keys [*lead, 2]`` falls below p."""

    keys: Tensor
    p: float

    @property
    def threshold(self) -> int:
        """Hashes are whole numbers below 2³¹."""
        return int(self.p * (1 << 31))

    @property
    def scale(self) -> float:
        return 1 / (1 - self.p)


def activate(
    z: Tensor,
    bias: Tensor,
    *,
    dropped: Drop | None = None,
    bias_place: BiasPlace = "inside",
    epsilon: float = RELEASED_EPSILON,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Squashes what ReLU and dropout leave.

    .. math:: u = \mathrm{squash}\big(\mathrm{drop}(\mathrm{ReLU}(z + e))\big)

    or :math:`\mathrm{ReLU}(z) + e` with the bias outside, the released and the paper's formulation of HGCN.

    Args:
        z (Tensor): Projected features, ``[*lead, V, d]``, finite (a kernel never reads padding rows).
        bias (Tensor): e, ``[*lead, d]``.
        dropped (Drop, optional): The dropout of this step.
        bias_place (str): ``"inside"`` the ReLU or ``"outside"``. (default: "inside")
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``.

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding rows.
    """
    if z.numel() and z.size(-1) <= _WIDEST and kernels_serve(z, bias):
        from graphcaps.ops.activation import activation_triton as kernels

        return kernels.activate(
            z, bias, dropped=dropped, inside=bias_place == "inside", epsilon=epsilon, mask=mask
        )
    z = rectify(z, bias, bias_place)
    if dropped is not None:
        z = drop(z, dropped, mask)
    elif mask is not None:
        z = z.masked_fill(~mask.unsqueeze(-1), 0)
    return squash(z, epsilon)


def rectify(z: Tensor, bias: Tensor, place: BiasPlace) -> Tensor:
    """ReLU(z + e) or ReLU(z) + e."""
    e = bias.unsqueeze(-2)
    return (z + e).relu() if place == "inside" else z.relu() + e


def drop(x: Tensor, dropped: Drop, mask: Tensor | None = None) -> Tensor:
    """Zeroes the dropped numbers of ``x [*lead, V, d]`` and scales the others by 1 / (1 − p).

    With ``mask [*lead, V]`` all numbers of rows where it is False are dropped.
    """
    h = hashes(dropped.keys, x.size(-2) * x.size(-1))
    keep = (h >= dropped.threshold).reshape(x.shape)
    if mask is not None:
        keep &= mask.unsqueeze(-1)
    return x * keep.to(x.dtype).mul_(dropped.scale)


def take_step(seed: Tensor, step: Tensor, mask: Tensor | None) -> Tensor:
    """Keys of this step, ``[*lead, 2]`` of int32; then ``step`` goes on where a replica has a real row."""
    if kernels_serve(seed) and seed.numel():
        from graphcaps.ops.activation import activation_triton as kernels

        return kernels.take_step(seed, step, mask)
    key = _mix64(seed ^ _mix64(step + 1))
    step += 1 if mask is None else mask.any(-1)
    return torch.stack([key.to(torch.int32), (key >> 32).to(torch.int32)], -1)


def hashes(keys: Tensor, count: int) -> Tensor:
    """A 31-bit hash of each place under two 32-bit keys, ``[*lead, count]``; products wrap around."""
    first, second = keys.unsqueeze(-2).unbind(-1)
    # The place depends on the row and not on how many rows there are: padding moves nothing.
    h = torch.arange(count, dtype=torch.int32, device=keys.device).mul_(-1640531527) + first
    h.bitwise_xor_((h >> 16) & 0xFFFF).mul_(-2048144789)
    h.bitwise_xor_(second)
    h.bitwise_xor_((h >> 13) & 0x7FFFF).mul_(-1028477387)
    return h.bitwise_xor_((h >> 16) & 0xFFFF).bitwise_and_(0x7FFFFFFF)


def _mix64(x: Tensor) -> Tensor:
    """Spreads every bit of a 64-bit number over all bits; products wrap around."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
