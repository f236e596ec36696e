"""SHA-256 of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from graphcaps.errors import DataError

__all__ = ["sha256_of"]


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's content, in hexadecimal. The file is read in chunks.

    Raises:
        DataError: If the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise DataError(path, "file not found") from error
    except OSError as error:
        raise DataError(path, f"file cannot be read ({error.strerror or error})") from error
