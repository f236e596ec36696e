"""Valid and hostile request bodies: what cannot be read is an error of one sentence, and the rest is read."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from graphcaps.chemistry import rdkit_pool
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.errors import GraphcapsError
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.serve.limits import Limits, RequestError
from graphcaps.serve.request_graphs import RequestGraph, read_request
from graphcaps.serve.responses import respond
from tests.serve.models import molecule_model, node_link
from tests.small_models import labelled, labelled_model, planted, small_model, train_small

GRAPH = node_link(planted(), 0)
NO_MULTIPART = "python-multipart is not installed: pip install 'graphcaps[serve]'"


def read(
    body: bytes | str | object, kind: str = "application/json", limits: Limits | None = None, **options: Any
) -> list[RequestGraph]:
    content = (
        body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    )
    model = options.pop("model", small_model())
    return read_request(kind, content, model, limits or Limits(), **options)


def error_of(*arguments: Any, **settings: Any) -> str:
    with pytest.raises(GraphcapsError) as caught:
        read(*arguments, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert "/tmp" not in message
    return message


def upload(*files: tuple[str, bytes], boundary: str = "cut") -> tuple[bytes, str]:
    """A form with the files, and its content type; skips the test where forms cannot be read."""
    pytest.importorskip("python_multipart", reason=NO_MULTIPART)
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
def test_all_json_forms(body: object) -> None:
    (graph,) = read(body)
    assert graph.error == ""
    assert graph.store.num_nodes == len(GRAPH["nodes"])
    assert graph.store.neighbours.numel() == 2 * len(GRAPH["links"])


def test_labels_and_attributes_are_read() -> None:
    (graph,) = read(node_link(labelled(), 3), model=labelled_model())
    expected = labelled()[3]
    assert (graph.store.node_labels == expected.node_labels).all()
    assert (graph.store.node_attributes == expected.node_attributes).all()


def test_an_invalid_graph_does_not_affect_the_others() -> None:
    model = labelled_model()
    good = node_link(labelled(), 0)
    bad: list[Any] = [
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
    graphs = read({"graphs": [good, *bad, good]}, model=model)
    assert [bool(graph.error) for graph in graphs] == [False, *[True] * len(bad), False]
    for graph in graphs:
        assert "Traceback" not in graph.error
        assert len(graph.error) < 300


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
def test_invalid_json_is_rejected(body: bytes | str) -> None:
    assert "expected" in error_of(body)


def test_smiles_and_invalid_smiles() -> None:
    model = molecule_model()
    graphs = read({"smiles": ["c1ccccc1", "xyz", "", 7, None, "C(C)(C)(C)(C)C", "CCO", "*"]}, model=model)
    assert [graph.error == "" for graph in graphs] == [True, False, False, False, False, False, True, False]
    assert [graph.num_nodes for graph in graphs if graph.store] == [6, 3]
    assert "SMILES" in graphs[1].error
    assert graphs[3].error == "it is not a valid SMILES: expected text, found 7"


def test_molecules_of_a_request_share_a_store_and_are_checked_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, checks = molecule_model(), []
    check = FittedModel.check

    def count(fitted: FittedModel, graphs: Any, **options: Any) -> Any:
        checks.append(graphs)
        return check(fitted, graphs, **options)

    monkeypatch.setattr(FittedModel, "check", count)
    texts = ["c1ccccc1", "xyz", "CCO", "c1ccccc1", "[SiH4]", "CCCCCCCC"]
    graphs = read({"smiles": texts}, model=model, limits=Limits(max_nodes=7))
    assert len(checks) == 1
    ring, _, alcohol, again, silane, long = graphs
    assert ring.store is alcohol.store is again.store is silane.store
    assert [graph.index for graph in (ring, alcohol, again, silane)] == [0, 1, 0, 2]
    assert [graph.num_nodes for graph in graphs] == [6, 0, 3, 6, 1, 0]
    assert "element Si" in silane.unseen_values
    assert alcohol.unseen_values == ""
    assert long.error == "it has 8 nodes; the limit is 7"


def test_a_molecule_that_rdkit_cannot_finish_is_an_error_of_its_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = rdkit_pool.RDKitPool(1, seconds=1.0)
    monkeypatch.setattr(rdkit_pool, "_shared_pool", lambda: pool)
    cage = f"B12B3B4B1B5{'B1B5' * 50}B2B3B45"
    cages, good = read({"smiles": [cage, "CCO"]}, model=molecule_model())
    pool.close()
    assert cages.error == "it is not a valid SMILES: RDKit needs more than 1 s for it"
    assert good.error == ""


def test_truncated_graphs_have_a_note() -> None:
    store = planted()
    size = int(store.sizes[0])
    path = {"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1}]}
    model = train_small(store, max_nodes=20)
    graphs = read([GRAPH, path], model=model)
    note = f"it has {size} nodes, of which the model reads the 20 of highest degree"
    assert [graph.truncated for graph in graphs] == [note, ""]
    rows = respond(model, "predict", graphs)["predictions"]
    assert [row["truncated"] for row in rows] == [note, None]
    explained = respond(model, "explain", graphs)["explanations"]
    assert [row["truncated"] for row in explained] == [note, None]


def test_values_that_no_training_molecule_has_are_listed() -> None:
    graphs = read({"smiles": ["CCO", "CCS", "C[Pt]"]}, model=molecule_model())
    assert [graph.error for graph in graphs] == ["", "", ""]
    assert graphs[0].unseen_values == ""
    assert graphs[1].unseen_values == "element S on 1 atom"
    assert graphs[2].unseen_values.startswith("element Pt on 1 atom")
    rows = respond(molecule_model(), "predict", graphs)["predictions"]
    assert [row["unseen_values"] for row in rows] == [None, *(graph.unseen_values for graph in graphs[1:])]
    assert all(row["class"] for row in rows)


def test_long_smiles_are_not_parsed() -> None:
    texts = ["C" * 50_000, "C" * 120, "C", "c1" + "cc" * 300 + "1"]
    graphs = read({"smiles": texts}, model=molecule_model(), limits=Limits(max_nodes=100))
    assert "50,000 characters, more than 5,000" in graphs[0].error
    assert "120 nodes" in graphs[1].error
    assert graphs[2].error == ""
    assert "kekulize" in graphs[3].error
    assert all(len(graph.error) < 260 and len(graph.name) <= 80 for graph in graphs)


def test_a_table_of_smiles() -> None:
    model = molecule_model()
    body = "id;structure\n1;CCO\n2;nothing\n3;c1ccccc1\n"
    graphs = read(body, "text/csv; charset=utf-8", model=model, column="structure")
    assert [graph.name for graph in graphs] == ["1", "2", "3"]
    assert [graph.error == "" for graph in graphs] == [True, False, True]
    assert "column 'smiles'" in error_of(body, "text/csv", model=model)
    assert "Name the column of SMILES with ?column=NAME;" in error_of(body, "text/csv", model=model)
    # Without an id, a row is named by its SMILES.
    for table in ("smiles\nCCO\nC1CC\n", "id,smiles\n,CCO\n ,C1CC\n"):
        assert [graph.name.strip() for graph in read(table, "text/csv", model=model)] == ["CCO", "C1CC"]


def test_rows_are_named_as_by_predict(tmp_path: Path) -> None:
    """Ids that are not complete and distinct name no row; all rows are named by their line then."""
    for ids, names in ((("a", "b"), ("a", "b")), (("a", ""), ("2", "3")), (("a", "a"), ("2", "3"))):
        table = f"id,smiles\n{ids[0]},CCO\n{ids[1]},CCC\n"
        (tmp_path / "own.csv").write_text(table)
        metadata = open_dataset(tmp_path / "own.csv").metadata
        assert metadata is not None
        served = read(table, "text/csv", model=molecule_model())
        assert tuple(graph.name for graph in served) == metadata.ids == names


def test_smiles_among_graphs_are_told_their_place() -> None:
    (graph,) = read({"graphs": ["CCO"]})
    assert graph.error == (
        "graph: expected an object with 'nodes' and 'links', found the text 'CCO'. Send SMILES as {\"smiles\": […]}"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            '{"smiles": "CCO"}',
            "request.json: expected a list under 'smiles', found the text 'CCO'. "
            'Send {"smiles": […]}, also for a single one.',
        ),
        (
            '{"graphs": 5}',
            "request.json: expected a list under 'graphs', found the number 5. "
            'Send {"graphs": […]}, also for a single one.',
        ),
        (
            '{"smiles": null}',
            "request.json: expected a list under 'smiles', found null. Send {\"smiles\": […]}, also for a single one.",
        ),
        (
            '{"graphs": [\n{"nodes": []',
            "request.json, line 2: expected valid JSON, found an error at column 13 (the text ends too early).",
        ),
    ],
)
def test_json_is_described_without_words_of_python(body: str, message: str) -> None:
    assert error_of(body) == message


EDGES = b"graph,source,target\na,1,2\na,2,3\nb,x,y\n"


def test_errors_of_tables_name_them_without_the_temporary_folder() -> None:
    nodes = b"graph,node\na,1\n"
    body, kind = upload(("edges.csv", EDGES), ("nodes.csv", nodes))
    assert error_of(body, kind) == (
        "edges.csv, line 2: expected a node of graph 'a' in the table of nodes, found '2'."
    )
    assert error_of("graph,source,target\na,,1\n", "text/csv").startswith(
        "request.csv, line 2: expected an entry"
    )
    body, kind = upload(("graphs.csv", b"graph,label\na,x\n"), ("nodes.csv", nodes))
    assert error_of(body, kind) == "upload: expected the table edges.csv beside graphs and nodes, found none."


def test_an_edge_list() -> None:
    graphs = read(EDGES, "text/csv")
    assert [(graph.name, graph.store.num_nodes) for graph in graphs] == [("a", 3), ("b", 2)]


def test_an_edge_list_and_its_nodes() -> None:
    nodes = b"graph,node\na,1\na,2\na,3\na,4\nb,x\nb,y\n"
    body, kind = upload(("edges.csv", EDGES), ("Nodes.csv", nodes))
    assert [graph.store.num_nodes for graph in read(body, kind)] == [4, 2]


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
def test_invalid_tables_are_rejected(body: bytes | str) -> None:
    error_of(body, "text/csv")


@pytest.mark.parametrize("write", [nx.write_graphml, nx.write_gexf])
def test_graphml_and_gexf(write: Any) -> None:
    content = as_xml(write)
    (graph,) = read(content, "application/xml")
    assert graph.store.num_nodes == planted()[0].num_nodes
    for cut in (1, 40, len(content) // 2, len(content) - 3):
        error_of(content[:cut], "text/xml")


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
        BOMB.format(' encoding="utf-16"').encode("utf-16"),  # a search for bytes would not find it
        FILE.encode(),
        b'<!DOCTYPE graphml SYSTEM "http://127.0.0.1:9/x.dtd"><graphml/>',
    ],
)
def test_xml_with_a_document_type_is_rejected(body: bytes) -> None:
    assert "a document type" in error_of(body, "application/graphml+xml")


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
def test_other_invalid_xml_is_rejected(body: bytes, words: str) -> None:
    assert words in error_of(body, "text/xml")


def test_several_files_at_once() -> None:
    body, kind = upload(
        ("C:\\my graphs\\a.graphml", as_xml(nx.write_graphml)), ("../../b.json", json.dumps(GRAPH).encode())
    )
    graphs = read(body, kind)
    assert [graph.name for graph in graphs] == ["a.graphml", "1"]
    assert all(graph.store for graph in graphs)


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
def test_invalid_forms_are_rejected(body: bytes, kind: str) -> None:
    pytest.importorskip("python_multipart", reason=NO_MULTIPART)
    assert error_of(body, kind).startswith("upload: ")


@pytest.mark.parametrize("kind", ["text/plain", "", "multipart/form-data"])
def test_unknown_formats_are_415(kind: str) -> None:
    body, kind = upload(("a.pdf", b"%PDF")) if kind == "multipart/form-data" else (b"x", kind)
    with pytest.raises(RequestError) as caught:
        read(body, kind)
    assert caught.value.status == 415


def test_numbers_of_graphs_and_nodes_are_limited() -> None:
    small = Limits(max_graphs=3, max_nodes=40, max_total_nodes=60)
    for body, kind in (
        ({"graphs": [GRAPH] * 4}, "application/json"),
        ({"smiles": ["C"] * 4}, "application/json"),
        ("graph,source,target\n" + "".join(f"{g},1,2\n" for g in range(4)), "text/csv"),
    ):
        with pytest.raises(
            RequestError, match=r"at most 3 graphs, found 4\..* larger --max-graphs\."
        ) as caught:
            read(body, kind, limits=small)
        assert caught.value.status == 413
    with pytest.raises(RequestError, match="at most 60 nodes in all") as caught:
        read({"graphs": [GRAPH] * 3}, limits=small)
    assert caught.value.status == 413
    wide = {"nodes": [{"id": node} for node in range(41)], "links": []}
    assert "41 nodes" in read({"graphs": [wide]}, limits=small)[0].error


def test_the_request_of_the_page_is_one_for_its_model() -> None:
    """docs/serve.md serves a model of molecules, and sends it SMILES that it can read."""
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text("utf-8")
    assert re.search(r"graphcaps train \S+\.csv --smiles .*--out (\S+)\ngraphcaps serve \1\n", page)
    (body,) = re.findall(r"application/json' -d '([^']+)'", page)
    graphs = read(json.loads(body), model=molecule_model())
    assert [graph.error for graph in graphs] == ["", ""]
