"""Files of TU folders and zips; malicious and damaged zips are rejected with a message."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphcaps.data.readers import tu_archive
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_archive import TUArchive
from graphcaps.errors import DataError

FILES = {"T_A.txt": b"1, 2\n2, 1\n", "T_graph_indicator.txt": b"1\n1\n", "T_graph_labels.txt": b"1\n"}


def make_folder(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def make_zip(
    path: Path, files: dict[str, bytes] = FILES, top: str = "T/", method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(top + name, content)
    return path


def content(path: Path, **limits: int) -> dict[str, bytes]:
    with TUArchive(path, **limits) as archive:
        assert archive.name == "T"
        return {name: b"".join(archive.chunks(name)) for name in archive.names()}


def refusal(path: Path, **limits: int) -> str:
    with pytest.raises(DataError) as caught:
        content(path, **limits)
    return str(caught.value).replace(f"{path.parent.absolute()}/", "")


# ---------------------------------------------------------------------- location of the files
@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
@pytest.mark.parametrize("top", ["", "T/", "a/b/", "T\\"])
def test_a_zip_gives_its_files_with_or_without_a_top_folder(tmp_path, method, top):
    assert content(make_zip(tmp_path / "x.zip", top=top, method=method)) == FILES


def test_a_folder_gives_its_files_or_those_of_its_subfolder(tmp_path):
    make_folder(tmp_path / "outer" / "T")
    assert content(tmp_path / "outer" / "T") == FILES
    assert content(tmp_path / "outer") == FILES
    with TUArchive(tmp_path / "outer") as archive:
        assert archive.where("T_A.txt") == f"{tmp_path}/outer/T/T_A.txt"
        with archive.open("T_A.txt") as stream:
            assert stream.read() == FILES["T_A.txt"]


def test_other_files_are_ignored(tmp_path):
    extra = FILES | {"README.txt": b"hello", "T_graph_attributes.txt": b"1\n", "._T_A.txt": b"\0"}
    assert content(make_folder(tmp_path / "T", extra)) == FILES
    assert content(make_zip(tmp_path / "T.zip", extra)) == FILES


def test_no_or_several_data_sets_are_rejected(tmp_path):
    none = make_zip(tmp_path / "none.zip", {"README.txt": b""})
    assert refusal(none) == "none.zip: expected a TU data set with a file <NAME>_A.txt, found 1 .txt file."
    several = FILES | {"U_A.txt": b"1, 1\n"}
    assert refusal(make_folder(tmp_path / "two", several)) == (
        "two: expected one data set with a file <NAME>_A.txt, found 2 (T_A.txt, U_A.txt). "
        "Name the folder or zip of one data set."
    )
    assert "found 2 (T/T_A.txt, T/U_A.txt)" in refusal(make_zip(tmp_path / "two.zip", several))


def test_a_missing_path_is_named(tmp_path):
    assert refusal(Path("no/such/place")) == "no/such/place: file or folder not found."
    assert "File name too long" in refusal(tmp_path / ("x" * 300))


def test_a_missing_member_is_named(tmp_path):
    with TUArchive(make_zip(tmp_path / "T.zip")) as archive, pytest.raises(DataError) as caught:
        archive.open("T_node_labels.txt")
    assert str(caught.value) == f"T_node_labels.txt in {tmp_path}/T.zip: file not found."


# ---------------------------------------------------------------------- digest
def test_the_digest_depends_on_the_content(tmp_path):
    packed = make_zip(tmp_path / "T.zip")
    with TUArchive(packed) as archive:
        assert archive.digest() == hashlib.sha256(packed.read_bytes()).hexdigest()
    folder = make_folder(tmp_path / "T")
    first = TUArchive(folder).digest()
    (folder / "README.txt").write_text("not read")
    assert TUArchive(folder).digest() == first
    assert TUArchive(make_folder(tmp_path / "elsewhere" / "U")).digest() == first
    (folder / "T_graph_labels.txt").write_bytes(b"2\n")
    second = TUArchive(folder).digest()
    (folder / "T_graph_labels.txt").rename(folder / "T_node_labels.txt")
    assert len({first, second, TUArchive(folder).digest()}) == 3


# ---------------------------------------------------------------------- hostile zips
@pytest.mark.parametrize(
    "member", ["../T_A.txt", "T/../../x", "/etc/x", "\\x", "C:/x", "T\\..\\..\\x", "../"]
)
def test_paths_outside_the_zip_are_rejected(tmp_path, member):
    path = make_zip(tmp_path / "T.zip", FILES | {member: b""}, top="")
    assert refusal(path).startswith("T.zip: expected paths inside the zip's own folder, found ")


def test_an_excessive_declared_size_is_rejected(tmp_path):
    path = make_zip(tmp_path / "T.zip")
    total = sum(map(len, FILES.values()))
    assert (
        refusal(path, max_bytes=10)
        == f"T.zip: expected at most 10 bytes uncompressed, found {total} declared."
    )
    with TUArchive(path, max_bytes=total) as archive:
        assert archive.name == "T"


def test_an_excessive_compression_ratio_is_rejected(tmp_path, monkeypatch):
    bomb = make_zip(
        tmp_path / "T.zip", FILES | {"T_node_labels.txt": b"0\n" * 10**6}, method=zipfile.ZIP_LZMA
    )
    assert content(bomb)["T_node_labels.txt"] == b"0\n" * 10**6  # small enough to do no harm
    monkeypatch.setattr(tu_archive, "_MIN_RATIO_BYTES", 10**6)
    assert "expected a compression factor of at most 1,000, found " in refusal(bomb)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_member_that_is_longer_than_declared_is_rejected_without_unpacking_it(tmp_path, method):
    """64 MB behind a declaration of 1,000 bytes; expanding them at once takes 150 MB."""
    path = tmp_path / "T.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        with archive.open("T_node_labels.txt", "w") as stream:
            for _ in range(64):
                stream.write(b"0\n" * (1 << 19))
    packed = bytearray(path.read_bytes())
    position = packed.rindex(b"T_node_labels.txt") - 46  # the entry of the central directory
    packed[position + 24 : position + 28] = struct.pack("<I", 1000)
    path.write_bytes(packed)
    tracemalloc.start()
    message = refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message == "T_node_labels.txt in T.zip: expected a readable file, found damaged content."
    assert peak < 90e6


def test_a_member_that_is_shorter_than_declared_is_rejected(tmp_path):
    path = make_zip(tmp_path / "T.zip", top="", method=zipfile.ZIP_DEFLATED)
    packed = bytearray(path.read_bytes())
    position = packed.rindex(b"T_A.txt") - 46
    packed[position + 24 : position + 28] = struct.pack("<I", 5000)
    path.write_bytes(packed)
    assert refusal(path).startswith("T_A.txt in T.zip: expected ")


def test_an_encrypted_zip_is_rejected(tmp_path):
    path = make_zip(tmp_path / "T.zip")
    packed = bytearray(path.read_bytes())
    position = packed.index(b"PK\x01\x02")
    packed[position + 8] |= 1
    path.write_bytes(packed)
    assert refusal(path) == "T.zip: expected a zip without a password, found 'T/T_A.txt' encrypted."


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_repeated_file_is_rejected(tmp_path):
    path = make_zip(tmp_path / "T.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("T/T_A.txt", b"1, 1\n")
    assert refusal(path) == "T.zip: expected every file once, found 'T/T_A.txt' 2 times."


def test_other_files_are_rejected(tmp_path):
    for name, junk in (("empty.zip", b""), ("junk.zip", b"\0\xff" * 50), ("text.txt", b"1, 2\n")):
        (tmp_path / name).write_bytes(junk)
        assert refusal(tmp_path / name) == (
            f"{name}: expected a TU folder or zip, found a file that is not a zip, or a damaged one."
        )


def test_damaged_content_is_rejected(tmp_path):
    for method, byte in ((zipfile.ZIP_STORED, 5), (zipfile.ZIP_DEFLATED, 5), (zipfile.ZIP_LZMA, 12)):
        path = make_zip(tmp_path / "T.zip", top="", method=method)
        packed = bytearray(path.read_bytes())
        packed[30 + len("T_A.txt") + byte] ^= 0xFF
        path.write_bytes(packed)
        assert refusal(path) == "T_A.txt in T.zip: expected a readable file, found damaged content."


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (
            10,
            struct.pack("<H", 97),
            "T_A.txt in T.zip: expected a readable file",
        ),  # unknown compression
        (42, struct.pack("<I", 10**9), "T_A.txt in T.zip: expected a readable file"),  # past the end
        (
            8,
            b"\x00\x08",
            "T.zip: expected a TU folder or zip",
        ),  # a name that is not the UTF-8 it claims to be
    ],
)
def test_a_damaged_directory_is_rejected(tmp_path, offset, value, message):
    path = make_zip(tmp_path / "T.zip", top="")
    packed = bytearray(path.read_bytes())
    position = packed.index(b"PK\x01\x02")
    packed[position + offset : position + offset + len(value)] = value
    if offset == 8:
        packed[position + 46] = 0xFF
    path.write_bytes(packed)
    assert refusal(path).startswith(message)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.data(),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]),
)
def test_a_zip_with_any_bytes_changed_is_read_or_rejected(tmp_path, data, method):
    path = make_zip(tmp_path / "T.zip", method=method)
    packed = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(packed)), st.integers(0, len(packed))))
    path.write_bytes(packed[:cut])
    with contextlib.suppress(DataError), TUArchive(path) as archive:
        for name in archive.names():
            list(archive.chunks(name))


# ---------------------------------------------------------------------- what is no regular file
@pytest.mark.parametrize("kind", ["dangling", "folder", "pipe"])
def test_a_table_that_is_not_a_regular_file_is_rejected(tmp_path, kind):
    folder = make_folder(tmp_path / "T")
    odd = folder / "T_node_labels.txt"
    make = {
        "dangling": lambda: odd.symlink_to("nowhere"),
        "folder": odd.mkdir,
        "pipe": lambda: os.mkfifo(odd),
    }
    make[kind]()
    assert refusal(folder).startswith("T/T_node_labels.txt: expected a regular file, found ")


@pytest.mark.parametrize("table", ["node_labels", "graph_indicator", "class_names"])
def test_the_content_of_a_linked_file_is_not_quoted(tmp_path, table):
    folder, secret = make_folder(tmp_path / "T"), tmp_path / "secret"
    secret.write_text("password:hunter2\n")
    (folder / f"T_{table}.txt").unlink(missing_ok=True)
    (folder / f"T_{table}.txt").symlink_to(secret)
    with pytest.raises(DataError) as caught:
        read_tu(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}/T_{table}.txt, line 1: expected ")
    assert message.endswith(", found other content in a linked file.")


def test_a_source_that_is_not_a_regular_file_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "T.zip")
    for path in (tmp_path / "T.zip", Path("/dev/zero")):
        assert refusal(path) == f"{path.name}: expected a TU folder or zip, found a special file."
