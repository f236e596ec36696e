"""Integer codes of labels: the one encoding of text for every reader and converter.

A store holds integer labels. Codes numbered by order of appearance would differ between sources, and a model would
silently read other labels. The code of a text is therefore a function of the text alone: 2³² plus a hash of
48 bits. Integer labels keep their value; below 2³² they never collide with the code of a text. ``store.label_names``
keeps the text of each code.

Input columns of labels are ordered by code: integers by value, then text in the order of its codes, which is fixed
and not alphabetical.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

__all__ = ["label_code", "label_text", "text_code"]

_TEXT_OFFSET = 1 << 32
_MAX_INTEGER = 1 << 62
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # fits into int64; any other text is hashed


@lru_cache(maxsize=1 << 14)
def text_code(text: str) -> int:
    """Integer code of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return _TEXT_OFFSET + int.from_bytes(digest, "big")


def label_code(value: object, names: dict[int, str]) -> int | None:
    """Integer code of a label.

    Args:
        value: An integer, a float without fraction, or text. Text that spells an integer counts as the integer.
        names (dict): Receives the text of each hashed code.

    Returns:
        int or None: The code; ``None`` for an empty text and for any other value.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        if _INTEGER.fullmatch(text):
            return int(text)
        code = text_code(text)
        names[code] = text
        return code
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) and abs(value) < _MAX_INTEGER else None


def label_text(codes: Iterable[int], names: Mapping[int, str]) -> list[str]:
    """Labels for messages: the quoted text of a code that stands for text, else the number."""
    return [repr(names[code]) if code in names else str(code) for code in map(int, codes)]
