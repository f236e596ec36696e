"""The graphs of a request, read from JSON, XML, or tables of molecules or edges."""

from __future__ import annotations

import json
import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphcaps.chemistry.featurizers import DEFAULT_FEATURIZER, find_featurizer
from graphcaps.data.coercion import read_graphs
from graphcaps.data.features.compatibility import UnseenPolicy
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.readers.network_formats import describe_json, parse_json, parse_networks, xml_format
from graphcaps.data.readers.parsed_molecules import parse_molecules
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError, GraphcapsError, MissingExtraError, shorten
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.serve.limits import Limits, RequestError
from graphcaps.serve.uploads import Upload, read_uploads

__all__ = ["Molecules", "RequestGraph", "read_molecules", "read_request"]

_EDGE_TABLES = re.compile(r"(edges|graphs|nodes)\.(csv|tsv)", re.IGNORECASE)
_MAX_ERROR_LENGTH = 240
_MAX_NAME_LENGTH = 80
_THIS = "this graph"  # name of a store in messages


@dataclass(frozen=True, eq=False)
class RequestGraph:
    """One graph of a request.

    Args:
        name (str): Name in its source: a file, the id of its row, a SMILES, or its number.
        store (GraphStore, optional): Holds the graph with the columns that the model uses, and maybe others;
            ``None`` with an ``error``.
        error (str): Why the graph cannot be used, or "".
        is_molecule (bool): Whether it was read from SMILES, so that its nodes are atoms.
        unseen_values (str): Values of a molecule that no training molecule has, or "".
        truncated (str): How many of its nodes the model reads, or "" if it reads all.
        index (int): Index of the graph in ``store``. (default: 0)
    """

    name: str
    store: GraphStore | None = None
    error: str = ""
    is_molecule: bool = False
    unseen_values: str = ""
    truncated: str = ""
    index: int = 0

    @property
    def num_nodes(self) -> int:
        """Number of nodes; 0 with an ``error``."""
        if self.store is None:
            return 0
        first, end = self.store.host_node_ptr[self.index : self.index + 2].tolist()
        return int(end - first)


@dataclass(frozen=True, eq=False)
class Molecules:
    """Molecules of several requests that were read together.

    Args:
        by_smiles (dict): Each with its SMILES as its name.
        requests (frozenset): Indices of the requests that list no other molecules.
    """

    by_smiles: Mapping[str, RequestGraph]
    requests: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class _Reader:
    """What graphs are read for: the model, the limits of the request, and the handling of unseen labels.

    ``molecules`` are those that were read before, together with those of other requests.
    """

    fitted: FittedModel
    limits: Limits
    unseen: UnseenPolicy
    molecules: Mapping[str, RequestGraph]

    @property
    def recipe(self) -> FeatureRecipe:
        return self.fitted.recipe


def read_request(
    content_type: str,
    body: bytes,
    fitted: FittedModel,
    limits: Limits,
    *,
    column: str = "smiles",
    unseen: UnseenPolicy = "refuse",
    molecules: Molecules | None = None,
) -> list[RequestGraph]:
    """The graphs of a request, in its order; a graph that the model cannot read has an ``error``.

    Args:
        content_type (str): Content type of the request.
        body (bytes): The complete body.
        fitted (FittedModel): The model that the graphs are for.
        limits (Limits): Limits of the request.
        column (str): Column of a table with the SMILES. (default: ``"smiles"``)
        unseen (str): As in :meth:`FittedModel.scores`. (default: ``"refuse"``)
        molecules (Molecules, optional): Those of :func:`read_molecules`; others are read here. (default: none)

    Raises:
        RequestError: 415 for an unknown format, 413 for too many graphs or nodes, 422 for an invalid form.
        DataError: If a file cannot be read at all.
    """
    reader = _Reader(fitted, limits, unseen, {} if molecules is None else molecules.by_smiles)
    files = read_uploads(content_type, body)
    edge_tables = [file for file in files if _EDGE_TABLES.fullmatch(file.name)]
    if len(edge_tables) < 2:
        edge_tables = []
    graphs = _read_tables(edge_tables, reader, column) if edge_tables else []
    for file in files:
        if file not in edge_tables:
            graphs += _read_file(file, reader, column)
    _check_count(len(graphs), limits)
    total = sum(graph.num_nodes for graph in graphs)
    if total > limits.max_total_nodes:
        message = f"expected at most {limits.max_total_nodes:,} nodes in all graphs together, found {total:,}"
        raise RequestError(413, f"request: {message}. Send several requests.")
    return graphs


