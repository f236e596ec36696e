"""What a zip must pass before any of it is read, and how failures of reading it are told."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections import Counter
from pathlib import Path

from graphcaps.errors import DataError

__all__ = ["MAX_BYTES", "MAX_RATIO", "READ_ERRORS", "check_zip", "open_zip", "reason"]

MAX_BYTES = 8 * 10**9  # twenty times the text of COLLAB, the largest of the paper's data sets
MAX_RATIO = 1000  # text of numbers shrinks 5 to 40 times; a thousand is a zip made to burst
_RATIO_FROM = 1 << 26  # below 64 MB no ratio does harm

READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # covers NotImplementedError: a compression that zipfile does not know
    ValueError,
    LookupError,
    ArithmeticError,
    MemoryError,  # a damaged LZMA header can ask for gigabytes
)
"""What the standard library raises on damaged zips."""


def reason(error: BaseException) -> str:
    """What an exception of reading means, in the words of a message's "found"."""
    if isinstance(error, OSError) and error.strerror:
        return f"the system's refusal ({error.strerror})"
    return "damaged content"


def open_zip(path: Path, label: str) -> zipfile.ZipFile:
    """Opens a zip, which messages call ``label``.

    Raises:
        DataError: If it cannot be opened, is no regular file (a pipe would be waited on for ever), or is no zip.
    """
    try:
        if path.is_file() or not path.exists():
            return zipfile.ZipFile(path)
    except OSError as error:
        raise DataError(label, "a zip that can be read", reason(error)) from error
    except READ_ERRORS as error:
        raise DataError(label, "a TU folder or zip", "a file that is not a zip, or a damaged one") from error
    raise DataError(label, "a TU folder or zip", "no regular file")


def check_zip(archive: zipfile.ZipFile, packed: int, label: str, max_bytes: int) -> list[str]:
    """The file names inside a zip of ``packed`` bytes that is found harmless as a whole.

    Raises:
        DataError: At a path that leads outside, an absurd unpacked size, a name given twice, encryption.
    """
    for entry in archive.infolist():
        raw = entry.orig_filename.replace("\\", "/")
        if raw.startswith("/") or ":" in raw.partition("/")[0] or ".." in raw.split("/") or "\0" in raw:
            raise DataError(label, "paths inside the zip's own folder", repr(entry.orig_filename))
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    total, packed = sum(entry.file_size for entry in entries), max(packed, 1)
    if total > max_bytes:
        raise DataError(label, f"at most {max_bytes:,} bytes unpacked", f"{total:,} declared")
    if total > _RATIO_FROM and total > MAX_RATIO * packed:
        found = f"{total // packed:,} times declared"
        raise DataError(label, f"at most {MAX_RATIO:,} times its size unpacked", found)
    for name, count in Counter(entry.filename for entry in entries).items():
        if count > 1:
            raise DataError(label, "every file once", f"{name!r} {count} times")
    for entry in entries:
        if entry.flag_bits & 1:
            raise DataError(label, "a zip without a password", f"{entry.filename!r} encrypted")
    return [entry.filename for entry in entries]
