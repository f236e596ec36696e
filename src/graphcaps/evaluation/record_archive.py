"""Many records in one compressed file: ``records.zip``.

The member ``records.jsonl`` holds a line of JSON per record, sorted by key: everything but the values of the curves.
Those of all records follow one another in the order of the lines, and compress better so: differences along epochs,
made unsigned (zigzag code: 0, −1, 1, −2 … as 0, 1, 2, 3 …), split into their four bytes. The member
``train_loss.0`` holds the lowest byte of every value of ``train_loss``, ``train_loss.1`` the next; a byte that is zero
everywhere has no member. Equal records give equal files: members have a fixed order and a fixed time.
"""

from __future__ import annotations

import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from graphcaps._io.atomic_write import escape_text, write_atomically
from graphcaps._io.read_limit import check_json
from graphcaps.errors import DataError
from graphcaps.evaluation.epoch_records import CURVES, METRIC_CURVE
from graphcaps.evaluation.record import RecordKey, SeedRecord, read_key

__all__ = ["RecordArchive", "write_archive"]

_INDEX = "records.jsonl"
_ALL_CURVES = (*CURVES, METRIC_CURVE)
_PLANES = tuple(f"{name}.{byte}" for name in _ALL_CURVES for byte in range(4))
_MAX_BYTES = 2**25  # of the unpacked index; a thousand records have 2**21
_MAX_VALUES = 2**23  # per curve, all records; a thousand records of ten folds have 2**22
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError)
_FOREIGN = (NotImplementedError, RuntimeError, ValueError, OverflowError)  # encryption, odd sizes, odd names