def read_molecules(requests: Sequence[tuple[str, bytes]], fitted: FittedModel, limits: Limits) -> Molecules:
    """The molecules of all requests that list SMILES in JSON, read together.

    For a molecule or two, the call takes most of the time. Molecules of other requests, and all if they cannot be read
    together, are left to :func:`read_request`.

    Args:
        requests (sequence): Content type and body of each request.
        fitted (FittedModel): The model that the molecules are for.
        limits (Limits): Limits of each request.
    """
    listed = [_listed_smiles(content_type, body, limits) for content_type, body in requests]
    texts = [text for smiles in listed for text in smiles]
    try:
        by_smiles = _parse_smiles(texts, _Reader(fitted, limits, "refuse", {}))
    except GraphcapsError:
        return Molecules({})
    return Molecules(by_smiles, frozenset(index for index, smiles in enumerate(listed) if smiles))


def _listed_smiles(content_type: str, body: bytes, limits: Limits) -> list[str]:
    """The texts of ``{"smiles": […]}``; none if the request has another form, is invalid or too large."""
    try:
        (file,) = read_uploads(content_type, body)
        values = parse_json(file.content, file.name) if file.format == ".json" else None
    except (GraphcapsError, ValueError):
        return []
    listed = values.get("smiles") if isinstance(values, Mapping) and len(values) == 1 else None
    if not isinstance(listed, list) or len(listed) > limits.max_graphs:
        return []
    return [text for text in listed if isinstance(text, str)]


def _check_count(count: int, limits: Limits, where: str = "request") -> None:
    """Rejects a request with no graph or too many, before they are parsed."""
    if count > limits.max_graphs:
        fix = "Send several requests, or start the server with a larger --max-graphs."
        raise RequestError(
            413, f"{where}: expected at most {limits.max_graphs:,} graphs, found {count:,}. {fix}"
        )
    if not count:
        raise RequestError(422, f"{where}: expected at least one graph, found none.")


# Formats of files


def _read_file(file: Upload, reader: _Reader, column: str) -> list[RequestGraph]:
    if file.format == ".json":
        return _read_json(file.content, file.name, reader)
    if file.format == ".xml":
        return _read_xml(file, reader)
    return _read_tables([file], reader, column)


def _read_json(content: bytes, where: str, reader: _Reader) -> list[RequestGraph]:
    """Reads ``{"graphs": […]}``, ``{"smiles": […]}``, one graph, or a list of graphs."""
    values = parse_json(content, where)
    if isinstance(values, Mapping) and not isinstance(values.get("nodes"), list):
        keys = [key for key in ("graphs", "smiles") if key in values]
        if len(keys) != 1:
            found = "both" if keys else ", ".join(repr(key)[:40] for key in list(values)[:6]) or "nothing"
            raise DataError(where, "a list under 'graphs' or one under 'smiles'", found)
        listed = values[keys[0]]
        if not isinstance(listed, list):
            fix = f'Send {{"{keys[0]}": […]}}, also for a single one.'
            raise DataError(where, f"a list under '{keys[0]}'", describe_json(listed), fix=fix)
        if keys == ["smiles"]:
            _check_count(len(listed), reader.limits, where)
            names = [
                text[:_MAX_NAME_LENGTH] if isinstance(text, str) else str(number)
                for number, text in enumerate(listed, 1)
            ]
            return _from_smiles(listed, names, reader)
        values = listed
    graphs = values if isinstance(values, list) else [values]
    _check_count(len(graphs), reader.limits, where)
    return [
        _from_network(str(number), _node_link_parser(graph), reader)
        for number, graph in enumerate(graphs, start=1)
    ]


