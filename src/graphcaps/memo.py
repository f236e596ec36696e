"""Values that operations derive from a batch and keep with it, so that each is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

__all__ = ["Memo", "remember"]

Memo = dict[Hashable, object]
"""Kept values by key; :func:`remember` fills and reads it."""

Value = TypeVar("Value")


def remember(memo: Memo, key: Hashable, make: Callable[[], Value]) -> Value:
    """The value that ``memo`` keeps for a key, which the first call makes.

    Args:
        memo (dict): Kept values.
        key: A name that only one kind of value has, with what else the value depends on.
        make (Callable): Returns the value.
    """
    if key not in memo:
        memo[key] = make()
    return cast(Value, memo[key])
