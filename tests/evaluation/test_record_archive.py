"""An archive returns the records that were packed, and damage is reported in one sentence."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphcaps.evaluation.record_archive as module
from graphcaps.errors import DataError
from graphcaps.evaluation import RecordKey, SeedRecord
from graphcaps.evaluation.record_archive import RecordArchive, write_archive
from tests.evaluation.records import curves, measured_record, record


def _records() -> list[SeedRecord]:
    extreme = curves(epochs=7)
    extreme.train_loss[:, ::2] = 2**31 - 1  # a loss that is no number; differences of ±(2³¹ − 1)
    extreme.train_loss[:, 1::2] = 0
    return [
        record(0, "paper"),
        record(3, dataset="Ωmega/1", curves=curves(folds=10, epochs=250)),
        record(1, curves=extreme),
        record(0),
        measured_record(4),
    ]


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_records_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "records.zip"
    write_archive(path, _records())
    archive = RecordArchive(path)
    assert list(archive.keys) == sorted(each.key for each in _records())
    for each in _records():
        found = archive.get(each.key)
        assert found == each
        assert found is not None
        assert found.to_json() == each.to_json()
        assert all(getattr(found.curves, name).dtype == np.int64 for name in module.CURVES)
    assert sorted(archive.records(), key=lambda each: each.key) == list(archive.records())
    assert archive.get(RecordKey("MUTAG", "hgcn", "paper", 9)) is None


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    for name, records in (("a.zip", _records()), ("b.zip", _records()[::-1])):
        write_archive(tmp_path / name, records)
    write_archive(tmp_path / "c.zip", RecordArchive(tmp_path / "a.zip").records())
    first, *others = (path.read_bytes() for path in sorted(tmp_path.glob("*.zip")))
    assert all(other == first for other in others)


def test_an_archive_is_smaller_than_its_records(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    records = []
    for seed in range(8):
        loss = 20_000 + draw.integers(-300, 300, (10, 200))
        right = np.clip(16 + draw.integers(-1, 3, (10, 200)), 0, 18)
        parts = np.full(10, 18)
        random_curves = replace(
            curves(), train_loss=loss, train_right=right, validation_loss=loss, validation_right=right,
            test_right=right, train_graphs=parts, validation_graphs=parts, test_graphs=parts,
        )  # fmt: skip
        records.append(record(seed, curves=random_curves))
    write_archive(tmp_path / "records.zip", records)
    assert (tmp_path / "records.zip").stat().st_size < 0.6 * sum(len(each.to_json()) for each in records)


def _drop_index(members: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in members.items() if name != "records.jsonl"}


def _index(change: Callable[[str], str]) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda members: members | {"records.jsonl": change(members["records.jsonl"].decode()).encode()}


def _set_curves(text: str, value: object) -> str:
    first, *rest = text.splitlines()
    return "\n".join([json.dumps(json.loads(first) | {"curves": value}), *rest])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop_index, "expected the member records.jsonl"),
        (lambda members: members | {"notes.txt": b"x"}, "each once, found notes.txt"),
        (_index(lambda text: text + "{"), "line 6: expected a record written by graphcaps, found invalid JSON"),
        (_index(lambda text: text + "[" * 10**5), "line 6: expected a record written by graphcaps"),
        (_index(lambda text: text + '{"format": 1}\n'), "line 6: expected a record in the format"),
        (_index(lambda text: text + "[]\n"), "line 6: expected a record in the format"),
        (_index(lambda text: text + text.splitlines()[0]), "line 6: expected one record of MUTAG, hgcn, held-out"),
        (_index(lambda text: _set_curves(text, None)), "numbers of folds and epochs"),
        (_index(lambda text: _set_curves(text, {"folds": 2, "epochs": "3"})), "numbers of folds and epochs"),
        (_index(lambda text: _set_curves(text, {"folds": 2**20, "epochs": 2**20})), "at most 8,388,608 values"),
        (lambda members: members | {"test_right.0": members["test_right.0"][:-1]}, r"values in test_right\.0"),
        (lambda members: members | {"test_right.0": members["test_right.0"] + b"x"}, r"bytes in test_right\.0"),
        (lambda members: members | {"test_right.3": b"\xff" * len(members["test_right.0"])}, "numbers from 0 to"),
    ],
)  # fmt: skip
def test_damage_is_reported(
    tmp_path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], message: str
) -> None:
    path = tmp_path / "records.zip"
    write_archive(path, _records())
    _write(path, change(_members(path)))
    with pytest.raises(DataError, match=message):
        list(RecordArchive(path).records())


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + b"\xff" * 18])
def test_a_file_that_is_not_a_zip_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "records.zip").write_bytes(content)
    with pytest.raises(
        DataError, match=r"records\.zip: expected an archive of records, found a damaged or foreign"
    ):
        RecordArchive(tmp_path / "records.zip")


def test_a_truncated_or_flipped_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.zip"
    write_archive(path, _records())
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="expected an archive of records"):
            list(RecordArchive(path).records())


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.zip"
    write_archive(path, _records())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("records.jsonl", b"")
    with pytest.raises(DataError, match="each once"):
        RecordArchive(path)


def test_the_unpacked_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.zip"
    write_archive(path, _records())
    bomb = _members(path) | {"train_loss.3": bytes(10**7)}
    _write(path, bomb)
    with pytest.raises(DataError, match=r"at most \d,\d+ bytes in train_loss\.3, found more"):
        list(RecordArchive(path).records())
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    with pytest.raises(DataError, match=r"at most 1,000 bytes in records\.jsonl, found more"):
        RecordArchive(path)
