"""The body of a request as graphs: JSON, or files of networks, molecules and edges."""

from __future__ import annotations

import json
import re
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from graphcaps.data.convert.networkx_graphs import from_networkx
from graphcaps.data.features.compatibility import check_columns
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.label_encoding import label_code
from graphcaps.data.readers.network_formats import parse_json, xml_format
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError, GraphcapsError, MissingExtraError
from graphcaps.serve.limits import Limits, Refused
from graphcaps.serve.multipart import Upload, split_upload

__all__ = [
    "CONTENT_TYPES",
    "ENDINGS",
    "Item",
    "check_counts",
    "items_of_networks",
    "items_of_smiles",
    "items_of_store",
    "read_request",
]


CONTENT_TYPES = {
    "application/json": ".json",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/graphml+xml": ".xml",
    "application/gexf+xml": ".xml",
    "application/xml": ".xml",
    "text/xml": ".xml",
}
"""What a body may be, beside ``multipart/form-data``, with the ending that a file of the kind has."""

ENDINGS = {
    **{ending: ending for ending in (".json", ".csv", ".tsv", ".xml")},
    **{".graphml": ".xml", ".gexf": ".xml"},
}
"""Endings of files, and the kind that they are."""


_LONGEST_REASON = 240


@dataclass(frozen=True, eq=False)
class Item:
    """One graph of a request.

    Args:
        name (str): What its source calls it: a file, a line, a SMILES, or its number.
        store (GraphStore, optional): The graph with the columns that the model reads; ``None`` with an ``error``.
        error (str): Why it is not one.
        smiles (bool): Whether its labels are elements.
        texts (dict): Text that a number among its node labels stands for.
    """

    name: str
    store: GraphStore | None = None
    error: str = ""
    smiles: bool = False
    texts: dict[int, str] = field(default_factory=dict)


def check_counts(count: int, limits: Limits, where: str = "request") -> None:
    """Refuses more graphs than a request may have, before they are read."""
    if count > limits.max_graphs:
        raise Refused(413, f"{where}: expected at most {limits.max_graphs:,} graphs, found {count:,}.")
    if not count:
        raise Refused(422, f"{where}: expected at least one graph, found none.")


def items_of_networks(graphs: Sequence[tuple[str, Any]], recipe: FeatureRecipe, limits: Limits) -> list[Item]:
    """From networkx graphs, each with its name; or from a function that makes one, or raises."""
    check_counts(len(graphs), limits)
    return [_network(name, graph, recipe, limits) for name, graph in graphs]


def items_of_smiles(
    texts: Sequence[Any], names: Sequence[str], recipe: FeatureRecipe, limits: Limits
) -> list[Item]:
    """From SMILES; node labels are elements, with charge, aromaticity and hydrogens where the model knows them."""
    from graphcaps.data.readers.molecules import ATOM_COLUMNS, read_smiles

    check_counts(len(texts), limits)
    full = len(recipe.label_values or ()) == len(ATOM_COLUMNS["full"])
    # The last is a molecule for certain: where no other is one, there is still a store.
    read = read_smiles(
        [*(text if isinstance(text, str) else "" for text in texts), "C"],
        atoms="full" if full else "elements",
        bad="skip",
    )
    place = {number: row for row, number in enumerate(read.row_indices)}
    reasons = {row.line - 1: row.reason for row in read.skipped}
    items = []
    for number, (text, name) in enumerate(zip(texts, names, strict=True)):
        if number in place:
            items.append(_sound(Item(name, read.store[place[number]], smiles=True), recipe, limits))
        else:
            found = repr(text)[:60] if not isinstance(text, str) else reasons[number]
            items.append(Item(name, error=_short(f"it is no molecule in SMILES: {found}")))
    return items


def items_of_store(
    store: GraphStore, names: Sequence[str], texts: dict[int, str], recipe: FeatureRecipe, limits: Limits
) -> list[Item]:
    """From graphs that were read together."""
    check_counts(len(store), limits)
    return [_sound(Item(name, store[graph], texts=texts), recipe, limits) for graph, name in enumerate(names)]


def _network(name: str, source: Any, recipe: FeatureRecipe, limits: Limits) -> Item:
    try:
        graph = source() if callable(source) else source
        if graph.number_of_nodes() > limits.max_nodes:
            return Item(name, error=_too_many(graph.number_of_nodes(), limits))
        texts: dict[int, str] = {}
        return _sound(Item(name, _store(graph, recipe, texts), texts=texts), recipe, limits)
    except MissingExtraError:
        raise
    except GraphcapsError as error:
        return Item(name, error=_short(str(error)))
    except Exception:  # whatever a stranger's graph trips is an error of that graph; the log keeps the place
        traceback.print_exc()
        return Item(name, error="it cannot be read as a graph")


