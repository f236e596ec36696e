"""One file per record, written atomically; merging does not depend on the order."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from graphcaps.errors import DataError
from graphcaps.evaluation import RecordKey, ResultsStore
from graphcaps.evaluation.results_store import file_name
from tests.evaluation.records import CONFIG, curves, record

EARLY, LATE = "2026-01-31T12:00:00Z", "2026-02-01T00:00:00Z"


def test_add_and_read(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "new" / "folder")
    assert store.records() == ()
    assert store.add(record())
    assert store.add(record(1, "paper"))
    assert [path.name for path in sorted(store.folder.iterdir())] == [
        "MUTAG--hgcn--held-out--seed0.record.json",
        "MUTAG--hgcn--paper--seed1.record.json",
    ]
    assert store.get(record().key) == record()
    assert store.get(RecordKey("MUTAG", "hgcn", "paper", 0)) is None
    assert store.records() == (record(), record(1, "paper"))
    (ledger,) = store.ledgers()
    assert ledger.protocols == ("held-out", "paper")


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    store.add(record())
    other = RecordKey("MUTAG", "hgcn", "held-out", 1)
    store.path(record().key).rename(store.path(other))
    message = (
        "expected the record of MUTAG, hgcn, held-out, seed 1, found that of MUTAG, hgcn, held-out, seed 0"
    )
    with pytest.raises(DataError, match=message):
        store.get(other)


def test_any_name_is_a_file_name(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    odd = RecordKey("../a b/ü", "K=2, R=3", "paper", 0)
    assert store.path(odd).parent == tmp_path
    store.add(record(dataset="../a b/ü", protocol="paper"))
    assert store.records()[0].key.dataset == "../a b/ü"
    assert file_name("a/b", "c") == "a%2Fb--c"


def test_of_two_equal_runs_the_first_finished_is_kept(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    early, late = record(finished=EARLY), record(finished=LATE, curves=curves(seed=9))
    store.add(early)
    assert not store.add(late)
    assert store.records() == (early,)
    other = ResultsStore(tmp_path / "other")
    other.add(late)
    assert other.add(early)
    assert other.records() == (early,)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    store.add(record())
    with pytest.raises(DataError) as raised:
        store.add(record(config=CONFIG.with_training(epochs=9, batch_size=64)))
    message = "expected one run of MUTAG, hgcn, held-out, seed 0, found two that differ "
    message += (
        "(training.epochs 4 and 9, training.batch_size 32 and 64). Use another folder for one of the two."
    )
    assert message in str(raised.value)
    assert store.records() == (record(),)


def test_merging_does_not_depend_on_the_order(tmp_path: Path) -> None:
    a, b, c = (ResultsStore(tmp_path / name) for name in "abc")
    same_moment = record(1, curves=curves(seed=5)), record(1, curves=curves(seed=6))
    a.add(record(0, finished=LATE, curves=curves(seed=4)))
    a.add(same_moment[0])
    b.add(record(0, finished=EARLY))
    c.add(same_moment[1])
    c.add(record(0, "paper"))
    found = []
    for number, order in enumerate(itertools.permutations((a, b, c))):
        merged = ResultsStore(tmp_path / f"merged{number}")
        for store in order:
            merged.merge(store.folder)
        together = ResultsStore(tmp_path / f"together{number}")
        together.merge(*(store.folder for store in order))
        found += [merged.records(), together.records()]
    assert all(records == found[0] for records in found)
    assert [one.key.seed for one in found[0]] == [0, 1, 0]
    assert found[0][0].finished == EARLY


def test_a_merge_reports_its_changes(tmp_path: Path) -> None:
    a, b = ResultsStore(tmp_path / "a"), ResultsStore(tmp_path / "b")
    for seed, here, there in ((0, EARLY, LATE), (1, LATE, EARLY)):
        a.add(record(seed, finished=here))
        b.add(record(seed, finished=there))
    b.add(record(2))
    report = a.merge(b.folder)
    assert [[key.seed for key in keys] for keys in (report.added, report.replaced, report.kept)] == [
        *([2], [1]),
        [0],
    ]
    again = a.merge(b.folder)
    assert (again.added, again.replaced, len(again.kept)) == ((), (), 3)


def test_a_refused_merge_changes_nothing(tmp_path: Path) -> None:
    a, b = ResultsStore(tmp_path / "a"), ResultsStore(tmp_path / "b")
    a.add(record(1))
    b.add(record(0))
    b.add(record(1, config=CONFIG.with_training(epochs=9)))
    with pytest.raises(DataError, match="expected one run of MUTAG, hgcn, held-out, seed 1"):
        a.merge(b.folder)
    assert a.records() == (record(1),)
    with pytest.raises(DataError, match="folder not found"):
        a.merge(tmp_path / "nowhere")


def test_a_damaged_or_duplicate_file_is_named(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    store.add(record())
    path = store.path(record().key)
    (tmp_path / "copy.record.json").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"copy\.record\.json: expected one record of MUTAG|a second beside"):
        store.records()
    (tmp_path / "copy.record.json").unlink()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"seed0\.record\.json: expected a record written by graphcaps"):
        store.records()


def test_temporary_files_of_a_killed_writer_are_ignored(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    store.add(record())
    (tmp_path / ".MUTAG--hgcn--paper--seed0.record.json.17.part").write_text("{")
    (tmp_path / ".half.record.json").write_text("{")
    assert store.records() == (record(),)


def test_a_packed_store_reads_as_before(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    for seed, protocol in ((0, "held-out"), (1, "held-out"), (0, "paper")):
        store.add(record(seed, protocol))
    before, ledgers = store.records(), store.ledgers()
    assert store.pack() == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records.zip", "summary.csv"]
    for each in (store, ResultsStore(tmp_path)):
        assert (each.records(), each.ledgers(), len(each)) == (before, ledgers, 3)
        assert each.get(record(1).key) == record(1)
        assert record(1).key in each
        assert record(2).key not in each
        assert repr(each).endswith("records=3)")


def test_packing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    a, b = ResultsStore(tmp_path / "a"), ResultsStore(tmp_path / "b")
    for seed in (0, 1, 2):
        a.add(record(seed))
        b.add(record(2 - seed))
        b.pack()
    a.pack()
    for name in ("records.zip", "summary.csv"):
        assert (a.folder / name).read_bytes() == (b.folder / name).read_bytes()
    assert ResultsStore(tmp_path / "none").pack() == 0
    assert not (tmp_path / "none").exists()


def test_new_records_are_stored_beside_the_archive(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    store.add(record(0))
    store.pack()
    assert not store.add(record(0, finished="2027-01-01T00:00:00Z"))  # the archived one was finished first
    assert store.add(record(1))
    assert store.path(record(1).key).is_file()
    assert store.records() == (record(0), record(1))
    assert len(store) == 2
    early = record(0, finished="2025-01-01T00:00:00Z")
    assert store.add(early)
    assert (store.get(early.key), store.records()) == (early, (early, record(1)))
    store.pack()
    assert ResultsStore(tmp_path).records() == (early, record(1))
    with pytest.raises(DataError, match="expected one run of MUTAG"):
        store.add(record(config=CONFIG.with_training(epochs=9)))


def test_archives_and_folders_merge(tmp_path: Path) -> None:
    a, b, c = (ResultsStore(tmp_path / name) for name in "abc")
    a.add(record(0, finished=LATE))
    b.add(record(0, finished=EARLY))
    b.add(record(1))
    c.add(record(2))
    b.pack()
    c.pack()
    report = a.merge(b.folder, c.folder)
    assert [key.seed for key in report.added] == [1, 2]
    assert [key.seed for key in report.replaced] == [0]
    a.pack()
    assert [one.finished for one in a.records()] == [EARLY, record(1).finished, record(2).finished]
    assert a.merge(b.folder, c.folder).added == ()


def test_the_summary_has_a_line_per_record(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    store.add(record(0))
    store.add(record(0, "paper", versions={"commit": "c0ffee"}))
    store.pack()
    (ledger,) = store.ledgers()
    held_out, paper = csv.DictReader((tmp_path / "summary.csv").read_text("utf-8").splitlines())
    assert (held_out["protocol"], held_out["folds"], held_out["epochs"]) == ("held-out", "3", "4")
    assert held_out["held-out"] == f"{ledger.estimates['held-out'].mean:.2f}"
    assert (held_out["C"], held_out["C*"], paper["held-out"]) == ("", "", "")
    assert paper["C"] == f"{ledger.estimates['C'].mean:.2f}"
    assert (paper["commit"], paper["hardware"], paper["seconds"]) == ("c0ffee", "2 cores", "1.5")


def test_text_that_utf8_cannot_hold_is_archived_and_read_back(tmp_path: Path) -> None:
    store, odd = ResultsStore(tmp_path), record(0, hardware="CPU \udcff")
    store.add(odd)
    store.pack()
    assert ResultsStore(tmp_path).records() == (odd,)
