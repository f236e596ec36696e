"""Names for interchangeable parts: a model registered here is trained, tested and listed like the rest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from graphcaps.errors import ArgumentError

__all__ = ["MODELS", "Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A dictionary from names to parts whose refusals list the nearest names.

    Args:
        kind (str): What is registered, for messages ("model").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that enters a part under ``name``; a name is given once."""

        def enter(part: T) -> T:
            if name in self._parts:
                raise ArgumentError("Registry", name, f"be a new {self.kind} name", "one that is taken")
            self._parts[name] = part
            return part

        return enter

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            near = difflib.get_close_matches(name, self._parts, n=3, cutoff=0.4) or sorted(self._parts)
            raise ArgumentError("Registry", self.kind, f"be one of {', '.join(near)}", repr(name))
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._parts))

    def __len__(self) -> int:
        return len(self._parts)


MODELS: Registry[type] = Registry("model")
