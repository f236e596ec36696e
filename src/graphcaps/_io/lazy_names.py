"""Names of a package that are imported on first use, so that importing the package does not wait for its modules."""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # as in typing, whose import takes longer than that of graphcaps
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562); a name is an ordinary attribute after its first use.

    The package repeats the names under ``TYPE_CHECKING``, where type checkers and editors read them, and in
    ``__all__``, which is also what ``dir`` lists.

    Args:
        package (str): The package, ``__name__``.
        names (mapping): Names by the module that defines them. None has the name of a module of the package: importing
            that module would set the attribute.
        submodules (iterable): Modules of the package that are imported on first use. (default: none)

    Example:
        ``__getattr__, __dir__ = lazy_names(__name__, {"graphcaps.data.store": ["GraphStore"]})``
    """
    origin = {name: module for module, defined in names.items() for name in defined}
    modules = frozenset(submodules)

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(origin[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return get, list_names
