"""Downloads data sets of the TU collection and verifies their checksums.

A download becomes visible only when it is complete and verified; an interrupted one leaves nothing behind. If the
expected checksum is not known, the one of the first download is trusted. Either way it is stored in
``NAME.zip.sha256``, and the zip is compared with it whenever it is opened.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.file_hash import sha256_of
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
_CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class DownloadError(GraphcapsError):
    """A data set that could not be downloaded; ``reason`` says why."""

    def __init__(self, name: str, reason: str, folder: Path) -> None:
        self.name, self.reason, self.folder = name, reason, folder
        super().__init__(
            f"{name} could not be downloaded ({reason}): put {name}.zip into {folder}, or name the folder "
            "that holds it with --root or GRAPHCAPS_DATA."
        )


@dataclass(frozen=True)
class Download:
    """A downloaded zip.

    Args:
        path (Path): The zip.
        sha256 (str): Its checksum.
        checksum_known (bool): Whether the checksum was known in advance, rather than trusted on first use.
    """

    path: Path
    sha256: str
    checksum_known: bool


def collection_url() -> str:
    """Base URL of the downloads: ``$GRAPHCAPS_TU_URL``, or the TU collection."""
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
        folder (str or Path): Target folder, created if it does not exist.
        sha256 (str, optional): Expected checksum.
        url (str, optional): Base URL. (default: :func:`collection_url`)
        timeout (float): Seconds to wait for a response. (default: 20)

    Raises:
        DownloadError: If the server does not deliver a complete zip with that checksum.
    """
    folder, base = Path(folder), (url or collection_url()).rstrip("/")
    if not _NAME.fullmatch(name):
        raise DownloadError(name, "not a valid name in the TU collection", folder)
    try:
        scheme = urllib.parse.urlsplit(base).scheme
    except ValueError as error:
        raise DownloadError(name, f"{base!r} is not a valid URL", folder) from error
    if scheme not in ("http", "https"):
        raise ArgumentError("download_tu", "url", "start with https:// or http://", repr(base))
    target, checksum = folder / f"{name}.zip", ""

    def fetch(file: BinaryIO) -> None:
        nonlocal checksum
        checksum = _fetch(name, f"{base}/{urllib.parse.quote(name)}.zip", file, folder, timeout)
        if sha256 is not None and checksum != sha256:
            raise DownloadError(name, f"its checksum is {checksum}, expected {sha256}", folder)
        # The checksum file comes first, so that a zip in place always has one.
        write_atomically(_checksum_file(target), f"{checksum}  {target.name}\n")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(target, fetch)
    except OSError as error:
        raise DownloadError(name, f"{folder}: {error.strerror or error}", folder) from error
    except DataError as error:  # the folder or disk cannot be written
        raise DownloadError(name, str(error).rstrip("."), folder) from error
    return Download(target, checksum, checksum_known=sha256 is not None)


def verify_checksum_file(path: Path) -> None:
    """Compares a zip with the checksum stored at its download. Without a checksum file there is nothing to check.

    Raises:
        DataError: If the checksums differ.
    """
    checksum_file = _checksum_file(path)
    try:
        expected = checksum_file.read_text("ascii").split()[0]
    except (OSError, ValueError, IndexError):
        return
    actual = sha256_of(path)
    if actual != expected:
        fix = f"Delete {path.name} to download it again, or {checksum_file.name} if you changed the zip."
        raise DataError(path, f"the checksum {expected} of the download", actual, fix=fix)


def _fetch(name: str, address: str, file: BinaryIO, folder: Path, timeout: float) -> str:
    """Writes the response of ``address``, a complete zip, to ``file`` and returns its checksum."""
    digest, received = hashlib.sha256(), 0
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "graphcaps"})
        with urllib.request.urlopen(request, timeout=timeout) as response:
            while chunk := response.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
                received += len(chunk)
            announced = response.headers.get("Content-Length")
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(name, _reason(error, address), folder) from error
    except ValueError as error:  # includes UnicodeError: a host or path that urllib cannot send
        raise DownloadError(name, f"{address!r} is not a valid URL", folder) from error
    if announced is not None and announced.isdigit() and int(announced) != received:
        raise DownloadError(name, f"only {received:,} of {int(announced):,} bytes arrived", folder)
    if not zipfile.is_zipfile(file):
        raise DownloadError(name, f"the response of {address} is not a complete zip", folder)
    return digest.hexdigest()


def _reason(error: Exception, address: str) -> str:
    """A short description of a failed request."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"{address} answered {error.code} {error.reason}"
    cause: Any = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"{address} did not answer in time"
    return f"{address}: {getattr(cause, 'strerror', None) or cause or type(cause).__name__}"


def _checksum_file(path: Path) -> Path:
    """Beside the zip, in the format of ``sha256sum``."""
    return path.with_name(f"{path.name}.sha256")
