"""What made a result: the versions that are written beside it."""

from __future__ import annotations

import platform
from importlib import metadata

from graphcaps import __version__

__all__ = ["library_versions"]

_LIBRARIES = ("torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "safetensors")


def library_versions() -> dict[str, str]:
    """Versions of graphcaps, Python and the libraries that numbers depend on; nothing is imported."""
    found = {"graphcaps": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
