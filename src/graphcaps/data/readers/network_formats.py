"""Files of networks: GraphML, GEXF and node-link JSON, each read to networkx graphs.

A GraphML file may hold several graphs, a JSON file one, a list of them, or a list under ``graphs``. Node-link
JSON has ``nodes``, each with an ``id``, and ``links`` (or ``edges``), each with ``source`` and ``target``; anything
else in them is an entry of the node or edge, ``graph`` holds entries of the graph, and ``directed`` says whether
the links have a direction.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from graphcaps.errors import DataError

if TYPE_CHECKING:
    from networkx import Graph

__all__ = ["NETWORK_PARSERS", "parse_json", "parse_networks", "read_network_file", "xml_format"]


_DEEPEST = 64
_ROOTS = {"graphml": ".graphml", "gexf": ".gexf"}


class _Found(Exception):
    """What ends the look, in words."""


def xml_format(content: bytes, where: str) -> tuple[str, str]:
    """The ending that fits the outermost element, ``".graphml"`` or ``".gexf"``, and that element's namespace.

    Raises:
        DataError: If it is not well-formed, has a document type, is nested too deep, or is something else.
    """
    depth, root = 0, ""

    def start(name: str, _: object) -> None:
        nonlocal depth, root
        depth += 1
        root = root or name
        if depth > _DEEPEST:
            raise _Found("elements nested too deep")

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise _Found("a document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DataError(where, "XML", f"'{expat.ErrorString(error.code)}'", line=error.lineno) from error
    except _Found as error:
        raise DataError(where, "plain GraphML or GEXF", f"{error}", line=parser.CurrentLineNumber) from error
    except (ValueError, LookupError) as error:  # an encoding that cannot be read
        raise DataError(where, "XML in UTF-8", "another encoding") from error
    space, _, name = root.rpartition(" ")
    if name.lower() not in _ROOTS:
        raise DataError(where, "GraphML or GEXF", f"an element '{name[:40]}'")
    return _ROOTS[name.lower()], space


_GRAPH_ENTRIES = ("directed", "multigraph", "nodes", "links", "edges", "graph")
_GRAPHML_SPACE = "http://graphml.graphdrawing.org/xmlns"
_GEXF_SPACES = {  # where networkx looks for each version
    "1.1draft": "http://www.gexf.net/1.1draft",
    "1.2draft": "http://www.gexf.net/1.2draft",
    "1.3": "http://gexf.net/1.3",
}


def read_network_file(path: str | Path) -> list[Graph]:
    """The graphs of a file, in its order.

    Raises:
        DataError: If it cannot be read, or is not what its ending says; with the line where that is known.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(path, "a file that can be read", f"'{error.strerror or error}'") from error
    return parse_networks(content, path.suffix, path.name)


def parse_networks(content: bytes, ending: str, where: str) -> list[Graph]:
    """The graphs in the content of a file with that ending (``".graphml"``, ``".gexf"`` or ``".json"``)."""
    parse = NETWORK_PARSERS.get(ending.lower())
    if parse is None:
        raise DataError(where, f"a file that ends in {', '.join(NETWORK_PARSERS)}", f"'{ending}'")
    graphs = parse(content, where)
    if not graphs:
        raise DataError(where, "at least one graph", "none")
    return graphs


def _graphml(content: bytes, where: str) -> list[Graph]:
    from networkx.readwrite.graphml import GraphMLReader

    space = _namespace(content, where, ".graphml", "GraphML")
    if space != _GRAPHML_SPACE:  # networkx would find nothing in it
        raise DataError(where, f"GraphML in the namespace {_GRAPHML_SPACE}", f"'{space[:80]}'")
    return _xml(where, "GraphML", lambda: list(GraphMLReader()(path=io.BytesIO(content))))


