"""Atomic writes: the target is complete or unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphcaps._io.atomic_write import (
    remove_leftovers,
    remove_temporary_files,
    write_atomically,
    write_folder_atomically,
)
from graphcaps.errors import ArgumentError, DataError


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
def test_a_full_disk_is_reported_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(DataError) as caught:
        write_atomically(path, b"new")
    assert str(caught.value) == f"{path}: file cannot be written (No space left on device)."
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_the_content_is_flushed_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_folder_a_device_and_a_missing_folder_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a file name, found a folder"):
        write_atomically(tmp_path, b"")
    with pytest.raises(DataError, match="found a device or another special file"):
        write_atomically(os.devnull, b"")
    with pytest.raises(DataError, match=r"out: folder .*away does not exist\. Create it first\."):
        write_atomically(tmp_path / "away" / "out", b"")
    (tmp_path / "table.csv").touch()
    with pytest.raises(
        DataError, match=r"table\.csv/out: .*/table\.csv is a file, not a folder\. Name a path in"
    ):
        write_atomically(tmp_path / "table.csv" / "out", b"")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no folder /proc")
def test_a_folder_that_takes_no_files_is_not_said_to_be_missing() -> None:
    with pytest.raises(
        DataError, match=r"^/proc/out: file cannot be written \(the folder /proc takes no new files\)"
    ):
        write_atomically("/proc/out", b"")


def test_a_writer_can_read_back(tmp_path: Path) -> None:
    def write(file) -> None:
        file.write(b"content")
        file.seek(0)
        assert file.read() == b"content"

    write_atomically(tmp_path / "out", write)
    assert (tmp_path / "out").read_bytes() == b"content"


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path, monkeypatch) -> None:
    path, other = tmp_path / "a[1]*.csv", tmp_path / "other.csv"
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process removes nothing
    for target in (path, other):
        with pytest.raises(KeyboardInterrupt):
            write_atomically(target, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.undo()
    assert len(os.listdir(tmp_path)) == 2
    remove_temporary_files(path)
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".other.csv.")


KILLED = """
import os, signal, sys
from graphcaps._io.atomic_write import write_atomically
write_atomically(sys.argv[1], lambda file: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_leftovers_of_killed_processes_are_removed_and_others_stay(tmp_path: Path, monkeypatch) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "out"], check=False)
    (left,) = tmp_path.iterdir()
    (tmp_path / ".mine.part").touch()
    (tmp_path / ".a.00000000.1.abcdef01.part").touch()  # of another machine
    (tmp_path / ".b.00000000.1.abcdef01.part").touch()
    os.utime(tmp_path / ".b.00000000.1.abcdef01.part", (0, 0))
    write_atomically(tmp_path / "other", lambda file: remove_leftovers(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".a.00000000.1.abcdef01.part", ".mine.part", "other"]
    assert left.name.startswith(".out.")
    remove_leftovers(tmp_path / "missing")


def test_a_folder_is_written_and_replaced(tmp_path: Path) -> None:
    def write(name: str, **options) -> None:
        files = {name: lambda: iter([b"one", b"two"])}
        write_folder_atomically(
            tmp_path / "out",
            files,
            **{"overwrite": False, "replaceable": str.islower, "content": "texts", "owner": "write"}
            | options,
        )

    write("a.txt")
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"onetwo"
    with pytest.raises(ArgumentError, match=r"write: 'target' must not exist yet, got .* with --overwrite\."):
        write("b.txt")
    write("b.txt", overwrite=True)
    assert os.listdir(tmp_path / "out") == ["b.txt"]
    with pytest.raises(
        ArgumentError, match=r"must contain only texts to be overwritten, got .* with 'b\.txt'"
    ):
        write("c.txt", overwrite=True, replaceable=str.isupper)
    assert os.listdir(tmp_path) == ["out"]
