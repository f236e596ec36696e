"""Writes predictions to a file while they are computed.

The suffix names the format: ``.csv`` is a table, ``.json`` one object with ``predictions`` and ``summary``, ``.jsonl``
one object per row.

Rows are written as they come, so that only the present ones are held as text. They go to a temporary file beside the
target, which takes its place when all rows are written: the target is complete, or as it was before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from graphcaps._io.atomic_write import escape_text, write_atomically
from graphcaps.inference.predictions import Predictions

__all__ = ["write_predictions"]


def write_predictions(
    path: Path,
    parts: Iterable[Predictions],
    *,
    raw_text: bool = False,
    check: Callable[[Predictions], object] = lambda predictions: None,
) -> Predictions:
    """Writes the rows of predictions and returns all of them together.

    Args:
        path (Path): The file; its suffix decides on the format.
        parts (iterable): Predictions of one part of the graphs after the other, at least one.
        raw_text (bool): As in :meth:`Predictions.to_csv`. (default: ``False``)
        check (callable): Called with all predictions before the file takes its place; it may raise.

    Raises:
        DataError: If the file cannot be written.
    """
    texts = {".csv": _csv_rows, ".json": _json_rows, ".jsonl": _json_lines}[path.suffix.lower()]
    done: list[Predictions] = []

    def numbered() -> Iterator[tuple[int, Predictions]]:
        first = 0
        for part in parts:
            done.append(part)
            yield first, part
            first += len(part)

    def write(file: BinaryIO) -> None:
        for text in texts(numbered(), done, raw_text):
            file.write(escape_text(text).encode())
        check(Predictions.join(done))

    write_atomically(path, write)
    return Predictions.join(done)


def _csv_rows(
    parts: Iterable[tuple[int, Predictions]], done: list[Predictions], raw_text: bool
) -> Iterator[str]:
    for first, part in parts:
        yield part.to_csv(raw_text=raw_text, first=first, header=not first)


def _json_lines(
    parts: Iterable[tuple[int, Predictions]], done: list[Predictions], raw_text: bool
) -> Iterator[str]:
    for first, part in parts:
        yield "".join(f"{_json(row)}\n" for row in part.rows(first))


def _json_rows(
    parts: Iterable[tuple[int, Predictions]], done: list[Predictions], raw_text: bool
) -> Iterator[str]:
    yield '{"predictions": [\n'
    for first, part in parts:
        rows = ",\n".join(_json(row) for row in part.rows(first))
        yield f",\n{rows}" if first and rows else rows
    yield f'\n],\n"summary": {_json(Predictions.join(done).summary())}}}\n'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
