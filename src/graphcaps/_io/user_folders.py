"""The user's home, cache and data folders, following the conventions of the operating system."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from graphcaps.errors import ArgumentError, UsageError

__all__ = ["expand_home", "user_folder"]


def expand_home(path: str | Path, owner: str, name: str) -> Path:
    """Replaces a leading ``~`` or ``~user`` by the home folder.

    Args:
        path (str or Path): Path as the user wrote it.
        owner, name (str): Function and argument named in messages.

    Raises:
        ArgumentError: If that home folder is unknown.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        fix = "Write the path in full, or set HOME."
        raise ArgumentError(owner, name, "be in a known home folder", repr(str(path)), fix) from error


def user_folder(kind: Literal["cache", "data"]) -> Path:
    """The user's folder for cached or downloaded data of graphcaps, which may not exist yet.

    On Linux these are ``~/.cache/graphcaps`` and ``~/.local/share/graphcaps``, or the folders of the variables
    ``XDG_CACHE_HOME`` and ``XDG_DATA_HOME``.

    Raises:
        UsageError: If the home folder is unknown.
    """
    import platformdirs  # 20 ms, and most commands never need it

    locate = platformdirs.user_cache_path if kind == "cache" else platformdirs.user_data_path
    try:
        folder = locate("graphcaps", appauthor=False)
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():  # older versions of platformdirs return "~/…" where there is no home folder
        raise UsageError(f"The {kind} folder cannot be located because the home folder is unknown; set HOME.")
    return folder
