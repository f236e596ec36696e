"""Figures of speed as entries of ``results/performance.json``, each with all that is needed to take it again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.errors import DataError

__all__ = ["entry", "merge_entries", "read_entries"]

_KEY = ("what", "dataset", "device")


def entry(what: str, dataset: str, device: str, value: float, unit: str, command: str) -> dict[str, Any]:
    """One figure with its command, day, hardware and versions."""
    return {
        "what": what,
        "dataset": dataset,
        "device": device,
        "value": value,
        "unit": unit,
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "hardware": describe_hardware(device),
        "versions": versions_and_commit(),
    }


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The entries of a file; none where there is no file yet.

    Raises:
        DataError: If the file holds something else.
    """
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(path, "a JSON list of figures", f"'{error}'") from error
    if not isinstance(found, list) or not all(isinstance(one, dict) and {*_KEY} <= {*one} for one in found):
        raise DataError(path, "a JSON list of figures", "something else", fix="Name another file.")
    return found


def merge_entries(path: Path, entries: list[dict[str, Any]]) -> None:
    """Writes entries into a file, in the place of older ones of the same what, data set and device."""

    def key(one: dict[str, Any]) -> tuple[str, ...]:
        return tuple(one[name] for name in _KEY)

    kept = {key(one): one for one in read_entries(path)} | {key(one): one for one in entries}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps([*kept.values()], indent=1, ensure_ascii=False) + "\n").encode())
