"""Fetches a zip of the TU collection, checks it, and only then gives it its name.

A download is written beside its target under a temporary name and renamed when it is whole, so an
interrupted one leaves nothing behind. Its checksum is compared with the stated one; where none is stated, the
checksum seen is recorded in ``NAME.zip.sha256`` and every later reading is compared with that record.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import secrets
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcaps.errors import ArgumentError, DataError, GraphcapsError

__all__ = [
    "COLLECTION_URL",
    "Download",
    "DownloadError",
    "collection_url",
    "download_tu",
    "verify_checksum_file",
]

COLLECTION_URL = "https://www.chrsmrrs.com/graphkerneldatasets"
_CHUNK = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class DownloadError(GraphcapsError):
    """A data set that could not be fetched; ``reason`` says why in a few words."""

    def __init__(self, name: str, reason: str, folder: Path) -> None:
        self.name, self.reason, self.folder = name, reason, folder
        super().__init__(
            f"{name} could not be downloaded ({reason}): put {name}.zip into {folder}, or name the folder "
            "that holds it with --root or GRAPHCAPS_DATA."
        )


@dataclass(frozen=True)
class Download:
    """What was fetched.

    Args:
        path (Path): The zip.
        sha256 (str): Its checksum.
        checksum_known (bool): Whether that checksum was known beforehand, or is trusted from this first use on.
    """

    path: Path
    sha256: str
    checksum_known: bool


def collection_url() -> str:
    """Where the zips lie: ``$GRAPHCAPS_TU_URL``, or the TU collection."""
    return os.environ.get("GRAPHCAPS_TU_URL") or COLLECTION_URL


def download_tu(
    name: str,
    folder: str | Path,
    *,
    sha256: str | None = None,
    url: str | None = None,
    timeout: float = 20.0,
) -> Download:
    """Downloads ``<url>/<name>.zip`` into ``folder``.

    Args:
        name (str): Name in the collection.
        folder (str or Path): Made when missing.
        sha256 (str, optional): The checksum it must have.
        url (str, optional): Address of the collection. (default: :func:`collection_url`)
        timeout (float): Seconds without an answer after which the attempt ends. (default: 20)

    Raises:
        DownloadError: If nothing, only a part, no zip or a zip with another checksum arrives.
    """
    folder, base = Path(folder), (url or collection_url()).rstrip("/")
    if not _NAME.fullmatch(name):
        raise DownloadError(name, "that is no name of the TU collection", folder)
    try:
        scheme = urllib.parse.urlsplit(base).scheme
    except ValueError as error:
        raise DownloadError(name, f"{base!r} is no address", folder) from error
    if scheme not in ("http", "https"):
        raise ArgumentError("download_tu", "url", "start with https:// or http://", repr(base))
    target = folder / f"{name}.zip"
    partial = _temporary(name, folder)
    try:
        found = _fetch(name, f"{base}/{urllib.parse.quote(name)}.zip", partial, folder, timeout)
        if sha256 is not None and found != sha256:
            reason = f"its checksum is {found}, the stated one is {sha256}; nothing was kept"
            raise DownloadError(name, reason, folder)
        _write_record(target, found)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return Download(target, found, checksum_known=sha256 is not None)


def verify_checksum_file(path: Path) -> None:
    """Compares a downloaded zip with the checksum recorded beside it, where there is a record."""
    record = _record(path)
    try:
        expected = record.read_text("ascii").split()[0]
    except (OSError, ValueError, IndexError):
        return  # not downloaded by this program
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        fix = f"Delete {path.name} to download it again, or {record.name} if the change is yours."
        raise DataError(path, f"the checksum {expected} recorded at its download", found, fix=fix)


def _fetch(name: str, address: str, partial: Path, folder: Path, timeout: float) -> str:
    """Writes what ``address`` answers to ``partial``, safely on the disk, and returns its checksum."""
    digest, received = hashlib.sha256(), 0
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "graphcaps"})
        with urllib.request.urlopen(request, timeout=timeout) as answer, partial.open("wb") as stream:
            while chunk := answer.read(_CHUNK):
                digest.update(chunk)
                stream.write(chunk)
                received += len(chunk)
            announced = answer.headers.get("Content-Length")
            stream.flush()
            os.fsync(stream.fileno())
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(name, _reason(error, address), folder) from error
    except ValueError as error:  # UnicodeError as well: a host or path that urllib cannot send
        raise DownloadError(name, f"{address!r} is no address", folder) from error
    if announced is not None and announced.isdigit() and int(announced) != received:
        raise DownloadError(name, f"only {received:,} of {int(announced):,} bytes arrived", folder)
    if not zipfile.is_zipfile(partial):
        raise DownloadError(name, f"{address} answered with something that is no whole zip", folder)
    return digest.hexdigest()


def _reason(error: Exception, address: str) -> str:
    """Why a transfer failed, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"{address} answered {error.code} {error.reason}"
    cause: Any = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"{address} did not answer in time"
    return f"{address}: {getattr(cause, 'strerror', None) or cause or type(cause).__name__}"


def _temporary(name: str, folder: Path) -> Path:
    """An empty file of a new name in ``folder``, which is made when missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f".{name}.{secrets.token_hex(8)}.part"
        path.touch(exist_ok=False)
    except OSError as error:
        raise DownloadError(name, f"{folder}: {error.strerror or error}", folder) from error
    return path


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _write_record(target: Path, sha256: str) -> None:
    """Records the checksum in the form of ``sha256sum``, before the zip gets its name."""
    record = _record(target)
    partial = record.with_name(f".{record.name}.part")
    try:
        partial.write_text(f"{sha256}  {target.name}\n", "ascii")
        os.replace(partial, record)
    finally:
        partial.unlink(missing_ok=True)
