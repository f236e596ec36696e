"""Files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from graphcaps._io.atomic_write import sha256_of, write_atomically
from graphcaps.errors import DataError


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x00\xff", b"\x00\xff"),
        ("Größe\n", "Größe\n".encode()),
        (lambda file: file.write(b"written"), b"written"),
    ],
)
def test_bytes_text_and_a_writer_are_written(tmp_path: Path, content, expected: bytes) -> None:
    path = tmp_path / "out"
    write_atomically(path, content)
    assert path.read_bytes() == expected
    assert os.listdir(tmp_path) == ["out"]


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def fail(file) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(DataError) as caught:
        write_atomically(path, b"new")
    assert (
        str(caught.value) == f"{path}: expected a file that can be written, found 'No space left on device'."
    )
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_the_content_is_on_the_disk_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (steps.append("fsync"), fsync(number))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("replace"), replace(a, b))[1])
    write_atomically(tmp_path / "out", b"new")
    assert steps == ["fsync", "replace", "fsync"]  # the file, the name, the folder


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_long_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_a_device_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a name for a file to write, found a folder"):
        write_atomically(tmp_path, b"")
    with pytest.raises(DataError, match="found something that is no file"):
        write_atomically(os.devnull, b"")
    with pytest.raises(DataError, match=r"expected a folder to write into, found none at .*away. Create"):
        write_atomically(tmp_path / "away" / "out", b"")


def test_sha256(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_001)
    assert sha256_of(path) == hashlib.sha256(b"x" * 3_000_001).hexdigest()
    with pytest.raises(
        DataError, match="expected a file that can be read, found 'No such file or directory'"
    ):
        sha256_of(tmp_path / "none")
