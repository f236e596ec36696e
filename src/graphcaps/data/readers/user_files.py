"""Reads a user's file or folder and detects its format: a table of molecules, an edge list, or networks.

The suffix of a file decides, and for a table its columns: with ``graph``, ``source`` and ``target`` it is an edge list,
otherwise a table of molecules with a column of SMILES. Readers are imported when a file is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from graphcaps.data.readers.graph_metadata import StoreWithMetadata
from graphcaps.data.readers.network_formats import NETWORK_PARSERS
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, Table, open_table
from graphcaps.data.readers.tu_archive import count_files
from graphcaps.errors import ArgumentError, DataError, count_noun

__all__ = ["READER_OPTIONS", "USER_FILE_SUFFIXES", "is_user_file", "read_user_file", "unreadable_folder"]

USER_FILE_SUFFIXES = (*TABLE_SUFFIXES, *NETWORK_PARSERS)
"""Suffixes of the files that :func:`read_user_file` reads."""

_COMMON_OPTIONS = ("label", "split", "bad", "unlabelled", "class_names")
_MOLECULE_OPTIONS = (
    *_COMMON_OPTIONS,
    "smiles",
    "id",
    "featurizer",
    "fragments",
    "duplicates",
)
_EDGE_LIST_OPTIONS = (*_COMMON_OPTIONS, "graphs", "nodes")
_NETWORK_OPTIONS = (
    *_COMMON_OPTIONS,
    *("node_label", "edge_label", "weight", "node_attributes", "edge_attributes"),
)
READER_OPTIONS = tuple(dict.fromkeys((*_MOLECULE_OPTIONS, *_EDGE_LIST_OPTIONS, *_NETWORK_OPTIONS)))
"""Names of the options of all formats."""


def is_user_file(path: Path) -> bool:
    """Whether :func:`read_user_file` reads this file or folder."""
    if path.is_dir():
        from graphcaps.data.readers.edge_lists import find_edge_list
        from graphcaps.data.readers.networks import is_network_folder

        return find_edge_list(path) is not None or is_network_folder(path)
    return path.suffix.lower() in USER_FILE_SUFFIXES


def unreadable_folder(folder: Path) -> DataError:
    """The error of a folder that holds nothing which is read as a folder: what it may hold, and what it holds."""
    networks = ", ".join(NETWORK_PARSERS)
    expected = f"a folder with a TU data set (NAME_A.txt), an edge list (edges.csv) or networks ({networks})"
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files, folders = [path for path in entries if path.is_file()], [path for path in entries if path.is_dir()]
    if not entries:
        return DataError(folder, expected, "an empty folder")
    found = [count_files(path.name for path in files)] if files else []
    found += [f"{count_noun(len(folders), 'folder')} without any of these"] if folders else []
    alone = [path for path in files if path.suffix.lower() in (*TABLE_SUFFIXES, ".zip")]
    fix = ""
    if alone:
        fix = f"Name the file itself: {alone[0]}" if len(alone) == 1 else f"Name one file, such as {alone[0]}"
    return DataError(folder, expected, " and ".join(found) or "no files", fix=f"{fix}." if fix else "")


def read_user_file(
    path: str | Path, *, defaults: Mapping[str, Any] | None = None, cache: bool = False, **options: Any
) -> StoreWithMetadata:
    """Reads a table of molecules, an edge list, a file of networks, or a folder with an edge list or networks.

    Args:
        path (str or Path): File or folder.
        defaults (mapping, optional): Options that are used where the format has them.
        cache (bool): Whether parsed molecules of a large table are kept in the cache. (default: ``False``)
        options: ``label`` and ``split`` name the columns (or graph attributes) with the class and the set of each
            graph, ``bad`` and ``unlabelled`` decide on graphs without a class. Tables of molecules have ``smiles``,
            ``id``, ``featurizer``, ``fragments`` and ``duplicates`` of
            :func:`graphcaps.data.readers.molecules.read_molecule_table`; edge lists ``graphs`` and ``nodes`` of
            :func:`graphcaps.data.readers.edge_lists.read_edge_list`; networks the arguments of
            :func:`graphcaps.data.readers.networks.store_from_networks`. ``None`` leaves an option out.

    Raises:
        ArgumentError: If an option is unknown, or does not apply to the format.
        DataError: If the file is invalid, with file, line, what was expected and what was found.
    """
    path = Path(path)
    options = {name: value for name, value in options.items() if value is not None}
    for name, value in options.items():
        if name not in READER_OPTIONS:
            expected = f"be one of the options {', '.join(READER_OPTIONS)}"
            raise ArgumentError("load_dataset", name, expected, repr(value))
    try:
        return _read_by_format(path, defaults, options, cache)
    except DataError as error:
        if error.found is None or not _is_link(path, error.where):
            raise
        # The link may lead to any file of this machine: its content is not for messages, which others may see.
        found = "other content in a linked file"
        raise DataError(error.where, error.expected, found, line=error.line) from None


def _is_link(path: Path, where: str) -> bool:
    """Whether ``where``, the place that an error names, is in a symbolic link: the file itself, or one of a folder."""
    if os.path.islink(where) or not path.is_dir():
        return os.path.islink(where) or path.is_symlink()
    # The place may be a graph of a file: "folder/net.json, graph 3", or "graph 'net.json#3'".
    links = (file for pattern in ("*", "*/*") for file in path.glob(pattern) if file.is_symlink())
    return any(
        where.startswith((f"{file},", f"graph '{file.relative_to(path).as_posix()}")) for file in links
    )


def _read_by_format(
    path: Path, defaults: Mapping[str, Any] | None, options: dict[str, Any], cache: bool
) -> StoreWithMetadata:
    from graphcaps.data.readers.edge_lists import EDGE_COLUMNS, find_edge_list, read_edge_list
    from graphcaps.data.readers.molecules import read_molecule_table
    from graphcaps.data.readers.networks import read_networks

    if path.is_dir():
        if find_edge_list(path) is not None:
            return _read_with(read_edge_list, path, defaults, options, _EDGE_LIST_OPTIONS, "an edge list")
        return _read_with(read_networks, path, defaults, options, _NETWORK_OPTIONS, "a folder of networks")
    suffix = path.suffix.lower()
    if suffix in NETWORK_PARSERS:
        return _read_with(read_networks, path, defaults, options, _NETWORK_OPTIONS, "a file of networks")
    if suffix not in TABLE_SUFFIXES:
        raise DataError(path, f"a file that ends in {', '.join(USER_FILE_SUFFIXES)}", f"'{suffix}'")
    table = open_table(path)
    if "smiles" not in options and all(table.find_column(name) is not None for name in EDGE_COLUMNS):
        return _read_with(read_edge_list, path, defaults, options, _EDGE_LIST_OPTIONS, "an edge list")
    fix = f"Name the column of SMILES with smiles='NAME'; an edge list has the columns {', '.join(EDGE_COLUMNS)}."
    table.column_index(str(options.get("smiles", "smiles")), fix)
    read = partial(read_molecule_table, cache=cache)
    return _read_with(read, table, defaults, options, _MOLECULE_OPTIONS, "a table of molecules")


def _read_with(
    read: Callable[..., StoreWithMetadata],
    source: Path | Table,
    defaults: Mapping[str, Any] | None,
    options: dict[str, Any],
    allowed: tuple[str, ...],
    kind: str,
) -> StoreWithMetadata:
    for name, value in options.items():
        if name not in allowed:
            file = source.where if isinstance(source, Table) else source
            raise ArgumentError("load_dataset", name, f"be omitted for {kind} ('{file}')", repr(value))
    applicable = {name: value for name, value in (defaults or {}).items() if name in allowed}
    return read(source, **applicable | options)
