"""A safetensors file with a JSON header and a encode_checked over all of its bytes: a changed one is noticed.

The file is an ordinary safetensors file. Its metadata hold one entry, ``graphcaps``: a JSON object that
begins with ``format``, ``version`` and ``sha256``. The last is the SHA-256 of the whole file with these 64
digits written as zeros. Reading runs no code: a safetensors table, JSON, and numbers.
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

from graphcaps.errors import DataError

__all__ = ["CheckedFile", "encode_checked", "read_checked"]

_KEY = "graphcaps"
_ZEROS = "0" * 64
_START = b'{"__metadata__":{"graphcaps":"'
_MOST_HEADER = 1 << 26
_WRITTEN_BY = "a file written by graphcaps"


@dataclass(frozen=True, eq=False)
class CheckedFile:
    """What a sealed file holds: its ``content``, a JSON object, and its ``tensors`` by name."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]


def encode_checked(kind: str, version: int, content: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """The bytes of a sealed file; the same values give the same bytes.

    Args:
        kind (str): What the file is, such as ``"graphcaps model"``.
        version (int): Version of its format.
        content (dict): Anything in JSON's own types, without NaN.
        tensors (dict): Tensors by name.
    """
    from safetensors.torch import save

    head = {"format": kind, "version": version, "sha256": _ZEROS}
    text = json.dumps(head | content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    plain = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {_KEY: text})
    digest = hashlib.sha256(plain).hexdigest()
    return plain.replace(_ZEROS.encode(), digest.encode(), 1)  # the first in the file stands in `head`


def read_checked(path: str | Path, kind: str, version: int) -> CheckedFile:
    """Reads what :func:`encode_checked` made.

    Raises:
        DataError: If the file is missing, something else, cut short, changed, or of a newer format.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise DataError(
                path, _WRITTEN_BY, "a folder" if stat.S_ISDIR(mode) else "something that is no file"
            )
        with open(path, "rb") as file:
            return _read(path, file, path.stat().st_size, kind, version)
    except FileNotFoundError as error:
        raise DataError(path, _WRITTEN_BY, "nothing of that name") from error
    except OSError as error:
        raise DataError(path, "a file that can be read", f"'{error.strerror or error}'") from error


def _read(path: Path, file: BinaryIO, size: int, kind: str, version: int) -> CheckedFile:
    from safetensors.torch import load

    start = file.read(8 + len(_START))
    length = int.from_bytes(start[:8], "little")
    if len(start) < 10 or length > _MOST_HEADER or not start.startswith(_START[: len(start) - 8], 8):
        raise DataError(path, _WRITTEN_BY, _guess(start, length))
    if size < 8 + length:
        raise _cut_short(path, size, f"at least {8 + length:,}")
    if length < len(_START):
        raise _changed(path)
    header = start[8:] + file.read(length - (len(start) - 8))
    content, end = _parse(path, header)
    _check_format(path, content, kind, version)
    if size != 8 + length + end:
        if size < 8 + length + end:
            raise _cut_short(path, size, f"{8 + length + end:,}")
        raise DataError(path, f"{8 + length + end:,} bytes", f"{size:,}: something was added to the file")
    whole = start[:8] + header + file.read()
    digest = str(content.get("sha256"))
    plain = whole.replace(digest.encode(), _ZEROS.encode(), 1)
    if not re.fullmatch("[0-9a-f]{64}", digest) or hashlib.sha256(plain).hexdigest() != digest:
        raise _changed(path)
    try:
        return CheckedFile(content, load(whole))
    except Exception as error:  # a sealed file that safetensors cannot read was made by hand
        raise DataError(path, "tensors in safetensors' form", f"others ({error})") from error


def _parse(path: Path, header: bytes) -> tuple[dict[str, Any], int]:
    """The content, and where the tensors' bytes end."""
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


def _check_format(path: Path, content: dict[str, Any], kind: str, version: int) -> None:
    found = content.get("version")
    if content.get("format") != kind:
        raise DataError(path, f"a file of the format '{kind}'", f"'{content.get('format')}'")
    if type(found) is not int or found < 1:
        raise DataError(path, "a format version", repr(found))
    if found > version:
        versions = content.get("versions")
        writer = versions.get("graphcaps") if isinstance(versions, dict) else None
        by = f", written by graphcaps {writer}" if isinstance(writer, str) else ""
        raise DataError(
            path,
            f"format {version}{' or older' if version > 1 else ''} of '{kind}'",
            f"the newer format {found}{by}",
            fix="Update graphcaps to read it.",
        )


def _guess(start: bytes, length: int) -> str:
    """What a file that is not ours seems to be, from its first bytes."""
    if not start:
        return "an empty file"
    if start.startswith(b"PK"):
        return "a zip archive, as torch.save and data sets use it"
    if start.startswith(b"\x80") and start[1:2] in b"\x02\x03\x04\x05":
        return "a pickle, which could run code and is not opened"
    if start[8:9] == b"{" and length <= _MOST_HEADER:
        return "a safetensors file of another program"
    if all(byte >= 32 or byte in b"\t\r\n" for byte in start):
        return "text"
    return "something else"


def _cut_short(path: Path, size: int, expected: str) -> DataError:
    return DataError(
        path, f"{expected} bytes", f"{size:,}: the file is cut short", fix="Copy or save it again."
    )


def _changed(path: Path) -> DataError:
    return DataError(
        path,
        "the contents that were saved",
        "others: the checksum does not agree, the file was changed or damaged",
        fix="Copy or save it again.",
    )
