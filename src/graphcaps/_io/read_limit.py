"""The bound on memory that reading a file may take, so that a small malicious file cannot fill the machine.

A compressed file, a file of repeated entries and a file of empty brackets need far more memory than their size. Readers
therefore estimate what the unpacked content takes and check the estimate before they build it, or while they do. The
bound is 2 GB. The environment variable ``GRAPHCAPS_MAX_BYTES`` sets another one, for large files of one's own.
"""

from __future__ import annotations

import os
from pathlib import Path

from graphcaps.errors import DataError, UsageError

__all__ = ["VARIABLE", "check_json", "check_memory", "read_bounded", "read_limit", "read_toml"]

VARIABLE = "GRAPHCAPS_MAX_BYTES"
"""Environment variable with the bound, in bytes."""

_DEFAULT = 2 * 10**9
_FIX = f"If the file is your own, allow more with the environment variable {VARIABLE}."
_CHUNK = 1 << 20
# Bytes that Python takes for an object, a list and an entry of JSON, whatever their text is.
_OBJECT, _LIST, _ENTRY = 300, 90, 60


def read_limit() -> int:
    """Largest memory that reading one file may take, in bytes.

    Raises:
        UsageError: If the environment variable is not a number.
    """
    value = os.environ.get(VARIABLE, "")
    try:
        limit = int(float(value)) if value else _DEFAULT
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise UsageError(
            f"The environment variable {VARIABLE} must be a number of bytes, got {value[:40]!r}."
        )
    return limit


def check_memory(where: str | Path, needed: int) -> None:
    """Checks an estimate of the memory that the content of a file takes.

    Args:
        where (str or Path): The file, for the message.
        needed (int): Estimate in bytes.

    Raises:
        DataError: If it exceeds :func:`read_limit`.
    """
    limit = read_limit()
    if needed > limit:
        expected = f"content that takes at most {_amount(limit)} of memory"
        raise DataError(where, expected, f"about {_amount(needed)} or more", fix=_FIX)


def check_json(content: bytes, where: str | Path, *, per_object: int = _OBJECT) -> None:
    """Checks what JSON takes when it is parsed, by its brackets and commas.

    Args:
        content (bytes): The text.
        where (str or Path): The file, for the message.
        per_object (int): Bytes that an object takes. (default: those of a dictionary)

    Raises:
        DataError: If it exceeds :func:`read_limit`.
    """
    objects, lists, entries = (content.count(mark) for mark in (b"{", b"[", b","))
    check_memory(where, 3 * len(content) + per_object * objects + _LIST * lists + _ENTRY * entries)


def read_bounded(path: Path, max_bytes: int | None = None) -> bytes:
    """The content of a file, which may also be a pipe.

    Args:
        path (Path): The file.
        max_bytes (int, optional): Largest size. (default: :func:`read_limit`)

    Raises:
        DataError: If it is larger; no more than that is read.
        OSError: If it cannot be read.
    """
    limit = read_limit() if max_bytes is None else max_bytes
    parts, size = [], 0
    with path.open("rb") as file:
        while part := file.read(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > limit:
                fix = _FIX if max_bytes is None else ""
                raise DataError(path, f"a file of at most {_amount(limit)}", "a larger one", fix=fix)
    return b"".join(parts)


def read_toml(path: Path, max_bytes: int) -> str:
    """The text of a TOML file that a user wrote.

    Raises:
        DataError: If it cannot be read, is larger, or is not in UTF-8.
    """
    try:
        return read_bounded(path, max_bytes).decode("utf-8")
    except FileNotFoundError as error:
        raise DataError(path, "file not found") from error
    except OSError as error:
        raise DataError(path, f"cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(path, "a TOML file in UTF-8", "other bytes") from error


def _amount(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 10**8 else f"{size / 1e6:.3g} MB"
