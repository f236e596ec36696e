"""Atomic writes of files and folders: the target is complete or unchanged, even if the process is killed.

The content goes to a temporary file or folder beside the target, which is flushed to disk and then renamed. On any
error the temporary data is removed. A killed process can leave it behind; :func:`remove_temporary_files` and
:func:`remove_leftovers` delete it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from graphcaps.errors import ArgumentError, DataError

__all__ = [
    "escape_text",
    "remove_leftovers",
    "remove_temporary_files",
    "temporary_file",
    "write_atomically",
    "write_folder_atomically",
]

_NAME_LENGTH = 64  # characters of the target's name in a temporary name; file systems allow 255 bytes in all
_TEMPORARY = re.compile(r"\..+\.(?P<machine>[0-9a-f]{8})\.(?P<process>\d+)\.[0-9a-f]{8}\.part")
_LEFTOVER_SECONDS = 3600.0  # a file of an unknown machine is left over if it has not changed for this long


def escape_text(text: str) -> str:
    """The text with every character that UTF-8 cannot hold as ``\\udcff``: a byte of a file name, half a surrogate."""
    return text.encode("utf-8", "backslashreplace").decode()


def write_atomically(path: str | Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Writes a file atomically. A symbolic link is followed.

    Args:
        path (str or Path): Target; its folder must exist.
        content (bytes, str or callable): The content (text is encoded as UTF-8, with characters that UTF-8
            cannot hold as by :func:`escape_text`, which JSON reads back), or a function that writes it to the open
            binary file, which can also be read.

    Raises:
        DataError: If the file cannot be written: missing folder, full disk, no permission.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise DataError(
            path, "a file name", "a folder" if target.is_dir() else "a device or another special file"
        )
    _require_parent(path, target)
    temporary = _temporary_path(target)
    try:
        try:
            with open(temporary, "x+b") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(escape_text(content).encode() if isinstance(content, str) else content)
                _flush_to_disk(file)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or error
        if isinstance(error, FileNotFoundError) and target.parent.is_dir():  # so in /proc, which does exist
            reason = f"the folder {path.parent} takes no new files"
        raise DataError(path, f"file cannot be written ({reason})") from error


def write_folder_atomically(
    path: Path,
    files: Mapping[str, Callable[[], Iterator[bytes]]],
    *,
    overwrite: bool,
    replaceable: Callable[[str], bool],
    content: str,
    owner: str,
) -> None:
    """Writes a folder of files atomically.

    Args:
        path (Path): Target folder; its parent must exist.
        files (mapping): File name to a function that yields the content in chunks.
        overwrite (bool): Whether an existing folder is replaced. An empty one always is.
        replaceable (callable): Whether a file of that name may be deleted; a folder with any other file is kept.
        content (str): What the folder holds, for messages, such as "a TU data set".
        owner (str): Function named in messages.

    Raises:
        ArgumentError: If the folder exists and may not be replaced.
        DataError: If the folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    _require_parent(path, target)
    _check_replaceable(path, overwrite, replaceable, content, owner)
    new, old = _temporary_path(target, "new."), _temporary_path(target, "old.")
    try:
        try:
            new.mkdir()
            for name, chunks in files.items():
                with (new / name).open("xb") as file:
                    file.writelines(chunks())
                    _flush_to_disk(file)
            if target.exists():
                os.replace(target, old)
            try:
                os.replace(new, target)
            except OSError:
                if old.exists():
                    os.replace(old, target)
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
            if target.exists():  # otherwise the old folder is the only copy
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DataError(path, f"folder cannot be written ({error.strerror or error})") from error


def remove_temporary_files(path: Path) -> None:
    """Deletes what killed processes left behind while writing the file ``path``."""
    for left in path.parent.glob(f".{glob.escape(path.name[:_NAME_LENGTH])}.*.part"):
        left.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Deletes the temporary files of killed processes in a folder that other processes may write into.

    Files of running processes stay. On another machine this cannot be seen; its files are deleted after an hour.
    """
    with contextlib.suppress(OSError):  # the folder is missing, or another process deletes the same files
        for path in folder.glob(".*.part"):
            name = _TEMPORARY.fullmatch(path.name)
            if name is None or not path.is_file():
                continue
            if name["machine"] == _machine():
                is_left = _has_ended(int(name["process"]))
            else:
                is_left = time.time() - path.stat().st_mtime > _LEFTOVER_SECONDS
            if is_left:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[Path]:
    """An empty file with a name of its own inside the block; :func:`remove_leftovers` removes it after a kill.

    Args:
        folder (Path): An existing folder.

    Raises:
        DataError: If the file cannot be made.
    """
    path = _temporary_path(Path(os.path.realpath(folder)) / "marker")
    try:
        path.touch()
    except OSError as error:
        raise DataError(folder, f"no file can be made in this folder ({error.strerror or error})") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _has_ended(process: int) -> bool:
    """Whether no process of this machine has that number; ``False`` if that cannot be found out."""
    if sys.platform == "win32":  # os.kill would end the process
        return False
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it belongs to another user
        return False
    return False


def _machine() -> str:
    """Eight digits of this machine's name."""
    return hashlib.sha256(platform.node().encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _temporary_path(target: Path, tag: str = "") -> Path:
    # The random part separates concurrent writers of one target, also in two threads of one process.
    unique = f"{_machine()}.{os.getpid()}.{secrets.token_hex(4)}"
    return target.with_name(f".{target.name[:_NAME_LENGTH]}.{tag}{unique}.part")


def _require_parent(path: Path, target: Path) -> None:
    if target.parent.is_dir():
        return
    if target.parent.exists():
        raise DataError(path, f"{path.parent} is a file, not a folder", fix="Name a path in another folder.")
    raise DataError(path, f"folder {path.parent} does not exist", fix="Create it first.")


def _check_replaceable(
    path: Path, overwrite: bool, replaceable: Callable[[str], bool], content: str, owner: str
) -> None:
    """Raises if writing ``path`` would delete files that the user did not agree to lose."""
    if not path.exists():
        return
    if not path.is_dir():
        raise ArgumentError(owner, "target", "be a folder or end in .zip", f"the existing file '{path}'")
    entries = sorted(path.iterdir())
    if entries and not overwrite:
        raise ArgumentError(owner, "target", "not exist yet", f"'{path}'", "Replace it with --overwrite.")
    others = [entry.name for entry in entries if not entry.is_file() or not replaceable(entry.name)]
    if others:
        found = f"'{path}' with '{others[0]}' in it"
        raise ArgumentError(owner, "target", f"contain only {content} to be overwritten", found)


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Flushes the new directory entry to disk. Systems that cannot open folders, such as Windows, skip this."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse; the content itself is already on disk
    finally:
        os.close(descriptor)
