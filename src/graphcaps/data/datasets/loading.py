"""Loads a data set by name or path.

A name is looked up in this order:

1. the embedded data sets, which are generated (``planted-parts``, ``ba-2motifs``, ``benzene`` …);
2. ``NAME.zip`` or ``NAME/`` in ``root``, in ``$GRAPHCAPS_DATA`` and in the user's data folder;
3. the TU collection, from which ``NAME.zip`` is downloaded into the user's data folder.

Only a data set that is asked for by a name of the catalogue has a ``catalogue_name``, and with it a preset of its own
(docs/presets.md). A path is a TU folder or zip, or a user file or folder in another format
(:mod:`graphcaps.data.readers.user_files`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphcaps._io.close_names import close_names
from graphcaps._io.file_hash import sha256_of
from graphcaps._io.user_folders import expand_home, user_folder
from graphcaps.data.datasets.cache import load_cached, save_cached
from graphcaps.data.datasets.catalogue import CatalogueEntry, find_entry, similar_names
from graphcaps.data.datasets.download import DownloadError, download_tu, verify_checksum_file
from graphcaps.data.readers.graph_metadata import GraphMetadata, warn_of_notes
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_archive import TUArchive
from graphcaps.data.readers.user_files import (
    USER_FILE_SUFFIXES,
    is_user_file,
    read_user_file,
    unreadable_folder,
)
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, UsageError

__all__ = [
    "LoadedDataset",
    "find_dataset",
    "find_local_dataset",
    "load_dataset",
    "open_dataset",
    "search_folders",
    "source_digest",
]

_TU_FILES = ("*_A.txt", "*_graph_indicator.txt", "*_graph_labels.txt")
_SMILES_CHARACTERS = re.compile(r"(?:Cl|Br|[BCNOPSFIbcnops0-9=#()\[\]@+/\\%.-])+")


@dataclass(frozen=True)
class LoadedDataset:
    """A data set and its source.

    Args:
        store (GraphStore): The graphs.
        source (Path, optional): The file or folder; ``None`` for an embedded data set.
        from_cache (bool): Whether the parsed data set came from the cache.
        metadata (GraphMetadata, optional): Ids, split and notes of graphs read from a user file.
        source_notes (tuple): Remarks on what was not read of a TU data set, one sentence each.
    """

    store: GraphStore
    source: Path | None
    from_cache: bool
    metadata: GraphMetadata | None = None
    source_notes: tuple[str, ...] = ()

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Remarks on what was not read and on rows, one sentence each."""
        return (*self.source_notes, *(() if self.metadata is None else self.metadata.all_notes))


def load_dataset(
    name: str | Path,
    root: str | Path | None = None,
    *,
    cache: bool = True,
    download: bool = True,
    **options: Any,
) -> GraphStore:
    """Loads a data set.

    Args:
        name (str or Path): "planted-parts" (also -easy, -medium, -hard); a name of the TU collection, such as
            "MUTAG"; or a path to a TU folder or zip, a table of molecules (.csv, .tsv, .parquet), a file of networks
            (.graphml, .gexf, .json), an edge list, or a folder of networks.
        root (str or Path, optional): Folder to search first for ``NAME.zip`` or ``NAME/``.
        cache (bool): Whether the parsed data set is cached. (default: ``True``)
        download (bool): Whether a data set that is not found locally is downloaded. (default: ``True``)
        options: Options for user files, such as ``smiles="smiles", label="active"``; see
            :func:`graphcaps.data.readers.user_files.read_user_file`.

    Warns:
        ReadingWarning: Once for each note that the command line prints: rows that were left out, salts and mixtures,
            repeated molecules, entries that are not read.

    Raises:
        GraphcapsError: If there is no such data set, or its files are invalid.
    """
    loaded = open_dataset(name, root, cache=cache, download=download, **options)
    warn_of_notes("load_dataset", loaded.all_notes)
    return loaded.store


def open_dataset(
    name: str | Path,
    root: str | Path | None = None,
    *,
    cache: bool = True,
    download: bool = True,
    defaults: Mapping[str, Any] | None = None,
    **options: Any,
) -> LoadedDataset:
    """Loads a data set with its source and metadata.

    Args:
        name, root, cache, download, options: As in :func:`load_dataset`.
        defaults (mapping, optional): Options for user files that are used where the format has them.
    """
    for argument, value in (("name", name), ("root", root)):
        if not isinstance(value, str | os.PathLike) and not (argument == "root" and value is None):
            raise ArgumentError("load_dataset", argument, "be text or a path", repr(value)[:60])
    path = _user_file(name, root)
    if path is not None:
        read = read_user_file(path, defaults=defaults, cache=cache, **options)
        return LoadedDataset(read.store, path, read.from_cache, read.metadata)
    local = find_dataset(name) if _is_path(name) or _is_unknown_folder(name, root) else None
    if local is not None and local.is_dir() and not _is_tu_folder(local):
        # An error that says what the folder lacks, rather than one of an option. A subfolder may have a data set.
        if next(local.glob(f"*/{_TU_FILES[0]}"), None) is None:
            raise unreadable_folder(local)
        with TUArchive(local):
            pass
    for option, value in options.items():
        if value is not None:
            expected = f"be omitted for '{name}', since it applies to user files only"
            raise ArgumentError("load_dataset", option, expected, repr(value))
    entry = None if local is not None else find_entry(str(name))
    if entry is not None and entry.embedded:
        return _generate(entry, cache)
    loaded = _read_tu_cached(local or find_dataset(name, root, download=download), cache)
    if entry is None:
        return loaded
    # Set here and not in the cache: the same file may also be opened by its path.
    return replace(loaded, store=loaded.store.with_catalogue_name(entry.name))


