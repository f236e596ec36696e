"""How many numbers a thread loads at once."""

from __future__ import annotations

import math

__all__ = ["load_width"]


def load_width(width: int) -> int:
    """Numbers of a load from rows of ``width`` numbers: 4, or 2 or 1 if the width is not a multiple of that."""
    return math.gcd(width, 4)