def _store(graph: Any, recipe: FeatureRecipe, texts: dict[int, str]) -> GraphStore:
    from graphcaps.data.readers.networks import store_from_networks

    entries = [entry for _, entry in graph.nodes(data=True)]
    several = any(
        isinstance(entry.get(key), list | tuple) for entry in entries for key in ("label", "attributes")
    )
    edge_label = "label" if recipe.edge_label_values else None
    if several:  # as graphcaps.data.to_networkx writes them
        for entry in entries:
            if "label" in entry:
                labels = entry["label"] if isinstance(entry["label"], list | tuple) else [entry["label"]]
                entry["label"] = [label_code(label, texts) for label in labels]
        return from_networkx(
            [graph],
            [None],  # type: ignore[list-item]
            node_attributes="attributes" if recipe.num_attributes else None,
            edge_label=edge_label,
            codes={},
        )
    read = store_from_networks(
        [graph],
        [None],
        node_label="label" if recipe.label_values else None,
        node_attributes=None if recipe.num_attributes else (),
        edge_label=edge_label,
        edge_attributes=(),
    )
    texts.update(read.metadata.label_names)
    return read.store


def _short(reason: str) -> str:
    """A reason as part of a sentence; what it quotes may be long."""
    plain = " ".join(reason.split()).rstrip(".")
    return plain if len(plain) <= _LONGEST_REASON else f"{plain[:_LONGEST_REASON]} …"


def _too_many(nodes: int, limits: Limits) -> str:
    return f"it has {nodes:,} nodes, and {limits.max_nodes:,} is the most that a graph may have"


def _sound(item: Item, recipe: FeatureRecipe, limits: Limits) -> Item:
    """The item with the columns that the model reads and no others, or with the reason why it cannot be read."""
    store = item.store
    assert store is not None
    if store.num_nodes > limits.max_nodes:
        return replace(item, store=None, error=_too_many(store.num_nodes, limits))
    try:
        check_columns(replace(store, name="this graph"), recipe, "predict")
    except GraphcapsError as error:
        return replace(item, store=None, error=_short(str(error)))
    edge_labels = None
    if recipe.edge_label_values:
        edge_labels = store.edge_labels
        if edge_labels is None:  # a graph without edges
            edge_labels = torch.empty(0, len(recipe.edge_label_values), dtype=torch.long)
    kept = replace(
        store,
        name="request",
        y=None,
        class_names=(),
        node_labels=store.node_labels if recipe.labels and recipe.label_values else None,
        node_attributes=store.node_attributes if recipe.attributes and recipe.num_attributes else None,
        edge_labels=edge_labels,
        edge_attributes=None,
        truth={},
    )
    return replace(item, store=kept)


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
        return _networks(file, xml_format(file.content, file.name)[0], recipe, limits)
    return _tables([file], recipe, limits, column)


def _networks(file: Upload, ending: str, recipe: FeatureRecipe, limits: Limits) -> list[Item]:
    from graphcaps.data.readers.network_formats import parse_networks

    graphs = parse_networks(file.content, ending, file.name)
    names = (
        [file.name] if len(graphs) == 1 else [f"{file.name}#{place}" for place in range(1, len(graphs) + 1)]
    )
    return items_of_networks(list(zip(names, graphs, strict=True)), recipe, limits)


def _json(content: bytes, where: str, recipe: FeatureRecipe, limits: Limits) -> list[Item]:
    """``{"graphs": […]}``, ``{"smiles": […]}``, one graph, or a list of graphs."""
    values = parse_json(content, where)
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
    from graphcaps.data.readers.network_formats import parse_networks

    return lambda: parse_networks(json.dumps([value]).encode(), ".json", "graph")[0]


def _tables(files: Sequence[Upload], recipe: FeatureRecipe, limits: Limits, column: str) -> list[Item]:
    """A table of molecules, or tables of edges, of nodes and of graphs."""
    from graphcaps.data.readers.edge_lists import EDGE_COLUMNS, read_edge_list
    from graphcaps.data.readers.text_tables import open_table

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
            if not all(table.find_column(name) is not None for name in EDGE_COLUMNS):
                fix = f"Name the column of SMILES; an edge list has the columns {', '.join(EDGE_COLUMNS)}."
                texts = [row[table.column_index(column, fix)] for row in table.rows]
                names = [f"line {line}" for line in table.lines]
                return items_of_smiles(texts, names, recipe, limits)
        data = read_edge_list(Path(folder) if len(files) > 1 else paths[0])
    return items_of_store(data.store, data.metadata.ids, data.metadata.label_names, recipe, limits)
