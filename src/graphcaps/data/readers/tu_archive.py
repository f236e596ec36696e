"""The files of one TU data set, in a folder or a zip, through one door.

Nothing is ever unpacked to disk. A zip is looked over before any of it is read (paths, declared sizes,
encryption), and its members are streamed in small steps, so that a hostile one costs neither disk nor memory.
"""

from __future__ import annotations

import hashlib
import lzma
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from graphcaps.errors import DataError

__all__ = [
    "MAX_BYTES",
    "MAX_RATIO",
    "READ_ERRORS",
    "TRUTH_PREFIX",
    "TU_TABLES",
    "TUArchive",
    "check_zip",
    "open_zip",
    "reason",
]


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


TU_TABLES = (
    "A",
    "graph_indicator",
    "graph_labels",
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
    # Not of the collection: what graphcaps.data.readers.tu_writer adds, so that a store loses nothing.
    "class_names",
    "edge_weights",
)
"""What the files of a TU data set are called after ``<NAME>_`` and before ``.txt``."""

TRUTH_PREFIX = "truth_"
"""What the files with known facts on nodes are called between ``<NAME>_`` and the fact."""

_PIECE = 1 << 19
# zipfile expands LZMA and bzip2 inputs of the size asked for as a whole: a small step bounds what comes out.
_PACKED_STEP = 1 << 12


