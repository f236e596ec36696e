"""The model file as it was when the server read it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from graphcaps.errors import DataError

__all__ = ["ModelSnapshot", "read_snapshot"]


@dataclass(frozen=True)
class ModelSnapshot:
    """Content of a model file. All workers load it, so that they serve the same model whatever happens to the file.

    Args:
        path (Path): The file.
        content (bytes): Its content.
        sha256 (str): SHA-256 of the content.
    """

    path: Path
    content: bytes = field(repr=False)
    sha256: str


def read_snapshot(path: Path) -> ModelSnapshot:
    """Reads a model file. What it holds is checked by the workers.

    Raises:
        DataError: If the file does not exist or cannot be read.
    """
    if not path.is_file():
        raise DataError(path, "file not found")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(path, f"file cannot be read ({error.strerror or error})") from error
    return ModelSnapshot(path, content, hashlib.sha256(content).hexdigest())
