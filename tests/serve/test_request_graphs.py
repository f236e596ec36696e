"""Bodies of requests, kind ones and hostile ones; what cannot be read is one sentence, and the rest is read."""

from __future__ import annotations

import io
import json
from typing import Any

import networkx as nx
import pytest

from graphcaps.errors import GraphcapsError
from graphcaps.serve.limits import Limits, Refused
from graphcaps.serve.request_graphs import Item, read_request
from tests.serve.models import molecule_model, node_link
from tests.small_models import labelled, labelled_model, planted, small_model

GRAPH = node_link(planted(), 0)


def read(
    body: bytes | str | object, kind: str = "application/json", limits: Limits | None = None, **options: Any
) -> list[Item]:
    content = (
        body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    )
    model = options.pop("model", small_model())
    return read_request(kind, content, model.recipe, limits or Limits(), **options)


def refused(*arguments: Any, **settings: Any) -> str:
    with pytest.raises(GraphcapsError) as caught:
        read(*arguments, **settings)
    told = str(caught.value)
    assert "\n" not in told
    assert "/tmp" not in told
    return told


def upload(*files: tuple[str, bytes], boundary: str = "cut") -> tuple[bytes, str]:
    parts = [
        b'--%s\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n'
        % (boundary.encode(), name.encode(), content)
        for name, content in files
    ]
    return b"".join(parts) + b"--%s--\r\n" % boundary.encode(), f"multipart/form-data; boundary={boundary}"


def as_xml(write: Any, graph: int = 0) -> bytes:
    plain, buffer = nx.Graph(), io.BytesIO()
    plain.add_edges_from((link["source"], link["target"]) for link in node_link(planted(), graph)["links"])
    write(plain, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "body", [{"graphs": [GRAPH]}, GRAPH, [GRAPH], {"nodes": GRAPH["nodes"], "edges": GRAPH["links"]}]
)
def test_json_in_all_its_forms(body: object) -> None:
    (item,) = read(body)
    assert item.error == ""
    assert item.store.num_nodes == len(GRAPH["nodes"])
    assert item.store.neighbours.numel() == 2 * len(GRAPH["links"])


def test_labels_and_attributes_arrive() -> None:
    (item,) = read(node_link(labelled(), 3), model=labelled_model())
    own = labelled()[3]
    assert (item.store.node_labels == own.node_labels).all()
    assert (item.store.node_attributes == own.node_attributes).all()


def test_one_bad_graph_does_not_spoil_the_rest() -> None:
    model = labelled_model()
    good = node_link(labelled(), 0)
    bad: list[Any] = [
        {"nodes": []},
        {"nodes": [{"id": 0}, {"id": 0}], "links": []},
        {"nodes": [{"id": 0}], "links": [{"source": 0, "target": 9}]},
        {"nodes": [{"id": [1]}], "links": []},
        7,
        None,
        GRAPH,  # without labels and attributes
        {"nodes": [{"id": 0, "label": 10**100, "attributes": [0.5, 1]}], "links": []},
        {"nodes": [{"id": 0, "label": 1, "attributes": [0.5, float("nan")]}], "links": []},
        {"nodes": [{"id": 0, "label": 1, "attributes": [1e400, 1]}], "links": []},
        {"nodes": [{"id": 0, "label": {}, "attributes": "no"}], "links": []},
    ]
    items = read({"graphs": [good, *bad, good]}, model=model)
    assert [bool(item.error) for item in items] == [False, *[True] * len(bad), False]
    for item in items:
        assert "Traceback" not in item.error
        assert len(item.error) < 300


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "nothing",
        "[" * 100_000,
        '{"graphs": ' * 2000,
        "9" * 10_000,
        '{"graphs": {}}',
        '{"smiles": "CCO"}',
        '{"graphs": [], "smiles": []}',
        '{"graphs": []}',
        "{}",
        "[]",
        "\x00\x01",
        b"\xff\xfe\x00",
        b"\x80" * 100,
    ],
)
def test_json_that_is_not_what_it_should_be(body: bytes | str) -> None:
    assert "expected" in refused(body)


def test_smiles_and_what_is_none() -> None:
    model = molecule_model()
    items = read({"smiles": ["c1ccccc1", "xyz", "", 7, None, "C(C)(C)(C)(C)C", "CCO", "*"]}, model=model)
    assert [item.error == "" for item in items] == [True, False, False, False, False, False, True, False]
    assert [item.store.num_nodes for item in items if item.store] == [6, 3]
    assert "SMILES" in items[1].error


def test_long_smiles_are_not_tried() -> None:
    texts = ["C" * 50_000, "C" * 120, "C", "c1" + "cc" * 300 + "1"]
    items = read({"smiles": texts}, model=molecule_model(), limits=Limits(max_nodes=100))
    assert "50,000 characters, more than 5,000" in items[0].error
    assert "120 nodes" in items[1].error
    assert items[2].error == ""
    assert "kekulize" in items[3].error
    assert all(len(item.error) < 260 and len(item.name) <= 80 for item in items)


