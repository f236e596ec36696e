"""Access to the files of a TU data set, in a folder or in a zip.

A zip is never extracted to disk. Its paths, declared sizes and encryption are checked before anything is read, and its
members are streamed in small steps, so that a malicious zip exhausts neither disk nor memory.
"""

from __future__ import annotations

import hashlib
import lzma
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from graphcaps._io.file_hash import sha256_of
from graphcaps._io.read_limit import read_limit
from graphcaps.errors import DataError, count_noun

__all__ = ["TRUTH_PREFIX", "TU_TABLES", "TUArchive", "count_files"]

TU_TABLES = (
    "A",
    "graph_indicator",
    "graph_labels",
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
    # Not in the collection: additions of graphcaps.data.readers.tu_writer, so that a store is saved completely.
    "class_names",
    "label_names",
    "edge_weights",
    "featurizer",
)
"""Names of the files of a TU data set, between ``<NAME>_`` and ``.txt``."""

TRUTH_PREFIX = "truth_"
"""Prefix of the names of files with ground truth on nodes, such as ``<NAME>_truth_part.txt``."""

_MAX_RATIO = 1000  # text of numbers compresses by a factor of 5 to 40; a factor of 1000 means a zip bomb
_MIN_RATIO_BYTES = 1 << 26  # below 64 MB no ratio does harm
_CHUNK_BYTES = 1 << 19
_MAX_SUFFIXES = 4  # listed in a message
# zipfile decompresses LZMA and bzip2 input of the requested size at once: a small step bounds the output.
_SMALL_STEP = 1 << 12

# Exceptions of the standard library at damaged zips.
_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # includes NotImplementedError: an unknown compression method
    ValueError,
    LookupError,
    ArithmeticError,
    MemoryError,  # a damaged LZMA header can request gigabytes
)


