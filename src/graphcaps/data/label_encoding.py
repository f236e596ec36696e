"""Numbers for labels that are text, the same in every file: a store holds whole numbers.

A number found by counting the texts of one file would differ in the next, and a model would read other labels
without a word. So the number of a text is computed from the text alone: 2³² and a hash of 48 bits. Whole numbers
stay as they are; below 2³² they never meet the number of a text.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

__all__ = ["label_code", "text_code"]

_FIRST = 1 << 32
_MOST = 1 << 62
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")  # what a store can hold; anything else is text


def text_code(text: str) -> int:
    """The number of a text."""
    return _FIRST + int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big"
    )


def label_code(value: Any, names: dict[int, str]) -> int | None:
    """A whole number as it is, a text as its number, entered into ``names``; ``None`` for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        if _WHOLE.fullmatch(text):
            return int(text)
        code = text_code(text)
        names[code] = text
        return code
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) and abs(value) < _MOST else None
