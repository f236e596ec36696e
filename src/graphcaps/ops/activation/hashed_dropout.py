"""Dropout by a hash: which numbers are dropped follows from a key per replica and step, on every device alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import UsageError
from graphcaps.ops._triton.dispatch import needs_plain_operations, select
from graphcaps.ops.batch_shard import current_shard
from graphcaps.ops.compilation import is_traced

__all__ = [
    "HashedDropout",
    "apply_dropout",
    "dropout_factors",
    "hash_rows",
    "keep_pairs",
    "mix64",
    "next_step_keys",
]


@dataclass(frozen=True)
class HashedDropout:
    """The dropout of one step: a number is dropped if the hash of its position under the keys is below p · 2³¹.

    Args:
        keys (Tensor): Two 32-bit keys per replica, ``[*lead, 2]``, from :func:`next_step_keys`.
        p (float or Tensor): Probability that a number is dropped; one per replica as float64, ``[*lead]``.
    """

    keys: Tensor
    p: float | Tensor

    @property
    def threshold(self) -> int | Tensor:
        """Hashes below this are dropped; they are integers below 2³¹. An int32 tensor ``[*lead]`` for a tensor p."""
        if isinstance(self.p, Tensor):
            return (self.p * (1 << 31)).to(torch.int32)
        return int(self.p * (1 << 31))

    @property
    def scale(self) -> float | Tensor:
        """Factor of the numbers that are kept; float64 ``[*lead]`` for a tensor p."""
        return 1 / (1 - self.p)

    def of_replicas(self, replica: Tensor) -> HashedDropout:
        """The dropout of each number whose replica is ``replica [n]``, counted over all leading axes."""
        p = self.p.reshape(-1)[replica] if isinstance(self.p, Tensor) else self.p
        return HashedDropout(self.keys.reshape(-1, 2)[replica], p)

    def scaled(self, keep: Tensor, dtype: torch.dtype) -> Tensor:
        """0 where ``keep [*lead, …]`` is False, and :attr:`scale` elsewhere."""
        scale = self.scale
        if isinstance(scale, Tensor):
            return keep.to(dtype).mul_(_columns(scale.to(dtype), keep.dim() - scale.dim()))
        return keep.to(dtype).mul_(scale)


def apply_dropout(x: Tensor, dropout: HashedDropout, mask: Tensor | None = None) -> Tensor:
    """Zeroes the dropped numbers of ``x [*lead, V, d]`` and multiplies the others by 1 / (1 − p).

    Rows where ``mask [*lead, V]`` is False become zero.
    """
    return select("apply_dropout", _apply_dropout, x, mask)(x, dropout, mask)


def _apply_dropout(x: Tensor, dropout: HashedDropout, mask: Tensor | None) -> Tensor:
    return x * dropout_factors(x.shape, dropout, mask, x.dtype)


def dropout_factors(
    shape: torch.Size, dropout: HashedDropout, mask: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """What :func:`apply_dropout` multiplies by: 0 at dropped numbers and padding rows, ``[*lead, V, d]``."""
    h = hash_rows(dropout.keys, shape[-2], shape[-1])
    keep = (h >= _columns(dropout.threshold, 1)).reshape(shape)
    if mask is not None:
        keep &= mask.unsqueeze(-1)
    return dropout.scaled(keep, dtype)


def next_step_keys(seed: Tensor, step: Tensor, mask: Tensor | None) -> Tensor:
    """Two keys for this step of each replica; then advances ``step`` in place.

    Args:
        seed (Tensor): Seed of each replica, int64, ``[*lead]``.
        step (Tensor): Steps taken so far, int64, ``[*lead]``; a replica without a real row does not advance.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``. (default: all are real)

    Returns:
        Tensor: int32, ``[*lead, 2]``.
    """
    return select("next_step_keys", _next_step_keys, seed)(seed, step, mask)


def _next_step_keys(seed: Tensor, step: Tensor, mask: Tensor | None) -> Tensor:
    if seed.device.type == "cpu" and not is_traced():
        # On integers of Python: some thirty operations on tensors of a few numbers take as long as a product.
        pairs = zip(seed.reshape(-1).tolist(), step.reshape(-1).tolist(), strict=True)
        keys = [_mix64_integer(one ^ _mix64_integer(steps + 1)) for one, steps in pairs]
        _advance(step, mask)
        halves = [(_signed(key & _WORD), _signed(key >> 32)) for key in keys]
        return torch.tensor(halves, dtype=torch.int32).reshape(*seed.shape, 2)
    key = mix64(seed ^ mix64(step + 1))
    _advance(step, mask)
    return torch.stack([key.to(torch.int32), (key >> 32).to(torch.int32)], -1)


def _advance(step: Tensor, mask: Tensor | None) -> None:
    """Counts the step of each replica that has a real row, of a shard in the whole batch."""
    shard = current_shard()
    if shard is not None:
        step += shard.num_graphs > 0
    else:
        step += 1 if mask is None else mask.any(-1)


_WORD, _LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def _mix64_integer(x: int) -> int:
    """:func:`mix64` of one integer, as an unsigned one."""
    x &= _LONG
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _LONG
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _LONG
    return x ^ (x >> 31)


def _signed(word: int) -> int:
    """The 32-bit integer with the bits of an unsigned one."""
    return word - (1 << 32) if word >> 31 else word


def hash_rows(keys: Tensor, num_rows: int, width: int) -> Tensor:
    """A 31-bit hash of the positions of all numbers of rows under two 32-bit keys, ``[*lead, num_rows · width]``.

    The position of column c in row v is v · width + c, where a row of a
    :class:`~graphcaps.ops.batch_shard.BatchShard` counts as that of the whole batch. Products wrap around. The hash of
    a position does not depend on the number of rows, so padding changes nothing.
    """
    shard = current_shard()
    if keys.device.type == "cpu" and not needs_plain_operations() and shard is None:
        return _hash_positions_numpy(keys, num_rows * width)
    first, second = keys.unsqueeze(-2).unbind(-1)
    if shard is None:
        position = torch.arange(num_rows * width, dtype=torch.int32, device=keys.device)
    else:
        rows = shard.rows(num_rows).to(torch.int32).unsqueeze(-1) * width
        position = (rows + torch.arange(width, dtype=torch.int32, device=keys.device)).flatten(-2)
    h = position.mul_(-1640531527) + first
    h.bitwise_xor_((h >> 16) & 0xFFFF).mul_(-2048144789)
    h.bitwise_xor_(second)
    h.bitwise_xor_((h >> 13) & 0x7FFFF).mul_(-1028477387)
    return h.bitwise_xor_((h >> 16) & 0xFFFF).bitwise_and_(0x7FFFFFFF)


def _hash_positions_numpy(keys: Tensor, count: int) -> Tensor:
    """The same numbers: unsigned integers, which torch cannot shift, need no masks."""
    first, second = np.split(keys.numpy().view(np.uint32), 2, -1)  # [*lead, 1] each
    h = _multiples(count) + first
    shifted = h >> 16
    h ^= shifted
    h *= np.uint32(0x85EBCA6B)
    h ^= second
    h ^= np.right_shift(h, 13, out=shifted)
    h *= np.uint32(0xC2B2AE35)
    h ^= np.right_shift(h, 16, out=shifted)
    h &= np.uint32(0x7FFFFFFF)
    return torch.from_numpy(h.view(np.int32))


_KEPT_POSITIONS = 1 << 20


def _multiples(count: int) -> np.ndarray:
    """The positions 0 … ``count`` − 1 times the first factor of the hash."""
    if count > _KEPT_POSITIONS:
        return np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
    return _kept_multiples()[:count]


@cache
def _kept_multiples() -> np.ndarray:
    return np.arange(_KEPT_POSITIONS, dtype=np.uint32) * np.uint32(0x9E3779B9)


def keep_pairs(dropout: HashedDropout, graph: Tensor, i: Tensor, j: Tensor, axes: int) -> Tensor:
    """Which numbers of pairs of nodes are kept, whatever the layout of the pairs is.

    Args:
        dropout (HashedDropout): Its keys have the leading axes of the result.
        graph, i, j (Tensor): Graph and nodes of each pair, whose numbers are below 2²¹; they have up to ``axes`` axes.
        axes (int): Number of axes of the result that are not leading.

    Returns:
        Tensor: True where a number is kept, ``[*lead, …]``.
    """
    if current_shard() is not None:
        raise UsageError(
            "This model drops attention between nodes, which several processes cannot do alike; set this dropout to 0, "
            "or train in one process."
        )
    first, second = dropout.keys.long().unbind(-1)
    key = ((second << 32) ^ (first & 0xFFFFFFFF)).reshape(*first.shape, *[1] * axes)
    h = mix64(key ^ mix64((graph << 42) + (i << 21) + j))
    return ((h >> 33) & 0x7FFFFFFF) >= _columns(dropout.threshold, axes)


def _columns(value: int | Tensor, axes: int) -> int | Tensor:
    """A number per replica, with further axes of size 1 behind the leading ones; a single number as it is."""
    return value.reshape(*value.shape, *[1] * axes) if isinstance(value, Tensor) else value


def mix64(x: Tensor) -> Tensor:
    """Mixes the bits of 64-bit integers, so that every input bit changes about half of the output bits."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)