class RecordArchive:
    """An archive of records. Its index is read on construction, its curves with the first record.

    Args:
        path (Path): The file.

    Raises:
        DataError: If the file is not an archive written by :func:`write_archive`, or holds two records of one key.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[RecordKey, tuple[dict[str, Any], int]] = {}  # values, offset of its curves
        self._curves: dict[str, np.ndarray] | None = None
        self._num_values = 0
        for number, line in enumerate(_read_members(path, (_INDEX,), _MAX_BYTES)[_INDEX].splitlines(), 1):
            self._add_line(line, f"{path}, {_INDEX}, line {number}")

    def _add_line(self, line: bytes, where: str) -> None:
        check_json(line, where)
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(where, "a record written by graphcaps", "invalid JSON") from error
        key = read_key(values, where)
        if key in self._entries:
            raise DataError(where, f"one record of {key}", "a second one")
        curves = values.get("curves")
        shape: list[Any] = (
            [curves.get(name) for name in ("folds", "epochs")] if isinstance(curves, dict) else []
        )
        if not shape or not all(type(size) is int and 0 < size <= _MAX_VALUES for size in shape):
            raise DataError(where, "numbers of folds and epochs under 'curves'", repr(curves)[:60])
        self._entries[key] = values, self._num_values
        self._num_values += shape[0] * shape[1]
        if self._num_values > _MAX_VALUES:
            raise DataError(where, f"at most {_MAX_VALUES:,} values per curve in all records", "more")

    @property
    def keys(self) -> tuple[RecordKey, ...]:
        return tuple(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: RecordKey) -> SeedRecord | None:
        """The record of a key; ``None`` if there is none.

        Raises:
            DataError: If the record or the curves are damaged.
        """
        if key not in self._entries:
            return None
        if self._curves is None:
            self._curves = self._read_curves()
        values, offset = self._entries[key]
        F, E = values["curves"]["folds"], values["curves"]["epochs"]
        curves = {
            name: steps[offset : offset + F * E].reshape(F, E).cumsum(1, dtype=np.int64)
            for name, steps in self._curves.items()
        }
        return SeedRecord.from_dict(values | {"curves": values["curves"] | curves}, f"{self.path}, {key}")

    def records(self) -> Iterator[SeedRecord]:
        """All records, in the order of the file."""
        for key in self._entries:
            record = self.get(key)
            assert record is not None
            yield record

    def _read_curves(self) -> dict[str, np.ndarray]:
        """Differences along epochs of all records by the name of the curve, int32 ``[N]``."""
        members = _read_members(self.path, _PLANES, self._num_values)
        curves = {}
        for name in _ALL_CURVES:
            planes = np.zeros((self._num_values, 4), dtype=np.uint8)
            for byte in range(4):
                content = members.get(f"{name}.{byte}")
                if content is None:
                    continue
                if len(content) != self._num_values:
                    expected = f"{self._num_values:,} values in {name}.{byte}"
                    raise DataError(self.path, expected, f"{len(content):,}")
                planes[:, byte] = np.frombuffer(content, dtype=np.uint8)
            coded = planes.view("<u4").reshape(-1)
            curves[name] = (coded >> 1).view("<i4") ^ -(coded & 1).view("<i4")
        return curves


def write_archive(path: Path, records: Iterable[SeedRecord]) -> None:
    """Writes an archive atomically; the order of the records does not matter.

    Raises:
        DataError: If the file cannot be written.
    """
    records = sorted(records, key=lambda record: record.key)
    lines = (
        json.dumps(record.as_dict(curves=record.curves.header()), ensure_ascii=False, separators=(",", ":"))
        for record in records
    )
    members = {_INDEX: escape_text("".join(f"{line}\n" for line in lines)).encode()}
    for name in _ALL_CURVES:
        values = np.concatenate([_encode(_curve(record, name)) for record in records])
        for byte, plane in enumerate(values.reshape(-1, 1).view(np.uint8).T):
            if plane.any():
                members[f"{name}.{byte}"] = plane.tobytes()

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                member = zipfile.ZipInfo(name)  # dated 1980, whenever it is written
                member.external_attr = 0o644 << 16
                archive.writestr(member, content, _method(content), 9)

    write_atomically(path, write)


def _curve(record: SeedRecord, name: str) -> np.ndarray:
    """A curve of a record; zeros in place of a metric that was not measured."""
    curves = record.curves
    values = curves.validation_metric if name == METRIC_CURVE else getattr(curves, name)
    return np.zeros_like(curves.test_right) if values is None else values


def _method(content: bytes) -> int:
    """LZMA where it saves at least 5 % over deflate, which is much faster to read."""
    saves = len(lzma.compress(content)) < 0.95 * len(zlib.compress(content, 9))
    return zipfile.ZIP_LZMA if saves else zipfile.ZIP_DEFLATED


def _encode(values: np.ndarray) -> np.ndarray:
    """Differences along epochs in the zigzag code, ``[F·E]``; values lie in [−2³⁰, 2³¹)."""
    steps: np.ndarray = np.diff(values.astype(np.int64), axis=1, prepend=0)
    return ((steps << 1) ^ (steps >> 63)).astype("<u4").reshape(-1)


def _read_members(path: Path, names: tuple[str, ...], max_bytes: int) -> dict[str, bytes]:
    """The content of the named members that exist, each at most ``max_bytes`` long."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = archive.namelist()
            other = [name for name in listed if name != _INDEX and name not in _PLANES]
            if _INDEX not in listed or other or len(set(listed)) < len(listed):
                content = other[0] if other else ", ".join(listed[:3]) or "an empty archive"
                raise DataError(path, f"the member {_INDEX} and curves beside it, each once", content)

            def read(name: str) -> bytes:
                with archive.open(name) as member:
                    content = member.read(max_bytes + 1)
                if len(content) > max_bytes:
                    raise DataError(path, f"at most {max_bytes:,} bytes in {name}", "more")
                return content

            present = [name for name in names if name in listed]
            with ThreadPoolExecutor() as pool:  # decompression releases the interpreter's lock
                return dict(zip(present, pool.map(read, present), strict=True))
    except DataError:
        raise
    except OSError as error:
        raise DataError(path, f"the archive cannot be read ({error.strerror or error})") from error
    except (*_DAMAGED, *_FOREIGN) as error:
        raise DataError(path, "an archive of records", f"a damaged or foreign file ({error})") from error