def _gexf(content: bytes, where: str) -> list[Graph]:
    import networkx as nx

    space = _namespace(content, where, ".gexf", "GEXF")
    version = next((name for name in _GEXF_SPACES if space.rstrip("/").endswith(f"gexf.net/{name}")), None)
    if version is None:
        listed = ", ".join(_GEXF_SPACES)
        raise DataError(where, f"GEXF of the versions {listed}", f"the namespace '{space[:80]}'")
    if space != _GEXF_SPACES[version]:  # programs write it with and without www
        content = content.replace(f'"{space}"'.encode(), f'"{_GEXF_SPACES[version]}"'.encode())
        content = content.replace(f"'{space}'".encode(), f"'{_GEXF_SPACES[version]}'".encode())
    graph = _xml(where, "GEXF", lambda: [nx.read_gexf(io.BytesIO(content), version=version)])
    for _, entry in graph[0].nodes(data=True):
        # A name for people, which every GEXF node has: no category unless it is asked for as "name".
        entry["name"] = entry.pop("label", None)
    return graph


def _namespace(content: bytes, where: str, ending: str, what: str) -> str:
    """The namespace of a file that is what its ending says; one that is not, or not harmless, is refused."""
    found, space = xml_format(content, where)
    if found != ending:
        raise DataError(where, f"a {what} file", f"one that should end in {found}")
    return space


def _xml(where: str, what: str, read: Callable[[], list[Graph]]) -> list[Graph]:
    """Runs a reader of networkx; whatever it trips over is told as a fault of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about keys without a type, which are read as text
            return read()
    except Exception as error:  # networkx raises all kinds of them at a file that is not what it expects
        raise DataError(where, f"a {what} file", f"one that cannot be read ({error})") from error


def parse_json(content: bytes, where: str) -> Any:
    """What JSON says, or a sentence on why it is none."""
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(where, "text in UTF-8", "other bytes") from error
    except json.JSONDecodeError as error:
        raise DataError(where, "JSON", f"'{error.msg}'", line=error.lineno) from error
    except RecursionError as error:
        raise DataError(where, "JSON", "brackets nested too deep") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise DataError(where, "JSON with numbers of ordinary size", "a longer one") from error


def _json(content: bytes, where: str) -> list[Graph]:
    values = parse_json(content, where)
    if isinstance(values, dict) and isinstance(values.get("graphs"), list):
        values = values["graphs"]
    listed = values if isinstance(values, list) else [values]
    return [
        _node_link(value, where if len(listed) == 1 else f"{where}, graph {g}")
        for g, value in enumerate(listed)
    ]


def _node_link(value: Any, where: str) -> Graph:
    import networkx as nx

    if not isinstance(value, dict) or not isinstance(value.get("nodes"), list):
        raise DataError(where, "a graph with lists of 'nodes' and 'links'", _kind(value))
    links = value.get("links", value.get("edges", []))
    if not isinstance(links, list):
        raise DataError(where, "a list under 'links'", _kind(links))
    made = nx.MultiDiGraph() if value.get("directed") is True else nx.MultiGraph()
    entries = value.get("graph", {})
    made.graph.update(dict(entries) if isinstance(entries, dict) else {})
    made.graph.update({key: entry for key, entry in value.items() if key not in _GRAPH_ENTRIES})
    for place, node in enumerate(value["nodes"]):
        if not isinstance(node, dict) or not _names_node(node.get("id")):
            raise DataError(where, f"an 'id' (text or number) at node {place}", _kind(node))
        if node["id"] in made:
            raise DataError(where, "every node once", f"{node['id']!r} again, at node {place}")
        # As a dictionary: an entry may be called as an argument of networkx is.
        made.add_nodes_from([(node["id"], {str(key): entry for key, entry in node.items() if key != "id"})])
    for place, link in enumerate(links):
        ends = (link.get("source"), link.get("target")) if isinstance(link, dict) else (None, None)
        for end in ends:
            if not _names_node(end) or end not in made:
                raise DataError(where, f"two nodes of the graph at link {place}", repr(end))
        entries = {str(key): entry for key, entry in link.items() if key not in ("source", "target", "key")}
        made.add_edges_from([(*ends, entries)])
    return made


def _names_node(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"one with {', '.join(repr(key) for key in list(value)[:6]) or 'nothing'}"
    return {list: "a list", str: "a text", type(None): "nothing"}.get(type(value), repr(value))


NETWORK_PARSERS: dict[str, Callable[[bytes, str], list[Any]]] = {
    ".graphml": _graphml,
    ".gexf": _gexf,
    ".json": _json,
}
"""Readers by the ending of the file."""
