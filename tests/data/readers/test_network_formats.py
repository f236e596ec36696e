"""XML is checked before it is parsed: format, document type, nesting depth, in every encoding."""

from __future__ import annotations

import io
import re
from typing import Any

import networkx as nx
import pytest

from graphcaps.data.readers.network_formats import parse_networks, xml_format
from graphcaps.errors import DataError

BOMB = """<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>"""
OUTSIDE = """<!DOCTYPE x SYSTEM "file:///etc/hostname">"""
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")


def body(ending: str, version: str = "1.2draft") -> str:
    """A path of three nodes with a letter beyond ASCII, without the declaration."""
    graph, buffer = nx.path_graph(3), io.BytesIO()
    nx.set_node_attributes(graph, {0: "a", 1: "b", 2: "ü"}, "label")
    if ending == ".graphml":
        nx.write_graphml(graph, buffer)
    else:
        nx.write_gexf(graph, buffer, version=version)
    return buffer.getvalue().decode().split("?>", 1)[1]


def encoded(text: str, encoding: str) -> bytes:
    declared = "UTF-16" if "16" in encoding else "UTF-8"
    return f'<?xml version="1.0" encoding="{declared}"?>{text}'.encode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("ending", [".graphml", ".gexf"])
def test_plain_files_are_read_in_every_encoding(ending: str, encoding: str) -> None:
    content = encoded(body(ending), encoding)
    assert xml_format(content, "n")[0] == ending
    (graph,) = parse_networks(content, ending, "n")
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (3, 2)
    assert graph.nodes["2"]["label" if ending == ".graphml" else "name"] == "ü"


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("head", [BOMB, OUTSIDE])
@pytest.mark.parametrize("ending", [".graphml", ".gexf"])
def test_a_document_type_is_rejected_in_every_encoding(ending: str, head: str, encoding: str) -> None:
    content = encoded(head + body(ending).replace(">a<", ">&b;<"), encoding)
    with pytest.raises(
        DataError, match=r"^n, line 1: expected plain GraphML or GEXF, found a document type declaration\.$"
    ):
        parse_networks(content, ending, "n")


@pytest.mark.parametrize("version", ["1.1draft", "1.2draft", "1.3"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_versions_of_gexf(version: str, encoding: str) -> None:
    content = encoded(body(".gexf", version), encoding)
    assert xml_format(content, "n")[1].endswith(version)
    assert parse_networks(content, ".gexf", "n")[0].number_of_edges() == 2


@pytest.mark.parametrize(
    "space",
    [
        "http://www.gexf.net/1.3",
        "https://gexf.net/1.3",
        "http://gexf.net/1.2draft",
        "http://www.gexf.net/1.2draft/",
    ],
)
def test_variants_of_the_gexf_namespace(space: str) -> None:
    text = body(".gexf", "1.3" if "1.3" in space else "1.2draft")
    text = re.sub(r'xmlns="[^"]*"', f'xmlns="{space}"', text, count=1)
    assert parse_networks(encoded(text, "utf-8"), ".gexf", "n")[0].number_of_edges() == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "n, line 1: expected valid XML, found an error at column 1 (no element found)."),
        (
            b"<graphml>" * 100,
            "n, line 1: expected plain GraphML or GEXF, found elements that are nested too deeply.",
        ),
        (
            b'<?xml version="1.0" encoding="utf-7"?><graphml/>',
            "n: expected XML in UTF-8, found another encoding.",
        ),
        (b"<a:graphml/>", "n, line 1: expected valid XML, found an error at column 1 (unbound prefix)."),
    ],
)
def test_invalid_xml_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        xml_format(content, "n")
    assert str(caught.value) == message


def test_a_namespace_prefix_is_accepted() -> None:
    space: Any = b"http://graphml.graphdrawing.org/xmlns"
    assert xml_format(b'<g:graphml xmlns:g="%s"/>' % space, "n") == (".graphml", space.decode())
