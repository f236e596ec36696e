"""The cache returns exactly the store that was saved, and ignores files that it cannot trust."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch

from graphcaps._io.user_folders import user_folder
from graphcaps.data.datasets import cache
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.ops.edges import clean_edges
from tests.graphs import assert_same_stores

DIGEST = "ab" * 32


def make_store() -> GraphStore:
    """Three graphs (triangle and tail, an edge, a single node) with every kind of column."""
    source = torch.tensor([0, 1, 2, 2, 4, 1, 0])
    target = torch.tensor([1, 2, 0, 3, 5, 0, 0])
    labels = torch.tensor([[0], [1], [-7], [3], [300], [0], [0]])
    clean = clean_edges(
        source,
        target,
        7,
        weight=torch.linspace(0.1, 0.7, 7, dtype=torch.float64),
        labels=labels,
        attributes=torch.arange(14.0).reshape(7, 2),
    )
    return GraphStore.from_clean_edges(
        "tiny",
        torch.tensor([0, 4, 6, 7]),
        clean,
        y=torch.tensor([1, 0, 1]),
        class_names=("no", "jä"),
        label_names={70_000: "grün", 5: "a\nb"},
        node_labels=torch.tensor([[5, 70_000], [0, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 6]]),
        node_attributes=torch.randn(7, 3, generator=torch.Generator().manual_seed(0)),
        truth={"part": torch.tensor([0, 0, 1, -1, 2, 2, 3], dtype=torch.int32)},
        smiles=("CCCC", "C#N", "[Fe+2]"),
        featurizer="standard",
        fragments="largest",
    )


def test_a_saved_store_is_loaded_unchanged(tmp_path):
    store = make_store()
    path = cache.save_cached(store, DIGEST, tmp_path)
    assert path is not None
    assert path.parent == tmp_path
    kept = cache.load_cached(DIGEST, tmp_path)
    assert kept is not None
    assert_same_stores(store, kept)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]  # no temporary file is left


def test_a_store_without_columns_or_classes_is_loaded_unchanged(tmp_path):
    full = make_store()
    bare = GraphStore("bare", full.node_ptr, full.edge_ptr, full.neighbours)
    cache.save_cached(bare, DIGEST, tmp_path)
    kept = cache.load_cached(DIGEST, tmp_path)
    assert kept is not None
    assert_same_stores(bare, kept)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 255], torch.uint8),
        ([-1, 127], torch.int8),
        ([-1, 128], torch.int16),
        ([0, 40_000], torch.int32),
        ([0, 2**40], torch.int64),
    ],
)
def test_integers_are_stored_in_the_smallest_dtype(values, dtype):
    assert cache._narrow(torch.tensor(values)).dtype == dtype


def test_another_source_is_not_in_the_cache(tmp_path):
    cache.save_cached(make_store(), DIGEST, tmp_path)
    assert cache.load_cached("cd" * 32, tmp_path) is None


def test_a_file_renamed_to_another_source_is_not_loaded(tmp_path):
    path = cache.save_cached(make_store(), DIGEST, tmp_path)
    assert path is not None
    path.rename(path.with_name(path.name.replace(DIGEST, "cd" * 32)))
    assert cache.load_cached("cd" * 32, tmp_path) is None


def test_a_change_of_any_byte_is_detected(tmp_path):
    path = cache.save_cached(make_store(), DIGEST, tmp_path)
    assert path is not None
    content = path.read_bytes()
    for index in range(len(content)):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        assert cache.load_cached(DIGEST, tmp_path) is None, f"byte {index}"
    path.write_bytes(content)
    assert cache.load_cached(DIGEST, tmp_path) is not None


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\xff" * 64, b"PK\x03\x04junk", b"{}"])
def test_a_foreign_file_is_ignored_and_replaced(tmp_path, content):
    store = make_store()
    path = cache.save_cached(store, DIGEST, tmp_path)
    assert path is not None
    path.write_bytes(content)
    assert cache.load_cached(DIGEST, tmp_path) is None
    cache.save_cached(store, DIGEST, tmp_path)
    assert cache.load_cached(DIGEST, tmp_path) is not None


def test_a_truncated_or_extended_file_is_ignored(tmp_path):
    path = cache.save_cached(make_store(), DIGEST, tmp_path)
    assert path is not None
    original = path.read_bytes()
    for content in (original[:-1], original[: len(original) // 2], original[:9], original + b"\0"):
        path.write_bytes(content)
        assert cache.load_cached(DIGEST, tmp_path) is None


def test_another_format_version_is_ignored(tmp_path, monkeypatch):
    path = cache.save_cached(make_store(), DIGEST, tmp_path)
    assert path is not None
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert cache.load_cached(DIGEST, tmp_path) is None
    path.rename(cache._cache_path(DIGEST, tmp_path))  # even under the file name of that version
    assert cache.load_cached(DIGEST, tmp_path) is None


def test_the_header_is_json(tmp_path):
    path = cache.save_cached(make_store(), DIGEST, tmp_path)
    assert path is not None
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(header["__metadata__"]["graphcaps"])["class_names"] == ["no", "jä"]


def test_a_folder_that_cannot_be_created_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert cache.save_cached(make_store(), DIGEST, blocked / "cache") is None
    assert cache.load_cached(DIGEST, blocked / "cache") is None
    assert cache.cache_contents(blocked / "cache").files == 0


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    assert cache.save_cached(make_store(), DIGEST, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_clear_cache_deletes_only_cache_files(tmp_path):
    store = make_store()
    cache.save_cached(store, DIGEST, tmp_path)
    cache.save_cached(replace(store, name="other"), "cd" * 32, tmp_path)
    (tmp_path / f".{DIGEST}.12.ab34.part").write_bytes(b"half")
    (tmp_path / "mine.safetensors").write_bytes(b"a model")
    (tmp_path / ".mine.part").write_bytes(b"half a download")
    before = cache.clear_cache(tmp_path)
    assert before.files == 3
    assert before.bytes > 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.part", "mine.safetensors"]


def test_the_folder_is_that_of_the_variable_or_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "here"))
    assert cache.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("GRAPHCAPS_CACHE")
    assert cache.cache_folder() == user_folder("cache")


def test_a_pipe_instead_of_a_file_is_ignored(tmp_path):
    kept = cache.save_cached(make_store(), DIGEST, tmp_path)
    assert kept is not None
    kept.unlink()
    os.mkfifo(kept)
    assert cache.load_cached(DIGEST, tmp_path) is None


def test_without_a_home_folder_nothing_is_cached(monkeypatch):
    monkeypatch.setenv("GRAPHCAPS_CACHE", "~no-such-user/cache")
    assert cache.save_cached(make_store(), DIGEST) is None
    assert cache.load_cached(DIGEST) is None
    with pytest.raises(ArgumentError, match="'GRAPHCAPS_CACHE' must be in a known home folder"):
        cache.cache_contents()