def source_digest(name: str | Path, root: str | Path | None = None) -> str:
    """SHA-256 of the files of a data set, which are not parsed; arguments as in :func:`load_dataset`.

    Of an embedded data set, and of one that would be downloaded, it is the name.

    Raises:
        GraphcapsError: If there is no such file.
    """
    path = _user_file(name, root)
    if path is not None:
        files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
        lines = [f"{file.relative_to(path)} {sha256_of(file)}" for file in files]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()
    entry = None if _is_path(name) else find_entry(str(name))
    if entry is not None and entry.embedded:
        return entry.name
    source = find_dataset(name) if _is_path(name) else find_local_dataset(str(name), root)
    return str(name) if source is None else _digest(source)


def _generate(entry: CatalogueEntry, cache: bool) -> LoadedDataset:
    """An embedded data set; molecules, which take seconds and need RDKit, from the cache if they are there."""
    from graphcaps.data.datasets.ba_motifs import ba_2motifs, ba_multishapes
    from graphcaps.data.datasets.molecule_tasks import MOLECULE_TASKS, molecule_task, task_digest
    from graphcaps.data.datasets.planted_parts import planted_parts

    from_cache = False
    if entry.name in MOLECULE_TASKS:
        digest = task_digest(entry.name)
        cached = load_cached(digest) if cache else None
        from_cache = cached is not None
        store = cached or molecule_task(entry.name)
        if cache and not from_cache:
            save_cached(store, digest)
    elif entry.level is not None:
        store = replace(planted_parts(entry.level), name=entry.name)
    else:
        store = ba_2motifs() if entry.name == "ba-2motifs" else ba_multishapes()
    return LoadedDataset(store.with_catalogue_name(entry.name), None, from_cache)


def find_dataset(name: str | Path, root: str | Path | None = None, *, download: bool = True) -> Path:
    """The TU folder or zip of a name or path, downloaded if it is not found locally.

    Raises:
        GraphcapsError: If it cannot be found.
    """
    if _is_path(name) or _is_unknown_folder(name, root):
        path = expand_home(name, "load_dataset", "name")
        if not path.exists():
            raise DataError(path, "file or folder not found")
        return path
    local = find_local_dataset(str(name), root)
    return local or _download(str(name), find_entry(str(name)), search_folders(root), download)


def find_local_dataset(name: str, root: str | Path | None = None) -> Path | None:
    """The TU folder or zip ``name`` in the working folder or in :func:`search_folders`, or ``None``."""
    if root is None and _is_tu_folder(Path(name)):
        return Path(name)
    entry = find_entry(name)
    for candidate in dict.fromkeys((name, entry.name if entry else name)):
        for folder in search_folders(root):
            path = _find_in_folder(folder, candidate)
            if path is not None:
                return path
    return None


def search_folders(root: str | Path | None = None) -> tuple[Path, ...]:
    """Folders that are searched for data sets, in order: ``root``, ``$GRAPHCAPS_DATA``, the user's data folder.

    Raises:
        GraphcapsError: If ``root`` does not exist, or no folder is known.
    """
    variable = os.environ.get("GRAPHCAPS_DATA")
    folders = [expand_home(variable, "load_dataset", "GRAPHCAPS_DATA")] if variable else []
    if root is not None:
        root = expand_home(root, "load_dataset", "root")
        if not root.is_dir():
            raise ArgumentError("load_dataset", "root", "be an existing folder", root)
        folders.insert(0, root)
    try:
        folders.append(user_folder("data"))
    except UsageError:  # no home folder: the other folders suffice
        if not folders:
            raise
    return tuple(dict.fromkeys(folders))


def _user_file(name: str | Path, root: str | Path | None) -> Path | None:
    """The user file or folder of a path, or of a name in the working folder; ``None`` for a TU data set."""
    if _is_path(name):
        path = expand_home(name, "load_dataset", "name")
        suffix = path.suffix.lower()
        if suffix in USER_FILE_SUFFIXES and not path.exists():
            raise DataError(path, "file not found")
        if path.is_file() and suffix not in (".zip", *USER_FILE_SUFFIXES):
            fix = "Save the data in one of these formats; a table with tabs is .tsv."
            suffixes = ", ".join((*USER_FILE_SUFFIXES, ".zip"))
            raise DataError(path, f"a file that ends in {suffixes}", f"'{path.suffix}'", fix=fix)
        return path if path.exists() and not _is_tu_folder(path) and is_user_file(path) else None
    folder = Path(name)
    if root is not None or find_entry(str(name)) is not None or not folder.is_dir():
        return None
    return folder if not _is_tu_folder(folder) and is_user_file(folder) else None


