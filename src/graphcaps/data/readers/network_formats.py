"""File formats of networks: GraphML, GEXF and node-link JSON, each parsed to networkx graphs.

A GraphML file can hold several graphs. A JSON file holds one graph, a list of graphs, or a list under ``graphs``.
Node-link JSON has ``nodes``, each with an ``id``, and ``links`` (or ``edges``), each with ``source`` and ``target``.
All their other entries are attributes of the node or edge, ``graph`` holds attributes of the graph, and ``directed``
says whether the links are directed.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat

from graphcaps._io.read_limit import check_json, check_memory, read_bounded
from graphcaps.errors import DataError, shorten

if TYPE_CHECKING:
    from networkx import Graph

__all__ = [
    "NETWORK_PARSERS",
    "XmlFormat",
    "describe_json",
    "parse_json",
    "parse_networks",
    "read_network_file",
    "xml_format",
]

_MAX_XML_DEPTH = 64
_NODE_BYTES = (
    1100  # that networkx takes for a node or an edge, with the element or object that it is parsed from
)
_ATTRIBUTE_BYTES = 150
_XML_ROOTS = {"graphml": ".graphml", "gexf": ".gexf"}
_GRAPHML_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_GEXF_NAMESPACES = {  # those that networkx accepts, by version
    "1.1draft": "http://www.gexf.net/1.1draft",
    "1.2draft": "http://www.gexf.net/1.2draft",
    "1.3": "http://gexf.net/1.3",
}
_JSON_ERRORS = {  # beginnings of messages of Python, and our words
    "Expecting value": "a value is missing",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing",
    "Expecting property name": "a name in double quotes is missing",
    "Illegal trailing comma": "a value is missing after a comma",  # Python 3.13
    "Unterminated string": "a text that begins here has no closing quotation mark",
    "Invalid control character": "a text has a line break or another control character",
    "Invalid \\": "a text has an invalid character after a backslash",
    "Extra data": "more text follows after the end",
}
_RESERVED_KEYS = ("directed", "multigraph", "nodes", "links", "edges", "graph")  # of node-link JSON


class XmlFormat(NamedTuple):
    """Format of an XML file: its usual ``suffix``, and the ``namespace`` of the root element."""

    suffix: str
    namespace: str


def read_network_file(path: str | Path) -> list[Graph]:
    """Reads the graphs of a file, in order.

    Raises:
        DataError: If the file cannot be read or does not match its suffix; with the line where it is known.
    """
    path = Path(path)
    try:
        content = read_bounded(path)
    except OSError as error:
        raise DataError(path, f"file cannot be read ({error.strerror or error})") from error
    return parse_networks(content, path.suffix, str(path))


def parse_networks(content: bytes, suffix: str, where: str) -> list[Graph]:
    """Parses the graphs of a file.

    Args:
        content (bytes): Content of the file.
        suffix (str): ``".graphml"``, ``".gexf"`` or ``".json"``.
        where (str): Name or path of the file for messages.

    Raises:
        DataError: If the content is invalid, or holds no graph.
    """
    parse = NETWORK_PARSERS.get(suffix.lower())
    if parse is None:
        raise DataError(where, f"a file that ends in {', '.join(NETWORK_PARSERS)}", f"'{suffix}'")
    graphs = parse(content, where)
    if not graphs:
        raise DataError(where, "at least one graph", "none")
    return graphs


def parse_json(content: bytes, where: str) -> Any:
    """Parses JSON in UTF-8.

    Raises:
        DataError: If it is invalid, with the line.
    """
    check_json(content, where, per_object=_NODE_BYTES)
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(where, "text in UTF-8", "other bytes") from error
    except json.JSONDecodeError as error:
        raise DataError(where, "valid JSON", _json_error(error), line=error.lineno) from error
    except RecursionError as error:
        raise DataError(where, "JSON", "brackets that are nested too deeply") from error
    except ValueError as error:  # Python limits the digits of an integer
        raise DataError(where, "JSON with numbers of ordinary size", "a longer number") from error


def xml_format(content: bytes, where: str) -> XmlFormat:
    """Detects GraphML or GEXF by the root element, and rejects XML that is unsafe to parse.

    networkx parses with the standard library, which expands entities. A document type declaration, the only place
    where entities can be declared, is therefore rejected, and so is deep nesting.

    Raises:
        DataError: If the XML is not well-formed, has a document type declaration, is nested more than 64 levels deep,
            or has another root element.
    """
    tags = content.count(b"<") - content.count(b"</")
    check_memory(where, 3 * len(content) + _NODE_BYTES * tags + _ATTRIBUTE_BYTES * content.count(b"="))
    depth, root = 0, ""

    def start(name: str, _: object) -> None:
        nonlocal depth, root
        depth += 1
        root = root or name
        if depth > _MAX_XML_DEPTH:
            raise _UnsafeXml("elements that are nested too deeply")

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def reject_doctype(*_: object) -> None:
        raise _UnsafeXml("a document type declaration")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = reject_doctype
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        found = f"an error at column {error.offset + 1} ({expat.ErrorString(error.code)})"
        raise DataError(where, "valid XML", found, line=error.lineno) from error
    except _UnsafeXml as error:
        raise DataError(where, "plain GraphML or GEXF", f"{error}", line=parser.CurrentLineNumber) from error
    except (ValueError, LookupError) as error:  # an encoding that expat does not support
        raise DataError(where, "XML in UTF-8", "another encoding") from error
    namespace, _, name = root.rpartition(" ")
    if name.lower() not in _XML_ROOTS:
        raise DataError(where, "GraphML or GEXF", f"the root element '{name[:40]}'")
    return XmlFormat(_XML_ROOTS[name.lower()], namespace)


class _UnsafeXml(Exception):
    """What makes XML unsafe to parse."""


def _parse_graphml(content: bytes, where: str) -> list[Graph]:
    from networkx.readwrite.graphml import GraphMLReader

    namespace = _namespace(content, where, ".graphml", "GraphML")
    if namespace != _GRAPHML_NAMESPACE:  # networkx would find no graphs
        raise DataError(where, f"GraphML in the namespace {_GRAPHML_NAMESPACE}", f"'{namespace[:80]}'")
    return _parse_xml(where, "GraphML", lambda: list(GraphMLReader()(path=io.BytesIO(content))))


def _parse_gexf(content: bytes, where: str) -> list[Graph]:
    import networkx as nx

    space = _namespace(content, where, ".gexf", "GEXF")
    version = next(
        (name for name in _GEXF_NAMESPACES if space.rstrip("/").endswith(f"gexf.net/{name}")), None
    )
    if version is None:
        expected = f"GEXF of the versions {', '.join(_GEXF_NAMESPACES)}"
        raise DataError(where, expected, f"the namespace '{space[:80]}'")
    if space != _GEXF_NAMESPACES[version]:  # programs write it with and without www
        content = content.replace(f'"{space}"'.encode(), f'"{_GEXF_NAMESPACES[version]}"'.encode())
        content = content.replace(f"'{space}'".encode(), f"'{_GEXF_NAMESPACES[version]}'".encode())
    graphs = _parse_xml(where, "GEXF", lambda: [nx.read_gexf(io.BytesIO(content), version=version)])
    for _, attributes in graphs[0].nodes(data=True):
        # Every GEXF node has a display name under "label". It is no category unless it is requested as "name".
        attributes["name"] = attributes.pop("label", None)
    return graphs


def _namespace(content: bytes, where: str, suffix: str, format_name: str) -> str:
    """The namespace of a file that must have the format of its suffix."""
    found = xml_format(content, where)
    if found.suffix != suffix:
        raise DataError(where, f"a {format_name} file", f"one that should end in {found.suffix}")
    return found.namespace


def _parse_xml(where: str, format_name: str, parse: Callable[[], list[Graph]]) -> list[Graph]:
    """Runs a parser of networkx and turns any exception into a :class:`DataError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about keys without a type, which are read as text
            return parse()
    except Exception as error:  # networkx raises many types of exceptions at unexpected content
        reason = "" if str(error) in ("", "None") else f" ({str(error)[:200]})"
        raise DataError(where, f"a {format_name} file", f"one that cannot be read{reason}") from error


def _parse_node_link(content: bytes, where: str) -> list[Graph]:
    values = parse_json(content, where)
    if isinstance(values, dict) and isinstance(values.get("graphs"), list):
        values = values["graphs"]
    listed = values if isinstance(values, list) else [values]
    return [
        _node_link_graph(value, where if len(listed) == 1 else f"{where}, graph {g}")
        for g, value in enumerate(listed)
    ]


def _node_link_graph(value: Any, where: str) -> Graph:
    import networkx as nx

    if not isinstance(value, dict) or not isinstance(value.get("nodes"), list):
        raise DataError(where, "a graph with lists of 'nodes' and 'links'", describe_json(value))
    links = value.get("links", value.get("edges", []))
    if not isinstance(links, list):
        raise DataError(where, "a list under 'links'", describe_json(links))
    graph = nx.MultiDiGraph() if value.get("directed") is True else nx.MultiGraph()
    attributes = value.get("graph", {})
    graph.graph.update(dict(attributes) if isinstance(attributes, dict) else {})
    graph.graph.update({key: entry for key, entry in value.items() if key not in _RESERVED_KEYS})
    for index, node in enumerate(value["nodes"]):
        if not isinstance(node, dict) or not _is_node_id(node.get("id")):
            raise DataError(where, f"an 'id' (text or number) at node {index}", describe_json(node))
        if node["id"] in graph:
            raise DataError(where, "every node once", f"{node['id']!r} again, at node {index}")
        # A dictionary, because an attribute can have the name of an argument of networkx.
        graph.add_nodes_from([(node["id"], {str(key): entry for key, entry in node.items() if key != "id"})])
    for index, link in enumerate(links):
        expected = f"two nodes of the graph, 'source' and 'target', at link {index}"
        if not isinstance(link, dict):
            raise DataError(where, expected, describe_json(link))
        for key in ("source", "target"):
            if link.get(key) is None:
                raise DataError(where, expected, f"no '{key}'")
            if not _is_node_id(link[key]) or link[key] not in graph:
                found = (
                    f"{link[key]!r}, which is no node" if _is_node_id(link[key]) else describe_json(link[key])
                )
                raise DataError(where, expected, f"the '{key}' {found}")
        ends = (link["source"], link["target"])
        attributes = {
            str(key): entry for key, entry in link.items() if key not in ("source", "target", "key")
        }
        graph.add_edges_from([(*ends, attributes)])
    return graph


def _is_node_id(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def describe_json(value: Any) -> str:
    """What a value of JSON is, in words: "the number 5", "a list", "an object with 'nodes'"."""
    if isinstance(value, dict):
        return f"an object with {', '.join(repr(key) for key in list(value)[:6]) or 'no keys'}"
    if isinstance(value, str):
        return f"the text {shorten(repr(value), 60)}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {json.dumps(value)[:60]}"
    return "a list" if isinstance(value, list) else json.dumps(value)  # true, false or null


def _json_error(error: json.JSONDecodeError) -> str:
    """What is wrong with a text that is not JSON, and in which column."""
    reason = next((words for name, words in _JSON_ERRORS.items() if error.msg.startswith(name)), error.msg)
    if error.pos >= len(error.doc.rstrip()):
        reason = "the text ends too early" if error.doc.strip() else "the text is empty"
    return f"an error at column {error.colno} ({reason})"


NETWORK_PARSERS: dict[str, Callable[[bytes, str], list[Any]]] = {
    ".graphml": _parse_graphml,
    ".gexf": _parse_gexf,
    ".json": _parse_node_link,
}
"""Parser of each format, by the suffix of the file."""
