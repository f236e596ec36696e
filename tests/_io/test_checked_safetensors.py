"""Checked files: the same values give the same bytes, and a change of any byte is detected."""

from __future__ import annotations

import pytest
import torch

from graphcaps._io.checked_safetensors import encode_checked, read_checked
from graphcaps.errors import DataError

TENSORS = {"b": torch.arange(3), "a": torch.randn(2, 2, generator=torch.Generator().manual_seed(0))}


def test_content_and_tensors_are_read_back(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(encode_checked("kind", 2, {"note": "ü\n", "list": [1, 2.5, None]}, TENSORS))
    read = read_checked(path, "kind", 3)
    assert (read.content["note"], read.content["list"]) == ("ü\n", [1, 2.5, None])
    assert all(torch.equal(read.tensors[name], value) for name, value in TENSORS.items())


def test_tensors_need_not_be_contiguous(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(encode_checked("kind", 1, {}, {"t": TENSORS["a"].T, "none": torch.empty(0, 3)}))
    read = read_checked(path, "kind", 1)
    assert torch.equal(read.tensors["t"], TENSORS["a"].T)
    assert read.tensors["none"].shape == (0, 3)


def test_the_same_values_give_the_same_bytes():
    assert encode_checked("kind", 1, {"x": 1}, TENSORS) == encode_checked(
        "kind", 1, {"x": 1}, dict(reversed(TENSORS.items()))
    )


def test_a_change_of_any_byte_is_detected(tmp_path):
    path, data = tmp_path / "file", encode_checked("kind", 1, {"x": "y"}, TENSORS)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= (1, 0x20, 0x80)[position % 3]
        path.write_bytes(changed)
        with pytest.raises(DataError):
            read_checked(path, "kind", 1)
        path.write_bytes(data[:position])
        with pytest.raises(DataError):
            read_checked(path, "kind", 1)


def test_whitespace_in_the_header_is_checked(tmp_path):
    path = tmp_path / "file"
    for padding in range(8):  # one of them makes safetensors fill the header up with spaces
        data = encode_checked("kind", 1, {"x": "y" * padding}, TENSORS)
        end = 8 + int.from_bytes(data[:8], "little")
        if data[end - 1 : end] == b" ":
            path.write_bytes(data[: end - 1] + b"\n" + data[end:])
            with pytest.raises(DataError, match="checksum mismatch"):
                read_checked(path, "kind", 1)
            return
    raise AssertionError("no header ended in a space")


def test_a_zero_checksum_is_rejected(tmp_path):
    path, data = tmp_path / "file", encode_checked("kind", 1, {}, {})
    start = data.index(b"sha256") + len(b'sha256\\":\\"')
    path.write_bytes(data[:start] + b"0" * 64 + data[start + 64 :])
    with pytest.raises(DataError, match="checksum mismatch"):
        read_checked(path, "kind", 1)


def test_values_that_json_cannot_represent_are_rejected():
    with pytest.raises(ValueError, match="JSON"):
        encode_checked("kind", 1, {"x": float("nan")}, {})
