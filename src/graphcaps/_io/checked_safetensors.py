"""Safetensors files with a JSON header and a checksum, so that any change of the file is detected.

The file is an ordinary safetensors file. Its metadata has one entry, ``graphcaps``: a JSON object that begins with
``format``, ``version`` and ``sha256``. The checksum is the SHA-256 of the whole file with these 64 digits set to
zero. Reading never executes code: the file holds a safetensors table, JSON and numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from graphcaps._io.atomic_write import escape_text
from graphcaps._io.read_limit import check_json
from graphcaps.errors import DataError

__all__ = ["CheckedFile", "encode_checked", "read_checked"]

_KEY = "graphcaps"
_ZEROS = "0" * 64
_START = b'{"__metadata__":{"graphcaps":"'  # the first bytes of the header in every file of ours
_MAX_HEADER_BYTES = 1 << 26
_EXPECTED = "a file written by graphcaps"


@dataclass(frozen=True, eq=False)
class CheckedFile:
    """Content of a checked file: a JSON object and tensors by name."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]


def encode_checked(
    format_name: str, version: int, content: dict[str, Any], tensors: dict[str, Tensor]
) -> bytes:
    """Encodes a checked file. The same values give the same bytes.

    Args:
        format_name (str): Name of the format, such as ``"graphcaps model"``.
        version (int): Version of the format.
        content (dict): Values of JSON types, without NaN.
        tensors (dict): Tensors by name.
    """
    from safetensors.torch import save

    head = {"format": format_name, "version": version, "sha256": _ZEROS}
    text = json.dumps(head | content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = escape_text(text)  # what UTF-8 cannot hold becomes an escape of JSON
    blank = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {_KEY: text})
    checksum = hashlib.sha256(blank).hexdigest()
    return blank.replace(_ZEROS.encode(), checksum.encode(), 1)  # the first run of 64 zeros is in `head`


def read_checked(path: str | Path, format_name: str, version: int) -> CheckedFile:
    """Reads a file made by :func:`encode_checked`.

    Args:
        path (str or Path): The file.
        format_name (str): Name of the format that it must have.
        version (int): Newest version of the format that can be read.

    Raises:
        DataError: If the file is missing, has another format or a newer version, is truncated or was changed.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise DataError(path, _EXPECTED, "a folder" if stat.S_ISDIR(mode) else "a special file")
        with open(path, "rb") as file:
            return _read(path, file, path.stat().st_size, format_name, version)
    except FileNotFoundError as error:
        raise DataError(path, "file not found") from error
    except OSError as error:
        raise DataError(path, f"file cannot be read ({error.strerror or error})") from error


def _read(path: Path, file: BinaryIO, size: int, format_name: str, version: int) -> CheckedFile:
    from safetensors.torch import load

    start = file.read(8 + len(_START))
    length = int.from_bytes(start[:8], "little")
    if len(start) < 10 or length > _MAX_HEADER_BYTES or not start.startswith(_START[: len(start) - 8], 8):
        raise DataError(path, _EXPECTED, _describe_other_file(start, length))
    if size < 8 + length:
        raise _truncated(path, size, f"at least {8 + length:,}")
    if length < len(_START):
        raise _changed(path)
    header = start[8:] + file.read(length - (len(start) - 8))
    check_json(header, path)
    content, end = _parse_header(path, header)
    _check_format(path, content, format_name, version)
    if size != 8 + length + end:
        if size < 8 + length + end:
            raise _truncated(path, size, f"{8 + length + end:,}")
        raise DataError(path, f"{8 + length + end:,} bytes", f"{size:,}: data was appended to the file")
    data = file.read()
    checksum = str(content.get("sha256"))
    actual = hashlib.sha256(start[:8] + header.replace(checksum.encode(), _ZEROS.encode(), 1))
    actual.update(data)
    if not re.fullmatch("[0-9a-f]{64}", checksum) or actual.hexdigest() != checksum:
        raise _changed(path)
    try:
        return CheckedFile(content, load(b"".join((start[:8], header, data))))
    except Exception as error:  # a valid checksum over an invalid table: the file was made by hand
        raise DataError(path, "tensors in safetensors format", f"others ({error})") from error


def _parse_header(path: Path, header: bytes) -> tuple[dict[str, Any], int]:
    """The JSON content, and the offset at which the tensor data ends."""
    try:
        table = json.loads(header)
        content = json.loads(table.pop("__metadata__")[_KEY])
        if not isinstance(content, dict):
            raise TypeError
        return content, max([0, *(int(entry["data_offsets"][1]) for entry in table.values())])
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        RecursionError,
        OverflowError,
    ) as error:
        raise _changed(path) from error


def _check_format(path: Path, content: dict[str, Any], format_name: str, version: int) -> None:
    found = content.get("version")
    if content.get("format") != format_name:
        raise DataError(path, f"a file of the format '{format_name}'", f"'{content.get('format')}'")
    if type(found) is not int or found < 1:
        raise DataError(path, "a format version", repr(found))
    if found > version:
        versions = content.get("versions")
        writer = versions.get("graphcaps") if isinstance(versions, dict) else None
        by = f", written by graphcaps {writer}" if isinstance(writer, str) else ""
        raise DataError(
            path,
            f"format {version}{' or older' if version > 1 else ''} of '{format_name}'",
            f"the newer format {found}{by}",
            fix="Update graphcaps to read it.",
        )


def _describe_other_file(start: bytes, length: int) -> str:
    """Describes a file of another program by its first bytes."""
    if not start:
        return "an empty file"
    if start.startswith(b"PK"):
        return "a zip archive (torch.save and data sets use this format)"
    if start.startswith(b"\x80") and start[1:2] in b"\x02\x03\x04\x05":
        return "a pickle, which could run code and is not opened"
    if start[8:9] == b"{" and length <= _MAX_HEADER_BYTES:
        return "a safetensors file of another program"
    if all(byte >= 32 or byte in b"\t\r\n" for byte in start):
        return "text"
    return "an unknown format"


def _truncated(path: Path, size: int, expected: str) -> DataError:
    return DataError(
        path, f"{expected} bytes", f"{size:,}: the file is truncated", fix="Copy or save it again."
    )


def _changed(path: Path) -> DataError:
    return DataError(
        path,
        "checksum mismatch: the file was changed or damaged after it was written",
        fix="Copy or save it again.",
    )
