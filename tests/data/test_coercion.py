"""Every kind of input gives the same store, and unclear input gets one sentence."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.data import coerce, to_networkx, to_pyg
from graphcaps.data.coercion import reader_defaults
from graphcaps.data.label_encoding import text_code
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.errors import DataError, GraphcapsError
from tests.small_models import planted

COLOURS = ("red", "blue", "7")


# ---------------------------------------------------------------------- the same graphs in every kind
def networks(count: int = 12) -> list[nx.Graph]:
    """Cycles and paths with text labels of nodes and edges, an attribute and a weight."""
    graphs = []
    for number in range(count):
        graph = nx.cycle_graph(5 + number % 3) if number % 2 else nx.path_graph(5 + number % 3)
        graph.graph["y"] = "ring" if number % 2 else "chain"
        for node, entry in graph.nodes(data=True):
            entry |= {"label": COLOURS[node % 3], "age": node / 4}
        for index, (*_, entry) in enumerate(graph.edges(data=True)):
            entry |= {"label": "friend" if index % 2 else "foe", "weight": 1.0 + index}
        graphs.append(graph)
    return graphs


def as_json(path: Path) -> Path:
    path.write_text(json.dumps([nx.node_link_data(graph, edges="links") for graph in networks()]))
    return path


def as_folder(path: Path) -> Path:
    path.mkdir()
    for number, graph in enumerate(networks()):
        nx.write_graphml(graph, path / f"{number:02}.graphml")
    return path


def as_edge_list(path: Path) -> Path:
    path.mkdir()
    rows: dict[str, list[str]] = {"edges": [], "nodes": [], "graphs": []}
    for number, graph in enumerate(networks()):
        rows["graphs"].append(f"g{number},{graph.graph['y']}")
        rows["nodes"] += [f"g{number},{node},{e['label']},{e['age']}" for node, e in graph.nodes(data=True)]
        rows["edges"] += [
            f"g{number},{a},{b},{e['label']},{e['weight']}" for a, b, e in graph.edges(data=True)
        ]
    heads = {
        "edges": "graph,source,target,label,weight",
        "nodes": "graph,node,label,age",
        "graphs": "graph,label",
    }
    for name, lines in rows.items():
        (path / f"{name}.csv").write_text("\n".join([heads[name], *lines]) + "\n")
    return path


def labelled_data() -> list[Any]:
    """torch-geometric graphs with text labels in lists."""
    from torch_geometric.data import Data

    result = []
    for data, graph in zip(to_pyg(coerce(networks()).store), networks(), strict=True):
        ends = data.edge_index.T.tolist()
        result.append(
            Data(
                x=data.x,
                edge_index=data.edge_index,
                edge_weight=data.edge_weight,
                node_labels=[entry["label"] for _, entry in graph.nodes(data=True)],
                edge_labels=[[graph.edges[a, b]["label"]] for a, b in ends],
                y=graph.graph["y"],
            )
        )
    return result


def all_kinds(folder: Path) -> dict[str, Any]:
    """The graphs of :func:`networks` in every kind that can hold labels, attributes and weights."""
    import pandas as pd
    from torch_geometric.loader import DataLoader

    store, data = coerce(networks()).store, labelled_data()
    return {
        "store": store,
        "stores": [store[graph] for graph in range(len(store))],
        "networkx": networks(),
        "networkx tuple": tuple(networks()),
        "networkx iterator": iter(networks()),
        "networkx of the store": [to_networkx(store, graph) for graph in range(len(store))],
        "data": data,
        "data of the store": to_pyg(store),
        "batch": to_pyg(store, as_batch=True),
        "loader": DataLoader(to_pyg(store), batch_size=5),
        "series": pd.Series(data),
        "frame": pd.DataFrame({"graph": networks()}),
        "object array": np.array([*networks(), None], dtype=object)[:-1],
        "json": str(as_json(folder / "nets.json")),
        "folder": as_folder(folder / "nets"),
        "edge list": as_edge_list(folder / "edges"),
    }


@cache
def classifier() -> HGCNClassifier:
    model = HGCNClassifier(
        capsule_dim=8,
        num_capsules=3,
        num_factors=2,
        edge_labels=False,
        epochs=2,
        device="cpu",
        random_state=0,
    )
    return model.fit(coerce(networks()).store, [graph.graph["y"] for graph in networks()])


@pytest.mark.slow
def test_every_kind_fits_predicts_and_explains_with_the_same_bits(tmp_path: Path) -> None:
    model = classifier()
    store = coerce(networks()).store
    probabilities = model.predict_proba(store)
    scores = graphcaps.explain(model.model_, store).node_scores
    y = [graph.graph["y"] for graph in networks()]
    (tmp_path / "names").mkdir()
    for name in all_kinds(tmp_path / "names"):
        folder = tmp_path / name.replace(" ", "-")
        fresh = [one_kind(folder / str(number), name) for number in range(4)]  # an iterator is read once
        assert np.array_equal(model.predict_proba(fresh[0]), probabilities), name
        assert np.array_equal(model.model_.predict_proba(fresh[1]), probabilities), name
        assert torch.equal(graphcaps.explain(model.model_, fresh[2]).node_scores, scores), name
        if name in ("networkx", "data", "json", "edge list", "frame"):
            parameters = model.get_params()
            again = HGCNClassifier(**parameters).fit(fresh[3], y)
            assert np.array_equal(again.predict_proba(store), probabilities), name


def one_kind(folder: Path, name: str) -> Any:
    folder.mkdir(parents=True)
    return all_kinds(folder)[name]


def test_classes_come_with_the_graphs(tmp_path: Path) -> None:
    expected = [graph.graph["y"] for graph in networks()]
    with_classes = {
        "networkx",
        "networkx tuple",
        "networkx iterator",
        "data",
        "series",
        "frame",
        "object array",
    }
    with_classes |= {"json", "folder", "edge list"}
    for name, graphs in all_kinds(tmp_path).items():
        y = coerce(graphs).y
        assert (None if y is None else y.tolist()) == (expected if name in with_classes else None), name


def test_graphs_in_memory_are_not_changed() -> None:
    graphs = networks()
    coerce(graphs)
    assert [dict(graph.nodes(data=True)) for graph in graphs] == [
        dict(g.nodes(data=True)) for g in networks()
    ]


# ---------------------------------------------------------------------- molecules
def test_every_kind_of_molecule(tmp_path: Path) -> None:
    chem = pytest.importorskip("rdkit.Chem")
    import pandas as pd

    smiles = ["CCO", "OC", "c1ccccc1"]
    table = tmp_path / "mols.csv"
    table.write_text("smiles,name\nCCO,a\nOC,b\nc1ccccc1,c\n")
    frame = pd.DataFrame({"smiles": smiles, "name": list("abc"), "active": [1, 0, 1]})
    kinds = [
        smiles, tuple(smiles), np.array(smiles), np.array([[text] for text in smiles]), np.array(smiles, dtype="S"),
        pd.Series(smiles), frame, frame[["smiles"]], frame["smiles"], [chem.MolFromSmiles(text) for text in smiles],
        pd.Series([chem.MolFromSmiles(text) for text in smiles]), table, str(table),
    ]  # fmt: skip
    expected = graphcaps.data.from_smiles(smiles)
    for graphs in kinds:
        with pytest.warns(ReadingWarning, match="'name', 'active'") if graphs is frame else nullcontext():
            store = coerce(graphs).store
        for name in ("node_ptr", "edge_ptr", "neighbours", "node_labels", "edge_labels"):
            assert torch.equal(getattr(store, name), getattr(expected, name))
    read = coerce(frame[["smiles", "active"]], label="active")
    assert read.y is not None
    assert read.y.tolist() == [1, 0, 1]
    assert len(coerce("CCO").store) == len(coerce(chem.MolFromSmiles("CCO")).store) == 1


def test_invalid_molecules_are_skipped_on_request() -> None:
    pytest.importorskip("rdkit")
    import pandas as pd

    read = coerce(
        pd.DataFrame({"smiles": ["CCO", None, "C(C", "CC"], "y": [1, 2, 3, 4]}), label="y", bad="skip"
    )
    assert read.y is not None
    assert read.y.tolist() == [1, 4]
    assert read.metadata is not None
    assert [row.line for row in read.metadata.skipped] == [2, 3]
    assert read.metadata.row_indices == (0, 3)


def test_an_invalid_molecule_is_named_by_its_index() -> None:
    pytest.importorskip("rdkit")
    for molecules in (["CCO", "C(C", "CC"], ["CCO", None, "CC"]):
        with pytest.raises(DataError) as caught:
            coerce(molecules, owner="HGCNClassifier", argument="X")
        assert str(caught.value).startswith("graph 1: expected a molecule in SMILES, found '")
        assert str(caught.value).endswith(
            "skip such rows with read = graphcaps.data.coerce(X, bad='skip'): read.store, and "
            "read.metadata.row_indices for their y."
        )


def test_rows_of_a_frame_without_a_class() -> None:
    pytest.importorskip("rdkit")
    import pandas as pd

    smiles = ["CCO", "CCN", "C(C", "CC", "CCC"]
    frame = pd.DataFrame({"smiles": smiles, "y": [1.0, None, 1.0, None, 0.0]})
    with pytest.raises(GraphcapsError) as caught:
        coerce(frame[["smiles", "y"]].drop(2), label="y")
    assert str(caught.value) == (
        "coerce: 'label' must name a column with a class in every row, got nan in row 2 (2 such rows). Leave such "
        "rows out with bad='skip'."
    )
    read = coerce(frame, label="y", bad="skip")
    assert read.y is not None
    assert read.y.tolist() == [1.0, 0.0]
    assert read.metadata is not None
    assert (read.metadata.row_indices, read.metadata.ids) == ((0, 4), ("0", "4"))
    assert [(row.line, row.kind) for row in read.metadata.skipped] == [
        (2, "label"),
        (3, "molecule"),
        (4, "label"),
    ]
    assert read.metadata.skipped_ids == ("1", "2", "3")
    assert read.metadata.skipped_notes[-1] == "2 rows without a label were left out: lines 2, 4."
    with pytest.raises(GraphcapsError, match="'label' must name a column with classes, got none in any row"):
        coerce(frame.assign(y=None), label="y", bad="skip")


def test_rows_of_a_frame_of_networks_without_a_class() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {"graph": [nx.path_graph(3), nx.path_graph(4), nx.path_graph(5)], "y": ["a", "NA", "b"]}
    )
    read = coerce(frame, label="y", bad="skip")
    assert read.store.sizes.tolist() == [3, 5]
    assert read.y is not None
    assert read.y.tolist() == ["a", "b"]
    assert read.metadata is not None
    assert read.metadata.row_indices == (0, 2)


# ---------------------------------------------------------------------- matrices and edge lists
@given(seed=st.integers(0, 10_000), n=st.integers(3, 9), weighted=st.booleans())
def test_matrices_and_edge_lists_equal_networkx(seed: int, n: int, weighted: bool) -> None:
    generator = np.random.default_rng(seed)
    matrix = np.triu(generator.random((n, n)) < 0.5, 1)
    matrix[0, n - 1] = matrix[0, 1] = matrix[1, 2] = (
        True  # the largest index occurs, and there are three edges
    )
    matrix = (matrix | matrix.T) * (generator.integers(1, 5, (n, n)) if weighted else 1)
    matrix = np.triu(matrix) + np.triu(matrix).T
    expected = coerce(nx.from_numpy_array(matrix) if weighted else nx.from_numpy_array(matrix != 0)).store
    kinds: list[Any] = [
        matrix,
        [matrix],
        matrix[None],
        csr_array(matrix),
        torch.from_numpy(matrix),
        [matrix.astype(float)],
    ]
    if not weighted:
        ends = np.array(matrix.nonzero())
        kinds += [ends, ends.T, [ends], torch.from_numpy(ends), matrix.astype(bool)]
        assert coerce(ends, num_nodes=n + 2).store.num_nodes == n + 2
    for graphs in kinds:
        store = coerce(graphs).store
        assert torch.equal(store.neighbours, expected.neighbours)
        assert torch.equal(store.edge_ptr, expected.edge_ptr)
        if weighted and expected.edge_weight is not None and store.edge_weight is not None:
            assert torch.equal(store.edge_weight, expected.edge_weight)


# ---------------------------------------------------------------------- text labels
@given(
    labels=st.lists(
        st.one_of(st.text(min_size=1).filter(str.strip), st.integers(-9, 9)), min_size=3, max_size=6
    )
)
def test_labels_in_memory_and_in_a_file_have_the_same_codes(labels: list[Any]) -> None:
    from graphcaps.data.readers.network_formats import parse_networks
    from graphcaps.data.readers.networks import store_from_networks

    graph = nx.path_graph(len(labels))
    nx.set_node_attributes(graph, dict(enumerate(labels)), "label")
    content = json.dumps(nx.node_link_data(graph, edges="links")).encode()
    parsed = parse_networks(content, ".json", "n.json")
    store, other = coerce(graph).store, store_from_networks(parsed, [None]).store
    assert torch.equal(store.node_labels, other.node_labels)
    assert store.label_names == other.label_names
    again = coerce(to_networkx(store, 0)).store
    assert torch.equal(again.node_labels, store.node_labels)


def test_columns_of_labels_are_ordered_by_code() -> None:
    recipe = classifier().model_.recipe
    assert recipe.label_values == ((7, *sorted(text_code(text) for text in ("red", "blue"))),)
    named = [name for name in recipe.column_names() if name.startswith("label[0]")]
    assert named[0] == "label[0]=7"
    assert set(named[1:]) == {"label[0]=red", "label[0]=blue"}
    assert (
        graphcaps.FeatureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))).label_names
        == recipe.label_names
    )


# ---------------------------------------------------------------------- unclear input
@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        (5, r"'graphs' must be a GraphStore or a list of .*, or a path, got int\."),
        (None, r"got NoneType\."),
        ([], r"'graphs' must hold at least one graph, got none\."),
        ({"nodes": []}, r"got dict\."),
        ({"CCO"}, r"got set\."),
        (b"CCO", r"got bytes\."),
        ([b"CCO"], r"got bytes\."),
        ("MUTAG", r"got the name of a data set, 'MUTAG'\. Pass graphcaps\.load_dataset\('MUTAG'\)\."),
        ([[0, 1], [1, 0]], r"got list\. Pass matrices and edge lists as numpy arrays\."),
        ([nx.path_graph(2), "CCO"], r"'graphs' must be of one kind, got Graph, str\."),
        ([Path("a.graphml")], r"got PosixPath\. Pass one path to a file or folder, or a list of stores\."),
        (np.zeros(3), r"got an array of shape \[3\]\. Rows of numbers are not graphs"),
        (np.zeros((4, 3)), r"square adjacency matrices, or integer edge lists .*, got an array of shape \[4, 3\]"),
        (np.zeros((4, 2)), r"got an array of shape \[4, 2\] as graph 0"),
        (np.zeros((2, 2), dtype=int), r"either a matrix or an edge list, .*Pass a matrix as scipy\.sparse\.coo_array"),
        (np.zeros((2, 0), dtype=int), r"must have edges, or a number of nodes, got none in graph 0\. Pass num_nodes"),
        (np.full((3, 3), np.nan), r"must hold finite numbers, got NaN or infinity in graph 0"),
        (np.array([[0, -1, 1], [1, 0, 2]]), r"must hold node indices from 0 to 2 in graph 0, got -1"),
        (np.array([[0, 10**12, 1], [1, 0, 2]]), r"below 1,000,000 in graph 0, got 1000000000000\. Number the nodes"),
        (np.zeros((3, 3), dtype=complex), r"must be square adjacency matrices"),
        (torch.eye(3).to_sparse(), r"got a sparse tensor as graph 0"),
        (Path("nowhere.graphml"), r"nowhere\.graphml: file not found\."),
        ("nowhere/at all", r"nowhere/at all: file or folder not found\."),
    ],
)  # fmt: skip
def test_unclear_input_gets_one_sentence(graphs: Any, message: str) -> None:
    with pytest.raises(GraphcapsError, match=message) as caught:
        coerce(graphs)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(("coerce: ", "nowhere"))


def test_frames_with_several_or_no_columns_of_graphs() -> None:
    import pandas as pd

    two = pd.DataFrame({"a": ["CCO"], "b": ["CC"]})
    with pytest.raises(
        GraphcapsError, match=r"'X' must have one column of SMILES or graphs, got 'a', 'b'\. Pass one"
    ):
        coerce(two, argument="X")
    named = pd.DataFrame({"Name": ["ethanol", "water"], "Structure": ["CCO", "O"]})
    advice = r"got 'Name', 'Structure'\. Pass one column alone, such as frame\['Structure'\]\.$"
    with pytest.raises(GraphcapsError, match=advice):
        coerce(named)
    assert len(coerce(named["Structure"]).store) == 2
    with pytest.raises(GraphcapsError, match=r"must have one column of SMILES or graphs, got none\."):
        coerce(pd.DataFrame({"a": [1.5]}))
    with pytest.raises(GraphcapsError, match=r"'label' must be one of the columns 'a', 'b', got 'y'\."):
        coerce(two, label="y")


def test_columns_of_a_frame_that_are_not_read_are_named() -> None:
    import pandas as pd

    frame = pd.DataFrame({"smiles": ["CCO", "CC"], "mw": [46.1, 30.1], "kind": ["a", "b"]})
    with pytest.warns(ReadingWarning) as warned:
        coerce(frame)
    assert [str(each.message) for each in warned] == [
        "coerce: 2 columns of the DataFrame are not read: 'mw', 'kind'."
    ]
    with pytest.warns(ReadingWarning, match=r"^coerce: 1 column of the DataFrame is not read: 'mw'\.$"):
        coerce(frame, label="kind")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coerce(frame[["smiles"]])


def test_a_text_that_is_a_folder_and_a_molecule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tu(planted()[:3], tmp_path / "CC")
    with pytest.raises(
        GraphcapsError, match=r"be clearly a path or SMILES, got 'CC', which is both\. Pass pathlib"
    ):
        coerce("CC")
    assert len(coerce(Path("CC")).store) == 3


def test_text_in_a_list_is_never_a_path(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = as_json(tmp_path / "nets.json")
    with pytest.raises(GraphcapsError, match="Text in a list is SMILES; pass one path outside a list"):
        coerce(["CCO", str(path)])


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(
        GraphcapsError, match=r"verb: 'bad' must be omitted for networkx graphs, got 'skip'\."
    ):
        coerce(networks(), owner="verb", bad="skip")
    with pytest.raises(
        GraphcapsError, match=r"'num_nodes' must be omitted for torch-geometric graphs, got 3\."
    ):
        coerce(labelled_data(), num_nodes=3)
    with pytest.raises(GraphcapsError, match=r"'num_nodes' must hold one number per graph, 1, got 2\."):
        coerce(np.array([[0, 1, 2], [1, 2, 0]]), num_nodes=[3, 3])


def test_one_matrix_is_no_collection_of_samples() -> None:
    model = classifier()
    with pytest.raises(
        GraphcapsError, match=r"^HGCNClassifier: 'X' must .* got an array of shape \[3, 3\]\. Rows of"
    ):
        model.predict(np.zeros((3, 3)))


def test_attributes_of_some_nodes_are_left_out_with_a_warning() -> None:
    graph = nx.path_graph(3)
    graph.nodes[0]["age"] = 3
    with pytest.warns(UserWarning, match="'age' is a number on 1 of 3 nodes only and is not read"):
        assert coerce(graph).store.node_attributes is None


def test_several_node_types_are_refused_with_advice() -> None:
    from torch_geometric.data import HeteroData

    with pytest.raises(GraphcapsError, match=r"got HeteroData\. .*to_homogeneous"):
        coerce([HeteroData()])


@pytest.mark.parametrize("featurizer", ["elements", "standard"])
def test_molecules_are_read_with_the_featurizer_of_the_recipe(featurizer: str) -> None:
    pytest.importorskip("rdkit")
    store = coerce(["CCO", "C1CC1"], featurizer=featurizer).store
    recipe = graphcaps.FeatureRecipe().fit(store)
    assert reader_defaults(recipe) == {"featurizer": featurizer, "fragments": "all"}
    read = coerce(["CCO", "C1CC1"], recipe=recipe).store
    assert read.featurizer == featurizer
    assert torch.equal(read.node_labels, store.node_labels)
    assert reader_defaults(graphcaps.FeatureRecipe().fit(planted())) == reader_defaults(None) == {}


def test_edge_attr_that_no_model_uses_is_said() -> None:
    from torch_geometric.data import Data

    edges = torch.tensor([[0, 1], [1, 0]])
    data = Data(edge_index=edges, num_nodes=2, edge_attr=torch.tensor([[0.5, 1.5]] * 2))
    with pytest.warns(
        UserWarning, match=r"^coerce: 'edge_attr' is kept in the store, but no model uses it\.$"
    ):
        coerce(data)


def test_text_of_networks_that_is_not_read_is_said() -> None:
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, "C", "element")
    with pytest.warns(
        UserWarning, match=r"^coerce: The node attribute 'element' is not read, .* node_label='element'"
    ):
        coerce(graph)
    assert coerce(graph, node_label="element").store.node_labels is not None


def test_one_graph_outside_a_list_is_one_graph() -> None:
    pytest.importorskip("rdkit")
    from rdkit import Chem
    from torch_geometric.data import Data

    options: dict[str, Any] = {
        "epochs": 1,
        "capsule_dim": 8,
        "num_capsules": 3,
        "num_factors": 2,
        "device": "cpu",
    }

    def cycle(n: int) -> nx.Graph:
        graph = nx.cycle_graph(n)
        nx.set_node_attributes(graph, {node: "red" if node % 2 else "blue" for node in graph}, "label")
        return graph

    networks = [cycle(n) for n in (4, 5, 6, 7)] * 3
    model = HGCNClassifier(**options).fit(networks, ["even", "odd"] * 6)
    edges = torch.tensor([*networks[0].edges, *((b, a) for a, b in networks[0].edges)]).T
    texts = ["blue", "red", "blue", "red"]
    data = Data(edge_index=edges, num_nodes=4, node_labels=texts)
    molecules = HGCNClassifier(**options).fit(["CCO", "CCN"] * 6, ["no", "yes"] * 6)
    pairs = [(model, networks[0]), (model, data), (molecules, "CCO"), (molecules, Chem.MolFromSmiles("CCO"))]
    for fitted, graph in pairs:
        expected = fitted.predict_proba([graph])
        np.testing.assert_array_equal(fitted.predict_proba(graph), expected)
        np.testing.assert_array_equal(fitted.model_.predict_proba(graph), expected)
        assert fitted.explain(graph).probabilities.tolist() == pytest.approx(expected[0].tolist())


# ---------------------------------------------------------------------- metadata and names
def test_networks_have_ids_names_and_notes() -> None:
    graphs = networks(2)
    read = coerce(graphs)
    assert read.metadata is not None
    assert (read.metadata.ids, read.metadata.has_names) == (("0", "1"), False)
    for number, graph in enumerate(graphs):
        graph.graph["name"] = f"compound {number}"
        nx.set_node_attributes(graph, "x", "note")
    with pytest.warns(ReadingWarning, match="coerce: The node attribute 'note' is not read"):
        read = coerce(graphs)
    assert read.metadata is not None
    assert (read.metadata.ids, read.metadata.has_names) == (("compound 0", "compound 1"), True)
    assert len(read.metadata.notes) == 1
