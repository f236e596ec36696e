"""A folder of records, shared by runs and machines: one JSON file per new record and one archive."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from graphcaps._io.atomic_write import escape_text, write_atomically
from graphcaps._io.file_lock import lock_file
from graphcaps._io.read_limit import read_bounded
from graphcaps.errors import DataError
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.record import Protocol, RecordKey, SeedRecord
from graphcaps.evaluation.record_archive import RecordArchive, write_archive
from graphcaps.evaluation.results_summary import summary_csv

__all__ = ["MergeReport", "ResultsStore", "check_settings", "file_name"]

_ENDING = ".record.json"


@dataclass(frozen=True)
class MergeReport:
    """Result of :meth:`ResultsStore.merge`.

    Args:
        added (tuple): Keys that were new.
        replaced (tuple): Keys whose record was replaced by one that was finished earlier.
        kept (tuple): Keys whose record did not change.
    """

    added: tuple[RecordKey, ...]
    replaced: tuple[RecordKey, ...]
    kept: tuple[RecordKey, ...]


class ResultsStore:
    """Records by data set, variant, protocol, seed and division into folds, in one folder.

    A new record is a small JSON file, ``*.record.json``. :meth:`pack` moves all of them into one compressed archive,
    ``records.zip``, and writes ``summary.csv`` with a line per record. A store reads both.

    Files are written atomically, so a store can be read while it is filled. For each key there is one record. Of two
    records with the same key and the same settings, the one **finished first** counts (by its time stamp, then by its
    checksum): a repetition never replaces a result, and the order of merging does not matter. Two records with the
    same key and different settings are an error.

    Args:
        folder (str or Path): The folder; created with the first record.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._archive_read: tuple[tuple[int, int], RecordArchive] | None = None

    def __repr__(self) -> str:
        return f"ResultsStore({str(self.folder)!r}, records={len(self)})"

    def __len__(self) -> int:
        """Number of records, by the names of the files and the index of the archive."""
        archive = self._archive()
        archived = set() if archive is None else {self.path(key) for key in archive.keys}
        return len(archived.union(self._files()))

    def __contains__(self, key: RecordKey) -> bool:
        archive = self._archive()
        return self.path(key).is_file() or (archive is not None and key in archive)

    @property
    def archive_path(self) -> Path:
        """The archive, whether or not it exists."""
        return self.folder / "records.zip"

    def path(self, key: RecordKey) -> Path:
        """The file of a record outside the archive, whether or not it exists."""
        parts = (key.dataset, key.variant, key.protocol, f"seed{key.seed}", *_division(key.division))
        return self.folder / f"{file_name(*parts)}{_ENDING}"

    def get(self, key: RecordKey) -> SeedRecord | None:
        """The record of a key; ``None`` if there is none.

        Raises:
            DataError: If the file is not a record, or the record of another key.
        """
        archive, path = self._archive(), self.path(key)
        archived = None if archive is None else archive.get(key)
        if not path.is_file():
            return archived
        record = _read(path)
        if record.key != key:
            fix = "Move it to another folder and merge it."
            raise DataError(path, f"the record of {key}", f"that of {record.key}", fix=fix)
        return record if archived is None else _first(archived, record, path)

    def records(self) -> tuple[SeedRecord, ...]:
        """All records, sorted by key.

        Raises:
            DataError: If a file is not a record, or two files hold records of one key.
        """
        loose: dict[RecordKey, tuple[Path, SeedRecord]] = {}
        for path in self._files():
            record = _read(path)
            if record.key in loose:
                other = loose[record.key][0].name
                raise DataError(
                    path,
                    f"one record of {record.key}",
                    f"a second beside {other}",
                    fix="Move one of them to another folder and merge it.",
                )
            loose[record.key] = (path, record)
        records = {key: record for key, (_, record) in loose.items()}
        archive = self._archive()
        for archived in () if archive is None else archive.records():
            key = archived.key
            records[key] = _first(archived, records[key], loose[key][0]) if key in loose else archived
        return tuple(records[key] for key in sorted(records))

    def add(self, record: SeedRecord) -> bool:
        """Writes a record as a file of its own; returns whether it is now the record of its key.

        Raises:
            DataError: If the store holds a record of this key with other settings.
        """
        present = self.get(record.key)
        if present is not None and _first(present, record, self.path(record.key)) is present:
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path(record.key), record.to_json())
        return True

    def lock(
        self, dataset: str, variant: str, protocol: Protocol, division: int = 0
    ) -> AbstractContextManager[None]:
        """Refuses other processes that write records of a data set, variant, protocol and division into this folder.

        Raises:
            DataError: On entering, if another process has the lock, or if the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(self.folder, f"folder cannot be made ({error.strerror or error})") from error
        problem = f"another process is evaluating {variant} on {dataset} ({protocol}) in this folder"
        refusal = DataError(self.folder, problem, fix="Wait until it has ended, or name another folder.")
        name = file_name(dataset, variant, protocol, *_division(division))
        return lock_file(self.folder / name, refusal=refusal)

    def pack(self) -> int:
        """Moves all records into the archive, writes ``summary.csv``, and removes the files that are now archived.

        An interruption loses nothing: the files are removed last, and a record in both places counts once.

        Returns:
            int: Number of records in the archive.

        Raises:
            DataError: As :meth:`records`, or if a file cannot be written.
        """
        files = {path: _signature(path) for path in self._files()}
        records = self.records()
        if not records:
            return 0
        write_archive(self.archive_path, records)
        write_atomically(self.folder / "summary.csv", summary_csv(records))
        for path, signature in files.items():
            if path.is_file() and _signature(path) == signature:  # else another process has just replaced it
                path.unlink()
        return len(records)

    def merge(self, *folders: str | Path) -> MergeReport:
        """Adds the records of other folders: all of them or, if one is invalid, none.

        Raises:
            DataError: If a folder does not exist, a file is not a record, or settings differ.
        """
        incoming: dict[RecordKey, SeedRecord] = {}
        for folder in folders:
            if not Path(folder).is_dir():
                raise DataError(folder, "folder not found")
            for record in ResultsStore(folder).records():
                present = incoming.get(record.key) or self.get(record.key)
                incoming[record.key] = record if present is None else _first(present, record, Path(folder))
        before = {key: self.get(key) for key in incoming}
        added = [key for key in sorted(incoming) if before[key] is None]
        kept = [key for key in sorted(incoming) if before[key] == incoming[key]]
        replaced = [key for key in sorted(incoming) if key not in {*added, *kept}]
        for key in (*added, *replaced):
            self.add(incoming[key])
        return MergeReport(tuple(added), tuple(replaced), tuple(kept))

    def ledgers(self) -> tuple[Ledger, ...]:
        """A ledger per data set and variant, with all divisions into folds."""
        groups: dict[tuple[str, str], list[SeedRecord]] = defaultdict(list)
        for record in self.records():
            groups[record.key.dataset, record.key.variant].append(record)
        return tuple(Ledger(tuple(records)) for _, records in sorted(groups.items()))

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"*{_ENDING}") if not path.name.startswith("."))

    def _archive(self) -> RecordArchive | None:
        """The archive, read again when the file has changed; ``None`` if there is none."""
        try:
            signature = _signature(self.archive_path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if self._archive_read is None or self._archive_read[0] != signature:
            self._archive_read = (signature, RecordArchive(self.archive_path))
        return self._archive_read[1]


def _division(number: int) -> tuple[str, ...]:
    """Part of a file name; none for division 0."""
    return (f"division{number}",) if number else ()


def _signature(path: Path) -> tuple[int, int]:
    """Modification time and size, to recognise an unchanged file."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def file_name(*parts: str) -> str:
    """Parts of a key as a file name: ``MUTAG--hgcn--paper--seed0``; other characters as ``%2F``."""
    name = "--".join(quote(part, safe=" +=,@") for part in parts)
    return f"%2E{name[1:]}" if name.startswith(".") else name  # a leading dot would hide it


