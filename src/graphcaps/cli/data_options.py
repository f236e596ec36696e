"""Arguments that the verbs under ``graphcaps data`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Json", "Root", "Source"]

Root = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="Folder to look in first for NAME.zip or NAME/.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Source = Annotated[str, typer.Argument(metavar="SOURCE", help="A data set, or a path to a TU folder or zip.")]
