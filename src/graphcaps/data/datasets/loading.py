"""One call from a name or a path to a :class:`GraphStore`.

A name is an embedded data set, or it is looked up as ``NAME.zip`` or ``NAME/`` in the folder given, in
``$GRAPHCAPS_DATA`` and in the user's data folder, and then downloaded into the last. A path is a TU folder or
zip, or a file or folder of one's own (:mod:`graphcaps.data.readers.user_files`).
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphcaps._io.atomic_write import expand_home, home_folder
from graphcaps.data.datasets.cache import load_cached, save_cached
from graphcaps.data.datasets.catalogue import CATALOGUE, CatalogueEntry, find_entry, similar_names
from graphcaps.data.datasets.download import DownloadError, download_tu, verify_checksum_file
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_archive import TUArchive
from graphcaps.data.readers.user_files import USER_FILE_SUFFIXES, is_user_file, read_user_file
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = [
    "LoadedDataset",
    "data_folder",
    "find_dataset",
    "find_local_dataset",
    "load_dataset",
    "open_dataset",
    "search_folders",
]

_TU_FILES = ("*_A.txt", "*_graph_indicator.txt", "*_graph_labels.txt")
_LIKE_SMILES = re.compile(r"(?:Cl|Br|[BCNOPSFIbcnops0-9=#()\[\]@+/\\%.-])+")


@dataclass(frozen=True)
class LoadedDataset:
    """A store and where it came from.

    Args:
        store (GraphStore): The graphs.
        source (Path, optional): The folder or zip; ``None`` for an embedded set.
        from_cache (bool): Whether the parsed form was found in the cache.
        metadata (GraphMetadata, optional): Metadata of graphs read from a user's file: ids, split, SMILES, notes.
    """

    store: GraphStore
    source: Path | None
    from_cache: bool
    metadata: GraphMetadata | None = None


def load_dataset(
    name: str | Path,
    root: str | Path | None = None,
    *,
    cache: bool = True,
    download: bool = True,
    **hints: Any,
) -> GraphStore:
    """Loads a data set.

    Args:
        name (str or Path): "planted-parts" (also -easy, -medium, -hard), a name of the TU collection such as
            "MUTAG", a path to a TU folder or zip, or to a table of molecules (.csv, .tsv, .parquet), a file of
            networks (.graphml, .gexf, .json), an edge list, or a folder of these.
        root (str or Path, optional): Folder to look in first for ``NAME.zip`` or ``NAME/``.
        cache (bool): Whether the parsed form is kept and used. (default: ``True``)
        download (bool): Whether a set that is found nowhere is downloaded. (default: ``True``)
        hints: For files of one's own, such as ``smiles="smiles", label="active"``; see
            :func:`graphcaps.data.readers.user_files.read_user_file`.

    Raises:
        GraphcapsError: If there is no such data set, or its files are not what they should be.
    """
    return open_dataset(name, root, cache=cache, download=download, **hints).store


def open_dataset(
    name: str | Path,
    root: str | Path | None = None,
    *,
    cache: bool = True,
    download: bool = True,
    **hints: Any,
) -> LoadedDataset:
    """:func:`load_dataset`, with where the store came from and what its source says about each graph."""
    path = _own_path(name, root)
    if path is not None:
        read = read_user_file(path, **hints)
        return LoadedDataset(read.store, path, False, read.metadata)
    for hint, value in hints.items():
        if value is not None:
            expected = f"be left out for '{name}', which is no file of one's own"
            raise ArgumentError("load_dataset", hint, expected, repr(value))
    if not _is_path(name):
        entry = find_entry(str(name))
        if entry is not None and entry.level is not None:
            from graphcaps.data.datasets.planted_parts import (
                planted_parts,  # imported only where it is asked for
            )

            return LoadedDataset(replace(planted_parts(entry.level), name=entry.name), None, False)
    return _read(find_dataset(name, root, download=download), cache)


def _own_path(name: str | Path, root: str | Path | None) -> Path | None:
    """The file or folder of one's own that a path, or a name in the working folder, stands for."""
    if _is_path(name):
        path = expand_home(name, "load_dataset", "name")
        if path.suffix.lower() in USER_FILE_SUFFIXES and not path.exists():
            raise DataError(path, "a file to read", "nothing of that name")
        return path if path.exists() and not _is_tu_folder(path) and is_user_file(path) else None
    here = Path(name)
    own = root is None and find_entry(str(name)) is None and here.is_dir() and not _is_tu_folder(here)
    return here if own and is_user_file(here) else None


