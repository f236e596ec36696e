"""Graphs to learn from have classes: where a user's own file seems to have none, which columns it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphcaps.data.datasets import LoadedDataset

__all__ = ["need_classes"]

_MOST = 20  # names in a message
_NETWORKX = {"node_default", "edge_default", "mode"}  # what networkx itself notes of a file


def need_classes(owner: str, loaded: LoadedDataset) -> None:
    """Refuses graphs without classes, and lists what ``--label`` can name.

    Raises:
        ArgumentError: If there are none.
    """
    if loaded.store.y is not None:
        return
    fix = "Add graph labels."
    if loaded.rows is not None and loaded.source is not None:
        fix = _table(loaded.source, edges=loaded.rows.smiles is None)
    got = f"'{loaded.store.name}' without"
    raise ArgumentError(owner, "source", "have a class for every graph", got, fix)


def _table(path: Path, *, edges: bool) -> str:
    """What to do about a user's own file or folder."""
    from graphcaps.data.edge_lists import find_edge_list
    from graphcaps.data.network_files import NETWORKS, read_network_file
    from graphcaps.data.tables import TABLES, open_table

    if path.is_dir():
        path = find_edge_list(path) or path
    if path.suffix.lower() in TABLES and edges:
        beside = (path.with_name(f"graphs{ending}") for ending in TABLES if path.stem == "edges")
        graphs = next((table for table in beside if table.is_file()), None)
        if graphs is None:
            return "Put a table graphs.csv with the columns graph and label beside edges.csv."
        path = graphs
    if path.suffix.lower() in TABLES:
        return _choose("column", open_table(path).columns, path.name)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in NETWORKS)[:1]
    networks = [network for file in files for network in read_network_file(file)]
    entries = sorted({str(entry) for network in networks for entry in network.graph} - _NETWORKX)
    return _choose("graph entry", entries, files[0].name)


def _choose(what: str, names: Sequence[str], where: str) -> str:
    if not names:
        return f"Add a class to each graph: the graphs of {where} have no entries, such as 'class'."
    listed = ", ".join(f"'{name}'" for name in names[:_MOST]) + (", …" if len(names) > _MOST else "")
    return f"Name the {what} with --label; {where} has {listed}."
