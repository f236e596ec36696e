"""Random choices of the generated data sets, which are the same in every version of numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

__all__ = ["PortableRandom", "Range"]

T = TypeVar("T")
Range = tuple[int, int]  # both ends included


class PortableRandom:
    """Random choices that are the same in every version of numpy.

    numpy guarantees the raw bits of PCG64 between versions, but not the numbers that its ``Generator`` derives from
    them. The few choices that are needed are therefore derived here. The remainder of 64 random bits modulo a number
    below 100,000 is uniform to one part in 10^14.

    Args:
        seeds (int): Entropy of the seed sequence.
    """

    def __init__(self, *seeds: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seeds))
        self._buffer: list[
            int
        ] = []  # words drawn in advance, in reverse order, because single calls are slow

    def below(self, end: int) -> int:
        """An integer from 0 to ``end`` − 1."""
        if not self._buffer:
            self._buffer = self._bits.random_raw(1024)[::-1].tolist()
        return self._buffer.pop() % end

    def between(self, ends: Range) -> int:
        """An integer of a range that includes both ends."""
        return ends[0] + self.below(ends[1] - ends[0] + 1)

    def choose(self, items: Sequence[T]) -> T:
        """One of ``items``."""
        return items[self.below(len(items))]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        """The items in random order (Fisher-Yates)."""
        order = list(items)
        for i in range(len(order) - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order