def find_dataset(name: str | Path, root: str | Path | None = None, *, download: bool = True) -> Path:
    """The TU folder or zip that a name or path stands for, downloaded where it is found nowhere."""
    if _is_path(name):
        path = expand_home(name, "load_dataset", "name")
        if not path.exists():
            raise DataError(path, "a TU folder or zip", "nothing of that name")
        return path
    found = find_local_dataset(str(name), root)
    return found or _download(str(name), find_entry(str(name)), search_folders(root), download)


def find_local_dataset(name: str, root: str | Path | None = None) -> Path | None:
    """The TU folder or zip of that name in one of :func:`search_folders`, or in the working folder."""
    if root is None and _is_tu_folder(Path(name)):
        return Path(name)
    entry = find_entry(name)
    for wanted in dict.fromkeys((name, entry.name if entry else name)):
        for folder in search_folders(root):
            found = _look_in(folder, wanted)
            if found is not None:
                return found
    return None


def search_folders(root: str | Path | None = None) -> tuple[Path, ...]:
    """Where data sets are looked for, in order: ``root``, ``$GRAPHCAPS_DATA``, the user's data folder."""
    named = os.environ.get("GRAPHCAPS_DATA")
    folders = [expand_home(named, "load_dataset", "GRAPHCAPS_DATA")] if named else []
    if root is not None:
        root = expand_home(root, "load_dataset", "root")
        if not root.is_dir():
            raise ArgumentError("load_dataset", "root", "be a folder that exists", root)
        folders.insert(0, root)
    try:
        folders.append(data_folder())
    except ArgumentError:  # no home: the folders that were named will do
        if not folders:
            raise
    return tuple(dict.fromkeys(folders))


def data_folder() -> Path:
    """The user's data folder, where downloads go, whether or not it exists yet."""
    if sys.platform == "darwin":
        return home_folder("data_folder") / "Library" / "Application Support" / "graphcaps"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (
            (Path(base) if base else home_folder("data_folder") / "AppData" / "Local") / "graphcaps" / "data"
        )
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else home_folder("data_folder") / ".local" / "share") / "graphcaps"


def _download(name: str, entry: CatalogueEntry | None, folders: tuple[Path, ...], allowed: bool) -> Path:
    known, folder = entry.name if entry else name, folders[-1]
    if entry is None and _LIKE_SMILES.fullmatch(name):  # a structure may be a secret: it is not sent anywhere
        fix = (
            "It reads as a molecule, which is not looked for in the network. Put SMILES into a table (docs/inputs.md), "
            f"or {name}.zip into {folder} if it is a data set."
        )
        near = similar_names(name)
        fix += f" Near names: {', '.join(near)}." if near else ""
        raise ArgumentError("load_dataset", "name", "be a data set or a file", f"'{name}'", fix)
    try:
        if not allowed:
            raise DownloadError(known, "downloads are switched off", folder)
        return download_tu(known, folder, sha256=entry.collection_sha256 if entry else None).path
    except DownloadError as error:
        if entry is not None:
            raise
        near = similar_names(name)
        hint = f"Near names: {', '.join(near)}." if near else f"Known names: {', '.join(CATALOGUE)}."
        looked = ", ".join(str(place) for place in folders)
        raise ArgumentError(
            "load_dataset",
            "name",
            f"be a data set in {looked} or in the TU collection, or a path to a TU folder or zip",
            f"'{name}' ({error.reason})",
            hint,
        ) from error


def _read(path: Path, cache: bool) -> LoadedDataset:
    """Reads a folder or zip, or its parsed form from the cache."""
    if path.is_file():
        verify_checksum_file(path)
    if not cache:
        return LoadedDataset(read_tu(path), path, False)
    digest = _digest(path)
    store = load_cached(digest)
    if store is not None:
        return LoadedDataset(store, path, True)
    store = read_tu(path)
    if _digest(path) == digest:  # a source that changed while it was read is not kept
        save_cached(store, digest)
    return LoadedDataset(store, path, False)


def _digest(path: Path) -> str:
    with TUArchive(path) as archive:
        return archive.digest()


def _is_path(name: str | Path) -> bool:
    if isinstance(name, Path):
        return True
    if {"/", os.sep, os.altsep} & set(name) or name in ("", ".", ".."):
        return True
    return name.lower().endswith((".zip", *USER_FILE_SUFFIXES))


def _is_tu_folder(path: Path) -> bool:
    return path.is_dir() and any(next(path.glob(pattern), None) is not None for pattern in _TU_FILES)


def _look_in(folder: Path, name: str) -> Path | None:
    """``NAME.zip``, ``NAME/``, torch-geometric's ``NAME/raw/``, or the folder itself."""
    archive = folder / f"{name}.zip"
    if archive.is_file():
        return archive
    for place in (folder / name, folder / name / "raw"):
        if _is_tu_folder(place):
            return place
    return folder if (folder / f"{name}_A.txt").is_file() else None
