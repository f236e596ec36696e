"""A folder of files that appears whole or not at all, and a user's path with ``~`` in it."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from graphcaps.errors import ArgumentError, DataError

__all__ = ["expand_home", "home_folder", "sha256_of", "write_atomically", "write_folder_atomically"]


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


def expand_home(path: str | Path, owner: str, name: str) -> Path:
    """A path with ``~`` and ``~user`` written out.

    Raises:
        ArgumentError: If nobody knows that home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        fix = "Write the path in full, or set HOME."
        raise ArgumentError(owner, name, "name a home folder that is known", repr(str(path)), fix) from error


def home_folder(owner: str) -> Path:
    """The user's home folder.

    Raises:
        ArgumentError: If nobody knows it: no ``HOME``, and a user without an entry in the system.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise ArgumentError(owner, "HOME", "name the user's home folder", "none", "Set HOME.") from error


def write_folder_atomically(
    target: Path,
    files: Mapping[str, Callable[[], Iterator[bytes]]],
    *,
    overwrite: bool,
    ours: Callable[[str], bool],
    owner: str,
) -> None:
    """Writes files into a new folder beside ``target``, and gives it that name when all of them are whole.

    Args:
        target (Path): The folder to be; the folder that it lies in must exist.
        files (mapping): What each file holds, in pieces.
        overwrite (bool): Whether a folder that exists is replaced. An empty one always is.
        ours (callable): Whether a file of that name may be replaced: a folder with any other is left alone.
        owner (str): Who speaks in error messages.

    Raises:
        ArgumentError: If the folder exists, or holds other files.
        DataError: If the file system refuses.
    """
    place = Path(os.path.realpath(target))
    if not place.parent.is_dir():
        fix = "Create the folder first."
        raise DataError(target, "a folder to write into", f"none at {target.parent}", fix=fix)
    _check(target, overwrite, ours, owner)
    mark = f"{os.getpid()}.{secrets.token_hex(4)}.part"
    beside, aside = (place.with_name(f".{place.name[:64]}.{part}.{mark}") for part in ("new", "old"))
    try:
        try:
            beside.mkdir()
            for name, pieces in files.items():
                with (beside / name).open("xb") as file:
                    file.writelines(pieces())
                    file.flush()
                    os.fsync(file.fileno())
            if place.exists():
                os.replace(place, aside)
            try:
                os.replace(beside, place)
            except OSError:
                if aside.exists():
                    os.replace(aside, place)
                raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
            if place.exists():  # else the old one is all there is
                shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        reason = f"'{error.strerror or error}'"
        raise DataError(target, "a folder that can be written", reason) from error


def _check(target: Path, overwrite: bool, ours: Callable[[str], bool], owner: str) -> None:
    """Refuses a target whose content would be lost against the user's will."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ArgumentError(owner, "target", "be a folder or end in .zip", f"'{target}', which is a file")
    held = sorted(target.iterdir())
    if held and not overwrite:
        raise ArgumentError(owner, "target", "be new", f"'{target}', which exists", "Use --overwrite.")
    strangers = [entry.name for entry in held if not entry.is_file() or not ours(entry.name)]
    if strangers:
        found = f"'{target}' with '{strangers[0]}' in it"
        raise ArgumentError(owner, "target", "hold nothing but a TU data set to be overwritten", found)