def _download(name: str, entry: CatalogueEntry | None, folders: tuple[Path, ...], allowed: bool) -> Path:
    exact_name, folder = entry.name if entry else name, folders[-1]
    if name == "-":
        fix = "Standard input is not read; write the graphs to a file."
        raise ArgumentError("load_dataset", "name", "be a data set or a file", "'-'", fix)
    if entry is None and _SMILES_CHARACTERS.fullmatch(name):  # a structure may be confidential
        raise UsageError(
            f"{_not_here(name, folders)}. It looks like a SMILES, which is not sent to the network: put SMILES into a "
            f"table (docs/inputs.md), or {name}.zip into {folder} if it is a data set. {_suggestion(name)}".rstrip()
        )
    try:
        if not allowed:
            raise DownloadError(exact_name, "downloads are disabled", folder)
        return download_tu(exact_name, folder, sha256=entry.collection_sha256 if entry else None).path
    except DownloadError as error:
        if entry is not None:
            raise
        suffixes = f"{', '.join(USER_FILE_SUFFIXES)} or .zip"
        raise UsageError(
            f"{_not_here(name, folders)} or in the TU collection ({error.reason}). "
            f"{_suggestion(name) or 'Known data sets are listed by: graphcaps data list.'} "
            f"For your own graphs, give the path of a folder or of a file that ends in {suffixes} (docs/inputs.md)."
        ) from error


def _not_here(name: str, folders: tuple[Path, ...]) -> str:
    """The beginning of a sentence on a name that is neither a path nor a data set in ``folders``."""
    searched = ", ".join(str(path) for path in folders)
    return f"There is no file or folder '{name}' here, and no data set of this name in {searched}"


def _suggestion(name: str) -> str:
    """A question with data sets, and files of the working folder, that have a similar name; "" if there are none."""
    try:
        here = [path for path in Path().iterdir() if path.suffix.lower() in (".zip", *USER_FILE_SUFFIXES)]
    except OSError:
        here = []
    same_stem = [path.name for path in sorted(here) if path.stem.lower() == name.lower()]
    similar = (*same_stem, *similar_names(name), *close_names(name, [path.name for path in here]))
    return f"Did you mean {' or '.join(tuple(dict.fromkeys(similar))[:3])}?" if similar else ""


def _read_tu_cached(path: Path, cache: bool) -> LoadedDataset:
    """Reads a TU folder or zip, or its parsed form from the cache."""
    if path.is_file():
        verify_checksum_file(path)
    notes = _unread_files(path)
    if not cache:
        return LoadedDataset(read_tu(path), path, False, source_notes=notes)
    digest = _digest(path)
    store = load_cached(digest)
    if store is not None:
        return LoadedDataset(store, path, True, source_notes=notes)
    store = read_tu(path)
    if _digest(path) == digest:  # a source that changed while it was parsed is not cached
        save_cached(store, digest)
    return LoadedDataset(store, path, False, source_notes=notes)


def _unread_files(path: Path) -> tuple[str, ...]:
    """A sentence on graph attributes of a TU data set, which are not read."""
    with TUArchive(path) as archive:
        file = f"{archive.name}_graph_attributes.txt"
        return (
            (f"{file} is not read: models predict classes of graphs.",)
            if archive.has_graph_attributes
            else ()
        )


def _digest(path: Path) -> str:
    with TUArchive(path) as archive:
        return archive.digest()


def _is_path(name: str | Path) -> bool:
    if isinstance(name, Path):
        return True
    if {"/", os.sep, os.altsep} & set(name) or name in ("", ".", ".."):
        return True
    if name.lower().endswith((".zip", *USER_FILE_SUFFIXES)):
        return True
    # A file of the working folder is meant, not a name to look for in the network.
    return "." in name and find_entry(name) is None and Path(name).is_file()


def _is_unknown_folder(name: str | Path, root: str | Path | None) -> bool:
    """Whether a folder of the working folder is meant, since no data set has this name here or in the catalogue."""
    is_folder = Path(name).is_dir() and find_entry(str(name)) is None
    return is_folder and find_local_dataset(str(name), root) is None


def _is_tu_folder(path: Path) -> bool:
    return path.is_dir() and any(next(path.glob(pattern), None) is not None for pattern in _TU_FILES)


def _find_in_folder(folder: Path, name: str) -> Path | None:
    """``NAME.zip``, ``NAME/``, the ``NAME/raw/`` of torch-geometric, or the folder itself."""
    archive = folder / f"{name}.zip"
    if archive.is_file():
        return archive
    for path in (folder / name, folder / name / "raw"):
        if _is_tu_folder(path):
            return path
    return folder if (folder / f"{name}_A.txt").is_file() else None
