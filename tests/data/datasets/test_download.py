"""Downloads from a local server: complete and verified, or nothing."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from graphcaps.data.datasets.download import (
    COLLECTION_URL,
    DownloadError,
    collection_url,
    download_tu,
    verify_checksum_file,
)
from graphcaps.errors import ArgumentError, DataError


def make_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        # A fixed date: the bytes, and so the names of tests, are the same in every process.
        archive.writestr(zipfile.ZipInfo("TINY/TINY_A.txt", (2026, 1, 1, 0, 0, 0)), "1, 2\n2, 1\n")
    return buffer.getvalue()


WHOLE = make_zip()
SHA256 = hashlib.sha256(WHOLE).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name == "MISSING.zip":
            self.send_error(404)
            return
        body = b"<html>log in first</html>" if name == "PORTAL.zip" else WHOLE
        self.send_response(200)
        if name == "CUT.zip":  # promises more than it sends
            self.send_header("Content-Length", str(len(WHOLE)))
            body = WHOLE[:-10]
        elif name == "SHORT.zip":  # promises nothing and stops early
            body = WHOLE[:-10]
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/sets"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("stated", [SHA256, None])
def test_a_complete_zip_is_stored_with_its_checksum(server, tmp_path, stated):
    folder = tmp_path / "new" / "folder"
    got = download_tu("TINY", folder, sha256=stated, url=server)
    assert (got.path, got.sha256, got.checksum_known) == (folder / "TINY.zip", SHA256, stated is not None)
    assert got.path.read_bytes() == WHOLE
    assert names(folder) == ["TINY.zip", "TINY.zip.sha256"]
    assert (folder / "TINY.zip.sha256").read_text() == f"{SHA256}  TINY.zip\n"
    verify_checksum_file(got.path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("CUT", "bytes arrived"),
        ("SHORT", "not a complete zip"),
        ("PORTAL", "not a complete zip"),
        ("MISSING", "404"),
        ("../up", "not a valid name in the TU collection"),
        ("D&D", "not a valid name in the TU collection"),
    ],
)
def test_a_failed_download_leaves_nothing_and_names_the_folder(server, tmp_path, name, reason):
    with pytest.raises(DownloadError) as caught:
        download_tu(name, tmp_path, url=server)
    text = str(caught.value)
    assert reason in text
    assert f"put {name}.zip into {tmp_path}, or name the folder" in text
    assert "\n" not in text
    assert names(tmp_path) == []


def test_a_wrong_checksum_is_rejected(server, tmp_path):
    with pytest.raises(DownloadError, match=f"checksum is {SHA256}, expected {'0' * 64}"):
        download_tu("TINY", tmp_path, sha256="0" * 64, url=server)
    assert names(tmp_path) == []


def test_a_failed_download_keeps_the_earlier_file(server, tmp_path):
    download_tu("TINY", tmp_path, url=server)
    with pytest.raises(DownloadError):
        download_tu("TINY", tmp_path, sha256="0" * 64, url=server)
    assert (tmp_path / "TINY.zip").read_bytes() == WHOLE
    verify_checksum_file(tmp_path / "TINY.zip")


def test_no_server(tmp_path):
    with pytest.raises(DownloadError, match=r"TINY could not be downloaded .*refused"):
        download_tu("TINY", tmp_path, url="http://127.0.0.1:9", timeout=5)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_created(server, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(DownloadError, match="TINY could not be downloaded"):
        download_tu("TINY", blocked, url=server)


def test_only_http_urls_are_accepted(tmp_path):
    with pytest.raises(ArgumentError, match="'url' must start with https://"):
        download_tu("TINY", tmp_path, url="file:///etc")


def test_a_changed_file_is_detected(server, tmp_path):
    path = download_tu("TINY", tmp_path, url=server).path
    path.write_bytes(WHOLE + b"\0")
    with pytest.raises(DataError, match="of the download"):
        verify_checksum_file(path)


def test_a_file_without_a_checksum_file_is_accepted(tmp_path):
    path = tmp_path / "OWN.zip"
    path.write_bytes(WHOLE)
    verify_checksum_file(path)


def test_the_url_of_the_collection(monkeypatch):
    monkeypatch.delenv("GRAPHCAPS_TU_URL", raising=False)
    assert collection_url() == COLLECTION_URL
    monkeypatch.setenv("GRAPHCAPS_TU_URL", "http://mirror/sets")
    assert collection_url() == "http://mirror/sets"


@pytest.mark.parametrize(
    "url",
    ["http://[", "http://a..b", "http://127.0.0.1/\u00e4", "http://" + "a" * 70, "http://x:y", "http://"],
)
def test_an_invalid_url_is_reported(tmp_path, monkeypatch, url):
    monkeypatch.setenv("GRAPHCAPS_TU_URL", url)
    with pytest.raises(DownloadError, match="TINY could not be downloaded"):
        download_tu("TINY", tmp_path)
    assert names(tmp_path) == []
