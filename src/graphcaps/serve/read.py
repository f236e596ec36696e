"""The body of a request as graphs: JSON, or files of networks, molecules and edges."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcaps.data.features import FeatureRecipe
from graphcaps.data.network_files import read_json
from graphcaps.data.xml_check import xml_ending
from graphcaps.errors import DataError
from graphcaps.serve.items import Item, check_counts, items_of_networks, items_of_smiles, items_of_store
from graphcaps.serve.kinds import CONTENT_TYPES, ENDINGS
from graphcaps.serve.limits import Limits, Refused
from graphcaps.serve.multipart import Upload, split_upload

__all__ = ["read_request"]

_EDGE_TABLES = re.compile(r"(edges|graphs|nodes)\.(csv|tsv)", re.IGNORECASE)


def read_request(
    content_type: str, body: bytes, recipe: FeatureRecipe, limits: Limits, *, column: str = "smiles"
) -> list[Item]:
    """The graphs of a request, in its order; one that cannot be read says why.

    Args:
        content_type (str): As the request names it.
        body (bytes): All of it.
        recipe (FeatureRecipe): What the model reads.
        limits (Limits): What is too much.
        column (str): Column of a table with the SMILES. (default: ``"smiles"``)

    Raises:
        Refused: 415 at an unknown kind, 413 at too many graphs, 422 at what is not what it says.
        DataError: At a file that cannot be read at all.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        files = split_upload(content_type, body)
    elif kind in CONTENT_TYPES:
        files = [Upload(f"file{CONTENT_TYPES[kind]}", kind, body)]
    else:
        listed = ", ".join((*CONTENT_TYPES, "multipart/form-data"))
        raise Refused(415, f"request: expected one of the content types {listed}, found '{kind[:60]}'.")
    tables = [file for file in files if _EDGE_TABLES.fullmatch(file.name)]
    items = _tables(tables, recipe, limits, column) if len(tables) > 1 else []
    for file in files:
        if len(tables) < 2 or file not in tables:
            items += _file(file, recipe, limits, column)
    check_counts(len(items), limits)
    total = sum(item.store.num_nodes for item in items if item.store is not None)
    if total > limits.max_total_nodes:
        most = f"{limits.max_total_nodes:,}"
        raise Refused(413, f"request: expected at most {most} nodes in all graphs together, found {total:,}.")
    return items


def _file(file: Upload, recipe: FeatureRecipe, limits: Limits, column: str) -> list[Item]:
    ending = ENDINGS.get(Path(file.name).suffix.lower()) or CONTENT_TYPES.get(file.content_type)
    if ending is None:
        listed = ", ".join(ENDINGS)
        raise Refused(415, f"upload: expected files that end in {listed}, found '{file.name[:60]}'.")
    if ending == ".json":
        return _json(file.content, file.name, recipe, limits)
    if ending == ".xml":
        return _networks(file, xml_ending(file.content, file.name), recipe, limits)
    return _tables([file], recipe, limits, column)


def _networks(file: Upload, ending: str, recipe: FeatureRecipe, limits: Limits) -> list[Item]:
    from graphcaps.data.network_files import parse_networks

    graphs = parse_networks(file.content, ending, file.name)
    names = (
        [file.name] if len(graphs) == 1 else [f"{file.name}#{place}" for place in range(1, len(graphs) + 1)]
    )
    return items_of_networks(list(zip(names, graphs, strict=True)), recipe, limits)


def _json(content: bytes, where: str, recipe: FeatureRecipe, limits: Limits) -> list[Item]:
    """``{"graphs": […]}``, ``{"smiles": […]}``, one graph, or a list of graphs."""
    values = read_json(content, where)
    if isinstance(values, Mapping) and not isinstance(values.get("nodes"), list):
        given = [key for key in ("graphs", "smiles") if key in values]
        if len(given) != 1:
            found = "both" if given else ", ".join(repr(key)[:40] for key in list(values)[:6]) or "nothing"
            raise DataError(where, "a list under 'graphs' or one under 'smiles'", found)
        listed = values[given[0]]
        if not isinstance(listed, list):
            raise DataError(where, f"a list under '{given[0]}'", f"a {type(listed).__name__}")
        if given == ["smiles"]:
            check_counts(len(listed), limits, where)
            names = [
                text[:80] if isinstance(text, str) else str(place) for place, text in enumerate(listed, 1)
            ]
            return items_of_smiles(listed, names, recipe, limits)
        values = listed
    graphs = values if isinstance(values, list) else [values]
    check_counts(len(graphs), limits, where)
    made = [(f"{place}", _node_link(graph)) for place, graph in enumerate(graphs, start=1)]
    return items_of_networks(made, recipe, limits)


def _node_link(value: Any) -> Callable[[], Any]:
    """Makes the networkx graph when it is asked for, so that one that cannot be read is one error."""
    from graphcaps.data.network_files import parse_networks

    return lambda: parse_networks(json.dumps([value]).encode(), ".json", "graph")[0]


def _tables(files: Sequence[Upload], recipe: FeatureRecipe, limits: Limits, column: str) -> list[Item]:
    """A table of molecules, or tables of edges, of nodes and of graphs."""
    from graphcaps.data.edge_lists import EDGE_COLUMNS, read_edge_list
    from graphcaps.data.tables import open_table

    with tempfile.TemporaryDirectory(prefix="graphcaps-") as folder:
        paths = []
        for file in files:
            ending = ".tsv" if file.name.lower().endswith(".tsv") else ".csv"
            known = _EDGE_TABLES.fullmatch(file.name) is not None
            # Readers take files; a name of ours says nothing to the system.
            paths.append(Path(folder) / (file.name.lower() if known else f"file{ending}"))
            paths[-1].write_bytes(file.content)
        if len(files) == 1:
            table = open_table(paths[0])
            if not all(table.find(name) is not None for name in EDGE_COLUMNS):
                fix = f"Name the column of SMILES; an edge list has the columns {', '.join(EDGE_COLUMNS)}."
                texts = [row[table.place(column, fix)] for row in table.rows]
                names = [f"line {line}" for line in table.lines]
                return items_of_smiles(texts, names, recipe, limits)
        data = read_edge_list(Path(folder) if len(files) > 1 else paths[0])
    return items_of_store(data.store, data.rows.ids, data.rows.label_names, recipe, limits)