def _node_link_parser(value: Any) -> Callable[[], Any]:
    """Parses a node-link graph when called, so that an invalid one is an error of that graph alone."""

    def parse() -> Any:
        if isinstance(value, str):
            expected, found = "an object with 'nodes' and 'links'", f"the text '{shorten(value, 60)}'"
            raise DataError("graph", expected, found, fix='Send SMILES as {"smiles": […]}.')
        return parse_networks(json.dumps([value]).encode(), ".json", "graph")[0]

    return parse


def _read_xml(file: Upload, reader: _Reader) -> list[RequestGraph]:
    """Reads GraphML or GEXF."""
    networks = parse_networks(file.content, xml_format(file.content, file.name)[0], file.name)
    _check_count(len(networks), reader.limits)
    several = len(networks) > 1
    return [
        _from_network(f"{file.name}#{number}" if several else file.name, network, reader)
        for number, network in enumerate(networks, start=1)
    ]


def _read_tables(files: Sequence[Upload], reader: _Reader, column: str) -> list[RequestGraph]:
    """Reads a table of molecules, or an edge list in one table or with tables of nodes and graphs."""
    from graphcaps.data.readers.edge_lists import EDGE_COLUMNS
    from graphcaps.data.readers.row_rules import read_ids
    from graphcaps.data.readers.text_tables import open_table

    stems = [Path(file.name).stem.lower() for file in files]
    if len(files) > 1 and "edges" not in stems:
        raise RequestError(
            422, f"upload: expected the table edges.csv beside {' and '.join(stems)}, found none."
        )
    with tempfile.TemporaryDirectory(prefix="graphcaps-") as folder, _without_folder(folder):
        paths = []
        for file in files:
            # The readers take files. A name from the request is used only if it is one of ours.
            suffix = ".tsv" if file.name.lower().endswith(".tsv") else ".csv"
            is_edge_table = _EDGE_TABLES.fullmatch(file.name) is not None
            paths.append(Path(folder) / (file.name.lower() if is_edge_table else f"request{suffix}"))
            paths[-1].write_bytes(file.content)
        if len(files) == 1:
            table = open_table(paths[0])
            if not all(table.find_column(name) is not None for name in EDGE_COLUMNS):
                fix = (
                    "Name the column of SMILES with ?column=NAME; "
                    f"an edge list has the columns {', '.join(EDGE_COLUMNS)}."
                )
                smiles = table.column_index(column, fix)
                texts = [row[smiles] for row in table.rows]
                ids = table.find_column("id")
                has_ids = ids is not None and any(row[ids] for row in table.rows)
                names = read_ids(table).names if has_ids else texts  # ids as in predict
                return _from_smiles(texts, [name[:_MAX_NAME_LENGTH] for name in names], reader)
        path = Path(folder) if len(files) > 1 else paths[0]
        read = read_graphs(path, owner="predict", recipe=reader.recipe)
    assert read.metadata is not None
    _check_count(len(read.store), reader.limits)
    return [
        replace(_check(read.store[index], reader)[0], name=name)
        for index, name in enumerate(read.metadata.ids)
    ]


@contextmanager
def _without_folder(folder: str) -> Iterator[None]:
    """Makes messages name the files of a request without the temporary folder that they are read from."""
    try:
        yield
    except DataError as error:
        where = error.where.removeprefix(folder).lstrip(os.sep) or "request"
        raise DataError(where, error.expected, error.found, line=error.line, fix=error.fix) from error


# From SMILES and networkx graphs to graphs that the model can read


def _from_smiles(texts: Sequence[Any], names: Sequence[str], reader: _Reader) -> list[RequestGraph]:
    """Molecules, read with the featurizer of the model."""
    _check_count(len(texts), reader.limits)
    valid = [text for text in texts if isinstance(text, str) and text not in reader.molecules]
    molecules = {**reader.molecules, **_parse_smiles(valid, reader)} if valid else reader.molecules
    graphs = []
    for text, name in zip(texts, names, strict=True):
        if isinstance(text, str):
            graphs.append(replace(molecules[text], name=name))
        else:
            reason = f"expected text, found {shorten(json.dumps(text), 60)}"
            graphs.append(RequestGraph(name, error=_invalid_smiles(reason)))
    return graphs


