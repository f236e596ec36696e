"""A user's own file or folder, whatever it is: molecules in a table, networks in files, an edge list.

What it is follows from its ending and, for a table, from its columns: one with ``graph``, ``source`` and
``target`` is an edge list, any other has a column of SMILES. Hints say what else to know, and a hint that means
nothing for what was found is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphcaps.data.readers.edge_lists import EDGE_COLUMNS, find_edge_list, read_edge_list
from graphcaps.data.readers.graph_metadata import StoreWithMetadata
from graphcaps.data.readers.molecules import read_molecule_table
from graphcaps.data.readers.network_formats import NETWORK_PARSERS
from graphcaps.data.readers.networks import is_network_folder, read_networks
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table
from graphcaps.errors import ArgumentError, DataError

__all__ = ["READER_OPTIONS", "USER_FILE_SUFFIXES", "is_user_file", "read_user_file"]

USER_FILE_SUFFIXES = (*TABLE_SUFFIXES, *NETWORK_PARSERS)
"""Endings of files that are read."""

_COMMON_OPTIONS = ("label", "split", "class_names")
_MOLECULE_OPTIONS = (*_COMMON_OPTIONS, "smiles", "id", "atoms", "fragments", "bad")
_EDGE_LIST_OPTIONS = (*_COMMON_OPTIONS, "graphs", "nodes")
_NETWORK_OPTIONS = (
    *_COMMON_OPTIONS,
    "node_label",
    "edge_label",
    "weight",
    "node_attributes",
    "edge_attributes",
)
READER_OPTIONS = tuple(dict.fromkeys((*_MOLECULE_OPTIONS, *_EDGE_LIST_OPTIONS, *_NETWORK_OPTIONS)))
"""Names of all hints."""


def is_user_file(path: Path) -> bool:
    """Whether a path is a file or folder that :func:`read_user_file` reads."""
    if path.is_dir():
        return find_edge_list(path) is not None or is_network_folder(path)
    return path.suffix.lower() in USER_FILE_SUFFIXES


def read_user_file(path: str | Path, **hints: Any) -> StoreWithMetadata:
    """Reads a table of molecules, an edge list, a file of networks, or a folder with any of the last two.

    Args:
        path (str or Path): What to read.
        hints: ``label`` and ``split`` name columns (or entries of graphs) with the class and the part; ``smiles``
            and ``id`` name columns of a table of molecules, ``atoms``, ``fragments`` and ``bad`` are as in
            :func:`graphcaps.data.readers.molecules.read_smiles`; ``graphs`` and ``nodes`` as in
            :func:`graphcaps.data.readers.edge_lists.read_edge_list`; the others as in
            :func:`graphcaps.data.readers.networks.store_from_networks`. ``None`` is no hint.

    Raises:
        ArgumentError: At a hint that is unknown, or means nothing here.
        DataError: At what cannot be read, with file and line, what was expected and what was found.
    """
    path = Path(path)
    given = {name: value for name, value in hints.items() if value is not None}
    for name in given:
        if name not in READER_OPTIONS:
            raise ArgumentError(
                "load_dataset", name, f"be one of {', '.join(READER_OPTIONS)}", "another hint"
            )
    if path.is_dir():
        if find_edge_list(path) is not None:
            return _with(read_edge_list, path, given, _EDGE_LIST_OPTIONS, "an edge list")
        return _with(read_networks, path, given, _NETWORK_OPTIONS, "a folder of networks")
    ending = path.suffix.lower()
    if ending in NETWORK_PARSERS:
        return _with(read_networks, path, given, _NETWORK_OPTIONS, "a file of networks")
    if ending not in TABLE_SUFFIXES:
        raise DataError(path, f"a file that ends in {', '.join(USER_FILE_SUFFIXES)}", f"'{ending}'")
    table = open_table(path)
    if "smiles" not in given and all(table.find_column(name) is not None for name in EDGE_COLUMNS):
        return _with(read_edge_list, path, given, _EDGE_LIST_OPTIONS, "an edge list")
    column = str(given.get("smiles", "smiles"))
    listed = ", ".join(EDGE_COLUMNS)
    table.column_index(
        column, f"Name the column of SMILES (--smiles NAME); an edge list has the columns {listed}."
    )
    return _with(read_molecule_table, table, given, _MOLECULE_OPTIONS, "a table of molecules")


def _with(
    read: Callable[..., StoreWithMetadata],
    source: Any,
    given: dict[str, Any],
    known: tuple[str, ...],
    what: str,
) -> StoreWithMetadata:
    for name in given:
        if name not in known:
            called = source.where if hasattr(source, "where") else Path(source).name
            raise ArgumentError(
                "load_dataset", name, f"be left out for {what}, '{called}'", repr(given[name])
            )
    return read(source, **given)
