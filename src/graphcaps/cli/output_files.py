"""Output files and folders: checked before anything is computed, written completely or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps.cli.output import option
from graphcaps.errors import DataError

__all__ = ["RawText", "check_output_file", "check_output_folder", "write_json"]

RawText = Annotated[
    bool,
    option(
        "--raw-text",
        help="Write names to CSV as they are. By default an apostrophe stands before those that begin with "
        "=, +, -, @, a tab or a line break, which spreadsheets read as formulas; numbers stay.",
    ),
]


def check_output_file(path: Path, *inputs: str | Path | None) -> None:
    """Rejects a path that no file can be written to, and one of the files that are read.

    Args:
        path (Path): The file to write.
        inputs: What the command reads: paths, and other words such as names of data sets.

    Raises:
        DataError: If its folder does not exist, or it is a folder, a device, a link to a missing file or an input.
    """
    if not path.parent.is_dir():
        if path.parent.exists():
            raise DataError(
                path, "a folder to write into", f"a file at {path.parent}", fix="Name another folder."
            )
        raise DataError(
            path, "a folder to write into", f"none at {path.parent}", fix="Create the folder first."
        )
    if path.is_symlink() and not path.exists():
        raise DataError(path, "a file to write", "a link to a missing file")
    if path.exists() and not path.is_file():
        raise DataError(path, "a file to write", "a folder or a device")
    if path.exists():
        for each in inputs:
            if each is not None and os.path.exists(each) and path.samefile(each):
                raise DataError(path, "the file is read by this command", fix="Name another file to write.")


def check_output_folder(folder: Path) -> None:
    """Rejects a folder that cannot be written into. A missing folder is not created.

    Raises:
        DataError: If it, or the nearest parent that exists, is not a folder or is not writable.
    """
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not nearest.is_dir():
            raise DataError(folder, "a folder to write into", f"a file at {nearest}")
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except FileNotFoundError as error:  # of a folder that exists, such as /proc
        raise DataError(folder, "a folder to write into", f"{nearest}, which takes no new files") from error
    except OSError as error:
        raise DataError(folder, "a folder to write into", f"'{error.strerror or error}'") from error


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file that appears complete or not at all."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