def _parse_smiles(texts: Sequence[str], reader: _Reader) -> dict[str, RequestGraph]:
    """The molecule of each SMILES, in one call of RDKit and one check against the model.

    Which labels are unseen does not depend on the request: molecules with the featurizer of the model have none.
    """
    if not texts:
        return {}
    listed, recipe = list(dict.fromkeys(texts)), reader.recipe
    featurizer = find_featurizer(recipe.featurizer or DEFAULT_FEATURIZER)
    fragments = (recipe.fragments if recipe.featurizer is not None else None) or "all"
    parsed = parse_molecules(listed, featurizer, fragments, name=_THIS)
    found = iter(_check(parsed.store, reader, is_molecule=True) if len(parsed.store) else ())
    return {
        text: RequestGraph(text, error=_invalid_smiles(parsed.problems[index]))
        if index in parsed.problems
        else replace(next(found), name=text)
        for index, text in enumerate(listed)
    }


def _invalid_smiles(reason: str) -> str:
    return _shorten(f"it is not a valid SMILES: {reason}")


def _from_network(name: str, source: Any, reader: _Reader) -> RequestGraph:
    """A networkx graph, or the one that a function returns; what it raises is the graph's error."""
    try:
        network = source() if callable(source) else source
        if network.number_of_nodes() > reader.limits.max_nodes:
            return RequestGraph(name, error=_too_many_nodes(network.number_of_nodes(), reader.limits))
        store = read_graphs(network, owner="predict", recipe=reader.recipe).store
        return replace(_check(store, reader)[0], name=name)
    except MissingExtraError:
        raise
    except GraphcapsError as error:
        return RequestGraph(name, error=_shorten(str(error)))
    except Exception:  # an unexpected failure is an error of this graph alone; the log has the traceback
        traceback.print_exc()
        return RequestGraph(name, error="it cannot be read as a graph")


def _check(store: GraphStore, reader: _Reader, *, is_molecule: bool = False) -> list[RequestGraph]:
    """The graphs of a store, without names, and with the reason why one cannot be used.

    They share a store with only the columns that the model uses.
    """
    recipe, limits = reader.recipe, reader.limits
    sizes: list[int] = np.diff(store.host_node_ptr.numpy()).tolist()
    too_large = {
        index: _too_many_nodes(size, limits) for index, size in enumerate(sizes) if size > limits.max_nodes
    }
    if len(too_large) == len(sizes):
        return [RequestGraph("", error=error) for error in too_large.values()]
    try:
        named = store if store.name == _THIS else store.with_unchecked(name=_THIS)
        checked = reader.fitted.check(named, unseen=reader.unseen, owner="predict")
    except GraphcapsError as error:
        return [
            RequestGraph("", error=too_large.get(index, _shorten(str(error)))) for index in range(len(sizes))
        ]
    errors = {index: _shorten(reason) for index, reason in checked.errors.items()} | too_large
    store = checked.store
    selected = store.with_unchecked(
        name="request",
        y=None,
        class_names=(),
        node_labels=store.node_labels if recipe.labels and recipe.label_values else None,
        node_attributes=store.node_attributes if recipe.attributes and recipe.num_attributes else None,
        edge_labels=store.edge_labels if recipe.edge_label_values else None,
        edge_attributes=None,
        truth={name: values for name, values in store.truth.items() if name == "element"},
        featurizer=recipe.featurizer,
    )
    return [
        RequestGraph("", error=errors[index])
        if index in errors
        else RequestGraph(
            "",
            selected,
            is_molecule=is_molecule,
            unseen_values=_shorten(checked.others[index]) if index in checked.others else "",
            truncated=checked.truncated.get(index, ""),
            index=index,
        )
        for index in range(len(sizes))
    ]


def _shorten(reason: str) -> str:
    """A reason as part of a sentence, on one line, and cut where it quotes long input."""
    line = " ".join(reason.split()).rstrip(".")
    return line if len(line) <= _MAX_ERROR_LENGTH else f"{line[:_MAX_ERROR_LENGTH]} …"


def _too_many_nodes(nodes: int, limits: Limits) -> str:
    return f"it has {nodes:,} nodes; the limit is {limits.max_nodes:,}"
