"""Registry of models: a registered model is available to training, command line and contract tests."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from graphcaps.errors import ArgumentError

__all__ = ["MODELS", "Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A dictionary of registered objects; an unknown name raises an error that lists similar names.

    Args:
        kind (str): Kind of the registered objects, for messages ("model").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers an object under ``name``.

        Raises:
            ArgumentError: If the name is already registered.
        """

        def decorate(entry: T) -> T:
            if name in self._entries:
                raise ArgumentError("Registry", name, f"be a new {self.kind} name", "a registered one")
            self._entries[name] = entry
            return entry

        return decorate

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            near = difflib.get_close_matches(name, self._entries, n=3, cutoff=0.4) or sorted(self._entries)
            raise ArgumentError("Registry", self.kind, f"be one of {', '.join(near)}", repr(name))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


MODELS: Registry[type] = Registry("model")