class TUArchive:
    """The TU data set in a folder or zip: ``<NAME>_A.txt`` and the files beside it.

    The files may lie at the top or in a subfolder; there must be exactly one ``<NAME>_A.txt``. Use it as a
    context manager, or call :meth:`close`.

    Args:
        path (str or Path): Folder or zip.
        max_bytes (int): Largest unpacked size of a zip that is accepted. (default: 8 GB)

    Raises:
        DataError: If there is no such path, no data set or several in it, or a zip that is damaged,
            encrypted, of absurd size, or with a path that leads outside its folder.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = Path(path)
        self.label = self.path.name or self.path.resolve().name
        self._zip: zipfile.ZipFile | None = None
        try:
            files = self._look(max_bytes)
            found = _find_edges(files, self.label)
        except OSError as error:
            self.close()
            raise DataError(self.path, "a TU folder or zip", reason(error)) from error
        except DataError:
            self.close()
            raise
        self.name, self._folder = _set_name(found.name), found.parent
        self._places = {  # file name -> path inside the folder or zip
            place.name: file
            for file in files
            if (place := _place(file)).parent == self._folder and self._is_ours(place.name)
        }
        if self._zip is None:
            self._refuse_odd()

    def _look(self, max_bytes: int) -> list[str]:
        """The files of a folder, of its subfolders where it holds no data set itself, or of a zip."""
        if self.path.is_dir():
            files = [entry.name for entry in self.path.iterdir() if entry.is_file()]
            if not any(_set_name(file) for file in files):
                files = [
                    f"{file.parent.name}/{file.name}" for file in self.path.glob("*/*") if file.is_file()
                ]
            return files
        if not self.path.exists():
            raise DataError(self.path, "a TU folder or zip", "nothing there")
        self._zip = open_zip(self.path, self.label)
        return check_zip(self._zip, self.path.stat().st_size, self.label, max_bytes)

    def __enter__(self) -> TUArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the zip."""
        if self._zip is not None:
            self._zip.close()

    def names(self) -> tuple[str, ...]:
        """Names of the data set's files, sorted: ``MUTAG_A.txt``, ``MUTAG_graph_indicator.txt``, …"""
        return tuple(sorted(self._places))

    def truth(self) -> tuple[str, ...]:
        """What is known about nodes beside the data set: ``part`` of ``MUTAG_truth_part.txt``, sorted."""
        start = len(f"{self.name}_{TRUTH_PREFIX}")
        return tuple(member[start:-4] for member in self.names() if self._is_truth(member))

    def _refuse_odd(self) -> None:
        """Refuses a dangling link, a folder, a pipe or a device under the name of a file of the data set."""
        try:
            names = [entry.name for entry in (self.path / self._folder).iterdir()]
        except OSError as error:
            raise DataError(self.path, "a TU folder or zip", reason(error)) from error
        for name in sorted(names):
            if self._is_ours(name) and name not in self._places:
                raise DataError(self.where(name), "a regular file", "something else, or a dangling link")

    def _is_ours(self, member: str) -> bool:
        return member in {f"{self.name}_{table}.txt" for table in TU_TABLES} or self._is_truth(member)

    def _is_truth(self, member: str) -> bool:
        start = f"{self.name}_{TRUTH_PREFIX}"
        return member.startswith(start) and member.endswith(".txt") and len(member) > len(start) + 4

    def where(self, member: str) -> str:
        """What messages call a file: ``MUTAG/MUTAG_A.txt``, or ``MUTAG_A.txt in MUTAG.zip``."""
        if self._zip is not None:
            return f"{member} in {self.label}"
        return str(PurePosixPath(self.label) / self._folder / member)

    def open(self, member: str) -> IO[bytes]:
        """A binary stream of one file; :meth:`pieces` turns failures of reading it into sentences as well.

        Raises:
            DataError: If the file is missing or cannot be opened.
        """
        if member not in self._places:
            raise DataError(self.where(member), "a file of the data set", "no such file")
        place = self._places[member]
        try:
            return (self.path / place).open("rb") if self._zip is None else self._zip.open(place)
        except READ_ERRORS as error:
            raise DataError(self.where(member), "a file that can be read", reason(error)) from error

    def pieces(self, member: str) -> Iterator[bytes]:
        """The content of one file, in pieces of about half a megabyte.

        Raises:
            DataError: If the file is missing, damaged, or longer or shorter than its zip declares.
        """
        left, step = 0, _PIECE
        with self.open(member) as stream:
            if self._zip is not None:
                entry = self._zip.getinfo(self._places[member])
                left = entry.file_size
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    step = _PACKED_STEP
            while piece := self._gather(stream, step, member):
                left -= len(piece)
                if self._zip is not None and left < 0:
                    break
                yield piece
        if self._zip is not None and left:
            found = "more" if left < 0 else f"{left:,} fewer"
            raise DataError(self.where(member), "as many bytes as the zip declares", found)

    def _gather(self, stream: IO[bytes], step: int, member: str) -> bytes:
        """The next piece of a stream that is asked for ``step`` bytes at a time."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < _PIECE and (part := stream.read(step)):
                parts.append(part)
                size += len(part)
        except READ_ERRORS as error:
            raise DataError(self.where(member), "a file that can be read", reason(error)) from error
        return b"".join(parts)

    def digest(self) -> str:
        """SHA-256 of the content: of the zip's bytes, or of the sorted names and contents of the files."""
        digest = hashlib.sha256()
        if self._zip is not None:
            try:
                with self.path.open("rb") as stream:
                    return hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                raise DataError(self.label, "a zip that can be read", reason(error)) from error
        for member in self.names():
            inner = hashlib.sha256()
            for piece in self.pieces(member):
                inner.update(piece)
            digest.update(f"{member}\n{inner.hexdigest()}\n".encode())
        return digest.hexdigest()


def _place(file: str) -> PurePosixPath:
    """A path inside a zip; some programs write Windows separators."""
    return PurePosixPath(file.replace("\\", "/"))


def _set_name(file: str) -> str:
    """``MUTAG`` of ``MUTAG_A.txt``; nothing of other names, and of the shadow files that macOS adds."""
    return "" if file.startswith("._") or not file.endswith("_A.txt") else file.removesuffix("_A.txt")


def _find_edges(files: list[str], label: str) -> PurePosixPath:
    """The one ``<NAME>_A.txt`` among ``files``."""
    found = sorted(place for file in files if _set_name((place := _place(file)).name))
    if not found:
        raise DataError(label, "a data set with a file <NAME>_A.txt", "no such file")
    if len(found) > 1:
        shown = ", ".join(str(place) for place in found[:4]) + (", …" if len(found) > 4 else "")
        fix = "Name the folder or zip of one data set."
        raise DataError(label, "one data set with a file <NAME>_A.txt", f"{len(found)} ({shown})", fix=fix)
    return found[0]
