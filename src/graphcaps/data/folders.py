"""A folder of files that appears whole or not at all, and a user's path with ``~`` in it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from graphcaps.errors import ArgumentError, DataError

__all__ = ["home_folder", "user_path", "write_folder"]


def user_path(path: str | Path, owner: str, name: str) -> Path:
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


def write_folder(
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
