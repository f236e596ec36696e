"""Names that are similar to a mistyped one, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["close_names"]

_LEAST_SIMILARITY = 0.6  # of difflib, from 0 to 1; below, names share little more than a few letters
_LEAST_START = 3  # characters of a beginning that stands for a name


def close_names(name: str, names: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Up to ``count`` of ``names`` that are really similar to ``name``, most similar first. Case is ignored.

    A name that begins with ``name`` counts as well, from three letters on: "PTC" for "PTC_MR".

    Example:
        >>> close_names("hgnc", ["gin", "hgcn", "diffpool"]), close_names("foo", ["gin", "hgcn", "diffpool"])
        (('hgcn',), ())
    """
    given = name.lower()
    by_lower = {each.lower(): each for each in names}
    similar = difflib.get_close_matches(given, by_lower, n=count, cutoff=_LEAST_SIMILARITY)
    if len(given) >= _LEAST_START:
        similar += [lower for lower in by_lower if lower.startswith(given) and lower not in similar]
    return tuple(by_lower[lower] for lower in similar[:count])