def _read(path: Path) -> SeedRecord:
    try:
        text = read_bounded(path)
    except OSError as error:
        raise DataError(path, f"the record cannot be read ({error.strerror or error})") from error
    return SeedRecord.from_json(text, str(path))


def _first(one: SeedRecord, other: SeedRecord, where: Path) -> SeedRecord:
    """The record that was finished first, of two with one key and the same settings."""
    check_settings(one.settings, other.settings, one.key, where)
    return min((one, other), key=lambda record: (record.finished, _checksum(record)))


def check_settings(present: dict[str, Any], new: dict[str, Any], key: RecordKey, where: Path) -> None:
    """Checks that a run has the settings of the record of the same key.

    Args:
        present, new (dict): Settings of the record and of the run.
        key (RecordKey): Their key.
        where (Path): The file or folder, for the message.

    Raises:
        DataError: If they differ; the message lists up to three differences.
    """
    names = [name for name in dict.fromkeys((*present, *new)) if present.get(name) != new.get(name)]
    if names:
        # The kind of folds is listed first: it explains why the results cannot be compared.
        names.sort(key=lambda name: name != "partition")
        differences = [f"{name} {_setting(name, present)} and {_setting(name, new)}" for name in names[:3]]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise DataError(
            where,
            f"one run of {key}",
            f"two that differ ({', '.join(differences)}{more})",
            fix="Use another folder for one of the two.",
        )


def _setting(name: str, values: dict[str, Any]) -> str:
    return str(values.get(name, "none (plain folds)" if name == "partition" else None))


def _checksum(record: SeedRecord) -> str:
    return hashlib.sha256(escape_text(record.to_json()).encode()).hexdigest()
