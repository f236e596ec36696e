"""SHA-256 of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from graphcaps._io.file_hash import sha256_of
from graphcaps.errors import DataError


def test_sha256_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_001)
    assert sha256_of(path) == hashlib.sha256(b"x" * 3_000_001).hexdigest()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none: file not found\.$"):
        sha256_of(tmp_path / "none")
    with pytest.raises(DataError, match=r"file cannot be read \(Is a directory\)\.$"):
        sha256_of(tmp_path)