def test_a_table_of_smiles() -> None:
    model = molecule_model()
    body = "id;structure\n1;CCO\n2;nothing\n3;c1ccccc1\n"
    items = read(body, "text/csv; charset=utf-8", model=model, column="structure")
    assert [item.name for item in items] == ["line 2", "line 3", "line 4"]
    assert [item.error == "" for item in items] == [True, False, True]
    assert "column 'smiles'" in refused(body, "text/csv", model=model)


def test_an_edge_list_and_its_nodes() -> None:
    edges = b"graph,source,target\na,1,2\na,2,3\nb,x,y\n"
    items = read(edges, "text/csv")
    assert [(item.name, item.store.num_nodes) for item in items] == [("a", 3), ("b", 2)]
    nodes = b"graph,node\na,1\na,2\na,3\na,4\nb,x\nb,y\n"
    body, kind = upload(("edges.csv", edges), ("Nodes.csv", nodes))
    assert [item.store.num_nodes for item in read(body, kind)] == [4, 2]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "a",
        "a,b\n1",
        "a,b\n1,2\n1,2,3",
        '"',
        "smiles\n",
        "graph,source,target\n,,\n",
        "\x00,\n1,2",
        b"\xff\n1\n",
    ],
)
def test_tables_that_are_none(body: bytes | str) -> None:
    refused(body, "text/csv")


@pytest.mark.parametrize("write", [nx.write_graphml, nx.write_gexf])
def test_xml_of_both_kinds(write: Any) -> None:
    content = as_xml(write)
    (item,) = read(content, "application/xml")
    assert item.store.num_nodes == planted()[0].num_nodes
    for cut in (1, 40, len(content) // 2, len(content) - 3):
        refused(content[:cut], "text/xml")


BOMB = (
    '<?xml version="1.0"{}?><!DOCTYPE g [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + ']><graphml><graph><node id="&i;"/></graph></graphml>'
)
FILE = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/hostname">]><graphml>&a;</graphml>'


@pytest.mark.parametrize(
    "body",
    [
        BOMB.format("").encode(),
        BOMB.format(' encoding="utf-16"').encode("utf-16"),  # which no search through bytes finds
        FILE.encode(),
        b'<!DOCTYPE graphml SYSTEM "http://127.0.0.1:9/x.dtd"><graphml/>',
    ],
)
def test_xml_with_a_document_type_is_refused(body: bytes) -> None:
    assert "a document type" in refused(body, "application/graphml+xml")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<a>" * 100_000, "nested too deep"),
        (b"<html/>", "'html'"),
        (b"<graphml/>", "in the namespace"),
        (b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"/>', "at least one graph"),
        (
            b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="d" for="node" attr.name="d" '
            b'attr.type="int"/><graph><node id="1"><data key="d">many</data></node></graph></graphml>',
            "GraphML",
        ),
        (b"\x00\x01\x02", "XML"),
        (b'<?xml version="1.0" encoding="none-such"?><graphml/>', "XML"),
        (b'<graphml><graph><edge source="1" target="&x;"/></graph></graphml>', "undefined entity"),
    ],
)
def test_other_xml(body: bytes, words: str) -> None:
    assert words in refused(body, "text/xml")


def test_several_files_at_once() -> None:
    body, kind = upload(
        ("C:\\my graphs\\a.graphml", as_xml(nx.write_graphml)), ("../../b.json", json.dumps(GRAPH).encode())
    )
    items = read(body, kind)
    assert [item.name for item in items] == ["a.graphml", "1"]
    assert all(item.store for item in items)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data"),
        (b"", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\nno heading\r\n--x--", "multipart/form-data; boundary=x"),
        (
            b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nvalue\r\n--x--',
            "multipart/form-data; boundary=x",
        ),
    ],
)
def test_uploads_that_are_none(body: bytes, kind: str) -> None:
    assert refused(body, kind).startswith("upload: ")


def test_unknown_kinds_are_415() -> None:
    for body, kind in ((b"x", "text/plain"), (b"x", ""), upload(("a.pdf", b"%PDF"))):
        with pytest.raises(Refused) as caught:
            read(body, kind)
        assert caught.value.status == 415


def test_counts_are_bounded() -> None:
    small = Limits(max_graphs=3, max_nodes=40, max_total_nodes=60)
    for body, kind in (
        ({"graphs": [GRAPH] * 4}, "application/json"),
        ({"smiles": ["C"] * 4}, "application/json"),
        ("graph,source,target\n" + "".join(f"{g},1,2\n" for g in range(4)), "text/csv"),
    ):
        with pytest.raises(Refused, match="at most 3 graphs") as caught:
            read(body, kind, limits=small)
        assert caught.value.status == 413
    with pytest.raises(Refused, match="at most 60 nodes in all") as caught:
        read({"graphs": [GRAPH] * 3}, limits=small)
    assert caught.value.status == 413
    wide = {"nodes": [{"id": node} for node in range(41)], "links": []}
    assert "41 nodes" in read({"graphs": [wide]}, limits=small)[0].error