class TUArchive:
    """The files of a TU data set in a folder or zip: ``<NAME>_A.txt`` and the files beside it.

    The files are at the top or in a subfolder, and there must be exactly one ``<NAME>_A.txt``. Use the archive as a
    context manager, or call :meth:`close`.

    Args:
        path (str or Path): Folder or zip.
        max_bytes (int, optional): Largest uncompressed size of a zip. (default: four times
            :func:`graphcaps._io.read_limit.read_limit`; the tables that are read are checked against the limit itself)

    Raises:
        DataError: If the path does not exist or does not hold exactly one data set; or if a zip is damaged, encrypted,
            too large when uncompressed, or has a path outside its own folder.
    """

    def __init__(self, path: str | Path, *, max_bytes: int | None = None) -> None:
        self.path = Path(path)
        self._zip: zipfile.ZipFile | None = None
        self._streams: list[IO[bytes]] = []
        try:
            files = self._list_files(4 * read_limit() if max_bytes is None else max_bytes)
            edge_file = _find_edge_file(files, self.path)
        except OSError as error:
            self.close()
            raise _unreadable(self.path, error) from error
        except DataError:
            self.close()
            raise
        self.name, self._folder = _dataset_name(edge_file.name), edge_file.parent
        self._paths = {  # file name -> path inside the folder or zip
            inner.name: file
            for file in files
            if (inner := _inner_path(file)).parent == self._folder and self._is_member(inner.name)
        }
        self.has_graph_attributes = any(  # a file that is not read
            _inner_path(file) == self._folder / f"{self.name}_graph_attributes.txt" for file in files
        )
        if self._zip is None:
            self._check_regular_files()

    def __enter__(self) -> TUArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the zip, and files that were not read to their end."""
        for stream in self._streams:
            stream.close()
        if self._zip is not None:
            self._zip.close()

    def names(self) -> tuple[str, ...]:
        """Names of the data set's files, sorted: ``MUTAG_A.txt``, ``MUTAG_graph_indicator.txt``, …"""
        return tuple(sorted(self._paths))

    def truth_keys(self) -> tuple[str, ...]:
        """Names of the ground truth on nodes, sorted: ``part`` for ``MUTAG_truth_part.txt``."""
        start = len(f"{self.name}_{TRUTH_PREFIX}")
        return tuple(member[start:-4] for member in self.names() if self._is_truth(member))

    def where(self, member: str) -> str:
        """Path of a file for messages: ``data/MUTAG/MUTAG_A.txt``, or ``MUTAG_A.txt in data/MUTAG.zip``."""
        return f"{member} in {self.path}" if self._zip is not None else str(self.path / self._folder / member)

    def is_link(self, where: str) -> bool:
        """Whether the file that messages call ``where`` is a symbolic link in a folder."""
        links = (member for member in self._paths if self.where(member) == where)
        return self._zip is None and any((self.path / self._folder / member).is_symlink() for member in links)

    def open(self, member: str) -> IO[bytes]:
        """Opens a file as a binary stream. Prefer :meth:`chunks`, which also reports errors while reading.

        Raises:
            DataError: If the file does not exist or cannot be opened.
        """
        if member not in self._paths:
            raise DataError(self.where(member), "file not found")
        path = self._paths[member]
        try:
            stream = (self.path / path).open("rb") if self._zip is None else self._zip.open(path)
        except _READ_ERRORS as error:
            raise _unreadable(self.where(member), error) from error
        self._streams.append(stream)
        return stream

    def chunks(self, member: str) -> Iterator[bytes]:
        """Yields the content of a file in chunks of about half a megabyte.

        Raises:
            DataError: If the file does not exist, is damaged, or has another size than the zip declares.
        """
        left, step = 0, _CHUNK_BYTES
        with self.open(member) as stream:
            if self._zip is not None:
                entry = self._zip.getinfo(self._paths[member])
                left = entry.file_size
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    step = _SMALL_STEP
            while chunk := self._read_chunk(stream, step, member):
                left -= len(chunk)
                if self._zip is not None and left < 0:
                    break
                yield chunk
        self._streams.remove(stream)
        if self._zip is not None and left:
            found = "more" if left < 0 else f"{left:,} fewer"
            raise DataError(self.where(member), "as many bytes as the zip declares", found)

    def digest(self) -> str:
        """SHA-256 of the content: of the zip itself, or of the sorted names and contents of the files in a folder."""
        if self._zip is not None:
            return sha256_of(self.path)
        digest = hashlib.sha256()
        for member in self.names():
            content = hashlib.sha256()
            for chunk in self.chunks(member):
                content.update(chunk)
            digest.update(f"{member}\n{content.hexdigest()}\n".encode())
        return digest.hexdigest()

    def _list_files(self, max_bytes: int) -> list[str]:
        """The files of a folder, or of its subfolders if the folder itself holds no data set, or of a zip."""
        if self.path.is_dir():
            files = [entry.name for entry in self.path.iterdir() if entry.is_file()]
            if any(_dataset_name(file) for file in files):
                return files
            inner = [file for file in self.path.glob("*/*") if file.is_file()]
            if any(_dataset_name(file.name) for file in inner):
                return [f"{file.parent.name}/{file.name}" for file in inner]
            return files  # the message counts them
        if not self.path.exists():
            raise DataError(self.path, "file or folder not found")
        self._zip = _open_zip(self.path)
        return _check_zip(self._zip, self.path, max_bytes)

    def _check_regular_files(self) -> None:
        """Raises if a file of the data set is a dangling link, a folder, a pipe or a device."""
        try:
            names = [entry.name for entry in (self.path / self._folder).iterdir()]
        except OSError as error:
            raise _unreadable(self.path, error) from error
        for name in sorted(names):
            if self._is_member(name) and name not in self._paths:
                raise DataError(self.where(name), "a regular file", "a dangling link, a folder or a device")

    def _is_member(self, name: str) -> bool:
        return name in {f"{self.name}_{table}.txt" for table in TU_TABLES} or self._is_truth(name)

    def _is_truth(self, name: str) -> bool:
        start = f"{self.name}_{TRUTH_PREFIX}"
        return name.startswith(start) and name.endswith(".txt") and len(name) > len(start) + 4

    def _read_chunk(self, stream: IO[bytes], step: int, member: str) -> bytes:
        """The next chunk of a stream, read ``step`` bytes at a time."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < _CHUNK_BYTES and (part := stream.read(step)):
                parts.append(part)
                size += len(part)
        except _READ_ERRORS as error:
            raise _unreadable(self.where(member), error) from error
        return b"".join(parts)


def _unreadable(where: str | Path, error: BaseException) -> DataError:
    system_error = error.strerror if isinstance(error, OSError) else None
    return DataError(where, "a readable file", f"'{system_error}'" if system_error else "damaged content")


def _open_zip(path: Path) -> zipfile.ZipFile:
    """Opens a zip.

    Raises:
        DataError: If it cannot be opened, is not a regular file (reading a pipe would block), or is not a zip.
    """
    try:
        if path.is_file() or not path.exists():
            return zipfile.ZipFile(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    except _READ_ERRORS as error:
        raise DataError(path, "a TU folder or zip", "a file that is not a zip, or a damaged one") from error
    raise DataError(path, "a TU folder or zip", "a special file")


def _check_zip(archive: zipfile.ZipFile, path: Path, max_bytes: int) -> list[str]:
    """The names of the files in the zip at ``path``, after checks of the whole zip.

    Raises:
        DataError: At a path outside the zip's folder, an excessive uncompressed size, a repeated name, or encryption.
    """
    for entry in archive.infolist():
        raw = entry.orig_filename.replace("\\", "/")
        if raw.startswith("/") or ":" in raw.partition("/")[0] or ".." in raw.split("/") or "\0" in raw:
            raise DataError(path, "paths inside the zip's own folder", repr(entry.orig_filename))
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    total, compressed = sum(entry.file_size for entry in entries), max(path.stat().st_size, 1)
    if total > max_bytes:
        raise DataError(path, f"at most {max_bytes:,} bytes uncompressed", f"{total:,} declared")
    if total > _MIN_RATIO_BYTES and total > _MAX_RATIO * compressed:
        found = f"a factor of {total // compressed:,}"
        raise DataError(path, f"a compression factor of at most {_MAX_RATIO:,}", found)
    for name, count in Counter(entry.filename for entry in entries).items():
        if count > 1:
            raise DataError(path, "every file once", f"{name!r} {count} times")
    for entry in entries:
        if entry.flag_bits & 1:
            raise DataError(path, "a zip without a password", f"{entry.filename!r} encrypted")
    return [entry.filename for entry in entries]


def count_files(files: Iterable[str]) -> str:
    """What a folder or zip holds, by the suffixes of its files: "1 .csv file", "3 files (2 .csv, 1 .txt)"."""
    names = [PurePosixPath(file).name for file in files]
    counts = Counter(PurePosixPath(name).suffix.lower() or "without suffix" for name in names)
    if not names:
        return "no file"
    if len(counts) == 1 and "without suffix" not in counts:
        return count_noun(len(names), f"{next(iter(counts))} file")
    listed = ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common(_MAX_SUFFIXES))
    more = ", …" if len(counts) > _MAX_SUFFIXES else ""
    return f"{count_noun(len(names), 'file')} ({listed}{more})"


def _inner_path(file: str) -> PurePosixPath:
    """A path inside a zip; some programs write Windows separators."""
    return PurePosixPath(file.replace("\\", "/"))


def _dataset_name(file: str) -> str:
    """``MUTAG`` for ``MUTAG_A.txt``; empty for other files and for the ``._`` files of macOS."""
    return "" if file.startswith("._") or not file.endswith("_A.txt") else file.removesuffix("_A.txt")


def _find_edge_file(files: list[str], source: Path) -> PurePosixPath:
    """The only ``<NAME>_A.txt`` among the ``files`` of a folder or zip."""
    paths = sorted(path for file in files if _dataset_name((path := _inner_path(file)).name))
    if not paths:
        raise DataError(source, "a TU data set with a file <NAME>_A.txt", count_files(files))
    if len(paths) > 1:
        shown = ", ".join(str(path) for path in paths[:4]) + (", …" if len(paths) > 4 else "")
        fix = "Name the folder or zip of one data set."
        raise DataError(source, "one data set with a file <NAME>_A.txt", f"{len(paths)} ({shown})", fix=fix)
    return paths[0]
