"""Files that appear whole or not at all, and the mark by which a file is known."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from graphcaps.errors import DataError

__all__ = ["sha256_of", "write_atomically"]


def write_atomically(path: str | Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Writes a file so that a reader finds the old one or the new one, whatever happens on the way.

    The content goes to a new file in the same folder, to the disk (fsync), and then takes the name. Where
    anything fails, that file is removed and what stood under ``path`` stays. A symbolic link is followed.

    Args:
        path (str or Path): Where to write; its folder must exist.
        content (bytes, str or callable): What to write, text in UTF-8; or what writes it into the open file.

    Raises:
        DataError: If the file system refuses: no such folder, no room, no permission.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise DataError(
            path, "a name for a file to write", "a folder" if target.is_dir() else "something that is no file"
        )
    if not target.parent.is_dir():
        raise DataError(
            path, "a folder to write into", f"none at {path.parent}", fix="Create the folder first."
        )
    # The random part keeps two writers of one name apart, also in two threads of one process.
    beside = target.with_name(f".{target.name[:64]}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        try:
            with open(beside, "xb") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(content.encode("utf-8") if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except OSError as error:
        raise DataError(path, "a file that can be written", _reason(error)) from error


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal, read in pieces.

    Raises:
        DataError: If the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(path, "a file that can be read", _reason(error)) from error


def _sync_folder(folder: Path) -> None:
    """Puts the new name itself on the disk; a system that cannot open folders does without."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    except OSError:
        pass  # some network file systems refuse; the content itself is already safe
    finally:
        os.close(number)


def _reason(error: OSError) -> str:
    return f"'{error.strerror or error}'"
