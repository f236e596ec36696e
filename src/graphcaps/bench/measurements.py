"""Measurements of speed, and the JSON file that collects them (``results/performance.json``).

A measurement is one number with its unit and all that is needed to repeat it: the command, the data set, the device,
the hardware and the library versions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.errors import DataError, GraphcapsError

__all__ = ["CheckError", "make_measurement", "merge_measurements", "read_measurements"]

_KEY = ("what", "dataset", "device")


class CheckError(GraphcapsError):
    """A computation that failed its check against a reference, and is therefore not timed."""


def make_measurement(
    what: str, dataset: str, device: str, value: float, unit: str, command: str
) -> dict[str, Any]:
    """A measurement with today's date, the hardware of ``device`` and the library versions."""
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


def read_measurements(path: Path) -> list[dict[str, Any]]:
    """The measurements in a file; an empty list if the file does not exist.

    Raises:
        DataError: If the file holds something else.
    """
    if not path.exists():
        return []
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(path, "a JSON list of measurements", f"'{error}'") from error
    if not isinstance(content, list) or not all(
        isinstance(row, dict) and {*_KEY} <= {*row} for row in content
    ):
        raise DataError(path, "a JSON list of measurements", "other content", fix="Name another file.")
    return content


def merge_measurements(path: Path, measurements: list[dict[str, Any]]) -> None:
    """Writes measurements into a file; one of the same what, data set and device is replaced."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(row[name] for name in _KEY)

    merged = {key(row): row for row in read_measurements(path)} | {key(row): row for row in measurements}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(one, ensure_ascii=False) for one in merged.values()
    ]  # a line each: small, and diffs by entry
    write_atomically(path, "[\n" + ",\n".join(lines) + "\n]\n")
