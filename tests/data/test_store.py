"""The store against graphs built one at a time with plain Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.store import MAX_BIT_NODES, MAX_BIT_WORDS, GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.edges import clean_edges
from graphcaps.ops.structure.structure import Structure
from graphcaps.training.streaming import move_to_device
from graphcaps.types import GraphBatch
from tests.graphs import random_graphs

COLUMNS = ("node_labels", "node_attributes", "edge_labels", "edge_attributes", "edge_weight")


def make(seed: int = 0, graphs: int = 5) -> GraphStore:
    """Graphs of 1 to 6 nodes with every column; all of them differ."""
    draw = np.random.default_rng(seed)
    arrays = []
    for _ in range(graphs):
        n = int(draw.integers(1, 7))
        E = int(draw.integers(0, 2 * n))
        arrays.append(
            GraphArrays(
                n,
                torch.from_numpy(draw.integers(0, n, (2, E))),
                int(draw.integers(0, 3)),
                node_labels=torch.from_numpy(draw.integers(0, 5, (n, 1))),
                node_attributes=torch.from_numpy(draw.normal(size=(n, 2))),
                edge_labels=torch.from_numpy(draw.integers(0, 5, (E, 1))),
                edge_attributes=torch.from_numpy(draw.normal(size=(E, 2))),
                edge_weight=torch.from_numpy(draw.uniform(0.5, 2, E)),
                truth={"part": torch.from_numpy(draw.integers(0, 9, n))},
            )
        )
    return store_from_graphs(arrays, "random", class_names=("a", "b", "c"))


def graph_of(store: GraphStore, g: int) -> dict[str, object]:
    """All values of one graph of the store, as plain Python values."""
    first, end = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
    entries = slice(int(store.edge_ptr[first]), int(store.edge_ptr[end]))
    edges = [
        (i - first, int(j))
        for i in range(first, end)
        for j in store.neighbours[int(store.edge_ptr[i]) : int(store.edge_ptr[i + 1])]
    ]
    values: dict[str, object] = {"n": end - first, "edges": edges, "y": int(store.y[g])}  # type: ignore[index]
    for column in COLUMNS:
        rows = slice(first, end) if column.startswith("node") else entries
        values[column] = getattr(store, column)[rows].tolist()
    values["part"] = store.truth["part"][first:end].tolist()
    return values


def decode(batch: GraphBatch, row: tuple[int, ...] = ()) -> set[tuple[int, int, float]]:
    """Edges of a batch as (row, row, weight), decoded as the docstring of EdgeTable says."""
    table = batch.edges
    assert table.weight is not None
    edges = set()
    for source, node in enumerate(table.node[row].tolist()):
        if node < 0:
            continue
        for entry in range(int(table.ptr[node]), int(table.ptr[node + 1])):
            target = int(table.first[row][source]) + int(table.neighbours[entry])
            edges.add((source, target, float(table.weight[entry])))
    return edges


def check_row(
    store: GraphStore, x: torch.Tensor, batch: GraphBatch, row: tuple[int, ...], graphs: list[int]
) -> None:
    """One row of a batch against the naive construction, graph after graph."""
    B, V = len(graphs), batch.segments.num_rows
    ptr, index, nodes, edges, rows, y = [0], [], [], set(), [], []
    for position, g in enumerate(graphs):
        start = ptr[-1]
        if g >= 0:
            first, end = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
            values = graph_of(store, g)
            edges |= {
                (start + i, start + j, weight)
                for (i, j), weight in zip(values["edges"], values["edge_weight"], strict=True)  # type: ignore[call-overload]
            }
            index += [position] * (end - first)
            nodes += list(range(first, end))
            rows += x[first:end].tolist()
            y.append(values["y"])
        else:
            y.append(-1)
        ptr.append(len(index))
    padding = V - len(index)
    assert padding >= 0
    assert batch.segments.ptr[row].tolist() == ptr
    assert batch.segments.index[row].tolist() == index + [B] * padding
    assert batch.edges.node[row].tolist() == nodes + [-1] * padding
    assert batch.x[row].tolist() == rows + [[0.0] * x.size(1)] * padding
    assert batch.y is not None
    assert batch.y[row].tolist() == y
    assert decode(batch, row) == edges
    firsts = batch.edges.first[row]
    assert bool(((firsts >= 0) & (firsts <= V)).all())


# ---------------------------------------------------------------------- batches
@given(data=st.data(), seed=st.integers(0, 1000))
def test_batch_equals_naive(data: st.DataObject, seed: int) -> None:
    store = make(seed)
    x = torch.randn(store.num_nodes, 3)
    graphs = data.draw(st.lists(st.integers(-1, len(store) - 1), min_size=1, max_size=7))
    batch = store.batch(x, graphs)
    check_row(store, x, batch, (), graphs)
    real = [g for g in graphs if g >= 0]
    assert batch.segments.padded == (len(real) < len(graphs))
    assert batch.num_graphs == len(graphs)
    assert batch.segments.max_size == max([int(store.sizes[g]) for g in real], default=0)
    assert batch.edges.num_entries == sum(len(graph_of(store, g)["edges"]) for g in real)  # type: ignore[arg-type]


@given(data=st.data(), seed=st.integers(0, 1000))
def test_each_replica_has_its_own_row(data: st.DataObject, seed: int) -> None:
    store = make(seed)
    x = torch.randn(store.num_nodes, 2)
    shape = data.draw(st.sampled_from([(2, 3), (3, 1), (2, 2, 2)]))
    count = int(np.prod(shape))
    flat = data.draw(st.lists(st.integers(-1, len(store) - 1), min_size=count, max_size=count))
    graphs = torch.tensor(flat).reshape(shape)
    batch = store.batch(x, graphs)
    lengths = []
    for row in np.ndindex(*shape[:-1]):
        check_row(store, x, batch, row, graphs[row].tolist())
        lengths.append(int(batch.segments.ptr[row][-1]))
    # There is a row also without any node.
    assert batch.x.shape == (*shape[:-1], max(*lengths, 1), 2)
    assert batch.segments.padded == (len(set(lengths)) > 1 or -1 in flat)


def test_two_replicas_of_different_length_by_hand() -> None:
    empty, pair = torch.empty(2, 0, dtype=torch.long), torch.tensor([[0], [1]])
    store = store_from_graphs([GraphArrays(2, pair, 0), GraphArrays(1, empty, 1), GraphArrays(3, pair, 0)])
    x = torch.arange(1.0, 7.0)[:, None]
    batch = store.batch(x, [[2, 1], [1, -1]])
    assert batch.x.squeeze(-1).tolist() == [[4, 5, 6, 3], [3, 0, 0, 0]]
    assert batch.segments.ptr.tolist() == [[0, 3, 4], [0, 1, 1]]
    assert batch.segments.index.tolist() == [[0, 0, 0, 1], [0, 2, 2, 2]]
    assert batch.edges.node.tolist() == [[3, 4, 5, 2], [2, -1, -1, -1]]
    assert batch.y is not None
    assert batch.y.tolist() == [[0, 1], [1, -1]]
    assert batch.segments.graph_mask.tolist() == [[True, True], [True, False]]  # type: ignore[union-attr]
    assert batch.edges.neighbours is store.neighbours  # by reference, no edge is copied


def test_batch_without_indices_is_the_whole_store() -> None:
    store = make()
    x = torch.randn(store.num_nodes, 2)
    batch = store.batch(x)
    check_row(store, x, batch, (), list(range(len(store))))
    assert torch.equal(batch.x, x)
    assert batch.segments.row_mask is None


def test_poisoned_features_do_not_reach_padding() -> None:
    store = make()
    x = torch.full((store.num_nodes, 2), float("nan"))
    biggest = int(store.sizes.argmax())
    x[int(store.node_ptr[biggest]) : int(store.node_ptr[biggest + 1])] = 1
    smallest = int(store.sizes.argmin())
    batch = store.batch(x, [[biggest], [smallest]])
    assert bool((batch.x[batch.edges.node < 0] == 0).all())


def test_gradient_reaches_the_rows_of_the_batch() -> None:
    store = make()
    x = torch.ones(store.num_nodes, 1, requires_grad=True)
    store.batch(x, [[1], [-1]]).x.sum().backward()
    expected = (store.node_graph == 1).float()[:, None]
    assert torch.equal(x.grad, expected)  # type: ignore[arg-type]


def test_batches_of_an_unlabelled_store_have_no_y() -> None:
    store = store_from_graphs([GraphArrays(1, torch.empty(2, 0, dtype=torch.long))])
    assert store.batch(torch.ones(1, 1)).y is None


@pytest.mark.parametrize(
    ("graphs", "text"),
    [
        ([5], r"'graphs' must be from 0 to 4 \(−1 for padding\), got 5\."),
        ([0, -2], r"'graphs' must be from 0 to 4 \(−1 for padding\), got -2\."),
        ([], r"'graphs' must name at least one graph, got none\."),
    ],
)
def test_batch_indices_out_of_range_are_refused(graphs: list[int], text: str) -> None:
    store = make()
    with pytest.raises(ArgumentError, match=rf"GraphStore\.batch: {text}"):
        store.batch(torch.zeros(store.num_nodes, 1), graphs)


def test_batch_with_wrong_features_is_refused() -> None:
    store = make()
    text = rf"GraphStore\.batch: 'x' must have one row per node, {store.num_nodes}, got 3\."
    with pytest.raises(ShapeError, match=text):
        store.batch(torch.zeros(3, 1))


# ---------------------------------------------------------------------- indexing
@given(data=st.data(), seed=st.integers(0, 1000))
def test_subset_of_subset(data: st.DataObject, seed: int) -> None:
    store = make(seed, graphs=6)
    outer = data.draw(st.lists(st.integers(-6, 5), min_size=1, max_size=8))
    inner = data.draw(st.lists(st.integers(-len(outer), len(outer) - 1), min_size=1, max_size=5))
    once = store[outer]
    assert [graph_of(once, g) for g in range(len(once))] == [graph_of(store, g % 6) for g in outer]
    twice = once[inner]
    assert [graph_of(twice, k) for k in range(len(twice))] == [graph_of(store, outer[k] % 6) for k in inner]
    assert twice.report == store.report
    assert twice.class_names == store.class_names


def test_kinds_of_graph_indices() -> None:
    store = make()
    expected = [graph_of(store, 1), graph_of(store, 4)]
    mask = [False, True, False, False, True]
    for indices in (
        [1, -1],
        (1, 4),
        torch.tensor([1, 4]),
        np.array([1, 4]),
        mask,
        torch.tensor(mask),
        np.array(mask),
    ):
        chosen = store[indices]  # type: ignore[index]
        assert [graph_of(chosen, g) for g in range(len(chosen))] == expected
    assert graph_of(store[-1], 0) == graph_of(store[np.int64(4)], 0) == graph_of(store, 4)  # type: ignore[index]
    nothing = store[[]]
    assert (len(nothing), nothing.num_nodes, nothing.num_edges) == (0, 0, 0)


@pytest.mark.parametrize("wrong", [5, -6, [0, 9]])
def test_indices_out_of_range_are_refused(wrong: int | list[int]) -> None:
    with pytest.raises(ArgumentError, match=r"GraphStore: 'indices' must be from 0 to 4, got \["):
        make()[wrong]


def test_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'indices' must be a mask of length 5, got 2\."):
        make()[[True, False]]


# ---------------------------------------------------------------------- sizes, moving, showing
def test_sizes_are_those_of_the_graphs() -> None:
    store = make(3)
    graphs = [graph_of(store, g) for g in range(len(store))]
    assert store.sizes.tolist() == [graph["n"] for graph in graphs]
    assert store.num_nodes == sum(store.sizes.tolist())
    assert 2 * store.num_edges == sum(len(graph["edges"]) for graph in graphs)  # type: ignore[arg-type]
    assert store.node_graph.tolist() == [g for g, graph in enumerate(graphs) for _ in range(graph["n"])]  # type: ignore[call-overload]
    assert store.num_classes == 3
    assert store.device == torch.device("cpu")


def test_a_store_that_is_where_it_should_be_is_not_copied() -> None:
    store = make()
    assert store.to("cpu") is store
    assert store.to(torch.device("cpu")) is store


def test_unchecked_values_replace_fields_and_share_the_arrays() -> None:
    store = make()
    assert store.max_size
    bare = store.with_unchecked(name="bare", y=None, class_names=(), node_labels=None)
    assert (bare.name, bare.y, bare.node_labels, bare.num_classes) == ("bare", None, None, 0)
    assert bare.neighbours is store.neighbours
    assert (bare.num_nodes, bare.max_size, len(bare)) == (store.num_nodes, store.max_size, len(store))
    assert store.y is not None


def test_to_moves_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    store = make()
    devices = []

    def copy(
        self: torch.Tensor, device: object, **_: bool
    ) -> torch.Tensor:  # stands for a move to another device
        devices.append(device)
        return self.clone()

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "to", copy)
        moved = store.to("meta")
    names = ("node_ptr", "edge_ptr", "neighbours", "y", *COLUMNS)
    pairs = [(getattr(store, name), getattr(moved, name)) for name in names]
    for before, after in [*pairs, (store.truth["part"], moved.truth["part"])]:
        assert torch.equal(before, after)
        assert before.data_ptr() != after.data_ptr()
    assert devices == ["meta"] * 10
    assert moved.class_names == ("a", "b", "c")


def test_smiles_follow_their_graphs() -> None:
    store = replace(make(), smiles=("C", "N", "O", "F", "S"))
    assert store[[3, 0, 0]].smiles == ("F", "C", "C")
    assert store[-1].smiles == ("S",)
    assert store[torch.tensor([False, True, False, False, True])].smiles == ("N", "S")
    assert store.to("cpu").smiles == store.with_catalogue_name("MUTAG").smiles == store.smiles
    assert truncate_nodes(store, 1).store.smiles == store.smiles
    assert make()[[1, 2]].smiles is None
    with pytest.raises(ShapeError, match=r"GraphStore: 'smiles' must have 5 entries, got 1\."):
        replace(store, smiles=("C",))


def test_the_featurizer_follows_the_graphs() -> None:
    store = replace(make(), featurizer="standard")
    copies = [store[[3, 0]], store.to("cpu"), store.with_catalogue_name("MUTAG"), store.with_nodes()]
    copies += [truncate_nodes(store, 1).store, move_to_device(store, torch.ones(1), torch.device("cpu"))[0]]
    assert {copy.featurizer for copy in copies} == {"standard"}
    assert make().featurizer is None


@pytest.mark.parametrize(("device", "asynchronous"), [("meta", True), ("cpu", False)])
def test_copies_to_the_host_are_complete(
    device: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asynchronous copy from a GPU to the host may be read before it is complete."""
    store, flags, copy = make(), set(), torch.Tensor.to
    monkeypatch.setattr(GraphStore, "device", torch.device("cuda"))

    def record(tensor: torch.Tensor, *args: Any, non_blocking: bool = False, **kwargs: Any) -> torch.Tensor:
        flags.add(non_blocking)
        return copy(tensor, "cpu")

    monkeypatch.setattr(torch.Tensor, "to", record)
    store.to(device)
    assert flags == {asynchronous}
    flags.clear()
    Structure(columns=torch.ones(2, 1)).to(device)
    assert flags == {asynchronous}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_batch_on_the_gpu_equals_the_cpu() -> None:
    store = make()
    x = torch.randn(store.num_nodes, 2)
    on_cpu, on_gpu = store.batch(x, [[0, 1], [2, -1]]), store.to("cuda").batch(x.cuda(), [[0, 1], [2, -1]])
    assert on_gpu.x.is_cuda
    assert torch.equal(on_cpu.x, on_gpu.x.cpu())
    assert torch.equal(on_cpu.edges.node, on_gpu.edges.node.cpu())
    assert torch.equal(on_cpu.segments.index, on_gpu.segments.index.cpu())


def test_edges_are_kept_as_bits_up_to_a_size() -> None:
    """The size of the largest graph is limited as well as the total: bits grow with the square of the nodes."""

    def path(nodes: int) -> GraphStore:
        i = torch.arange(nodes - 1)
        edges = clean_edges(i, i + 1, nodes)
        return GraphStore.from_clean_edges("path", torch.tensor([0, nodes]), edges)

    assert path(65).bit_words == 65 * 3
    assert path(MAX_BIT_NODES).bit_words == MAX_BIT_NODES * MAX_BIT_NODES // 32 <= MAX_BIT_WORDS
    assert path(MAX_BIT_NODES + 1).bit_words is None
    assert path(65).bits is None  # only GPU kernels read them


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_bits_on_a_gpu_follow_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = planted_parts(num_graphs=6)
    assert graphs.to("cuda").bits is not None
    monkeypatch.setattr("graphcaps.data.store.MAX_BIT_NODES", graphs.max_size - 1)
    assert graphs.to("cuda").bits is None


def test_repr_lists_sizes_and_columns() -> None:
    pair = torch.tensor([[0], [1]])
    store = store_from_graphs([GraphArrays(3, pair, "x", edge_weight=torch.ones(1))], "tiny")
    assert repr(store) == "GraphStore('tiny', graphs=1, classes=1, nodes=3, edges=1, edge_weight=[2])"


def test_columns_of_wrong_length_are_refused() -> None:
    ptr, none = torch.tensor([0, 2]), torch.empty(0, dtype=torch.int32)
    with pytest.raises(ShapeError, match=r"GraphStore: 'edge_ptr' must have 3 rows, got 2\."):
        GraphStore("wrong", ptr, torch.tensor([0, 0]), none)
    edges = torch.tensor([0, 0, 0])
    for name, rows in (("node_labels", 2), ("edge_weight", 0), ("y", 1)):
        with pytest.raises(ShapeError, match=rf"GraphStore: '{name}' must have {rows} rows, got 7\."):
            GraphStore("wrong", ptr, edges, none, **{name: torch.zeros(7, 1)})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"'node_ptr' must ascend, got a descending step at graph 1\."):
        GraphStore("wrong", torch.tensor([0, 3, 2]), edges, none)
    with pytest.raises(ArgumentError, match=r"'edge_ptr' must ascend from 0 to 1, got values from 0 to 0\."):
        GraphStore("wrong", torch.tensor([0, 0]), torch.tensor([0]), torch.zeros(1, dtype=torch.int32))


def test_slices_are_ranges_and_fractions_are_refused() -> None:
    store = planted_parts(num_graphs=9)
    assert torch.equal(store[2:8:3].node_ptr, store[[2, 5]].node_ptr)
    assert torch.equal(store[-2:].neighbours, store[[7, 8]].neighbours)
    assert len(store[9:]) == 0
    with pytest.raises(ArgumentError, match=r"'indices' must hold integers, got \[0\.5\]\."):
        store[[0.5]]  # type: ignore[list-item]


def test_wrong_arrays_are_refused() -> None:
    node_ptr, edge_ptr = torch.tensor([0, 2]), torch.tensor([0, 1, 2])
    with pytest.raises(ArgumentError, match=r"'neighbours' must be from 0 to 1 in entry 1, got 2000000000\."):
        GraphStore("x", node_ptr, edge_ptr, torch.tensor([1, 2_000_000_000]))
    with pytest.raises(ArgumentError, match=r"'edge_ptr' must ascend from 0 to 2, got a descending step\."):
        GraphStore("x", node_ptr, torch.tensor([0, 3, 2]), torch.tensor([1, 0]))
    with pytest.raises(ArgumentError, match=r"'edge_ptr' must ascend from 0 to 2, got values from 1 to 2\."):
        GraphStore("x", node_ptr, torch.tensor([1, 1, 2]), torch.tensor([1, 0]))
    path, ends = torch.tensor([0, 3]), torch.tensor([0, 1, 3, 4])  # nodes 0 – 1 – 2
    GraphStore("x", path, ends, torch.tensor([1, 0, 2, 1]))
    for wrong in (2, 0), (0, 0):
        message = (
            rf"'neighbours' must ascend for each node, got {wrong[1]} after {wrong[0]} in entry 2\. Make the store"
            r" with GraphStore\.from_clean_edges\."
        )
        with pytest.raises(ArgumentError, match=message):
            GraphStore("x", path, ends, torch.tensor([1, *wrong, 1]))
    with pytest.raises(ShapeError, match=r"'node_labels' must have two axes, got \[2\]\."):
        GraphStore("x", node_ptr, edge_ptr, torch.tensor([1, 0]), node_labels=torch.tensor([1, 2]))
    with pytest.raises(ShapeError, match=r"'truth\[part\]' must have shape \[2\], got \[3\]\."):
        GraphStore("x", node_ptr, edge_ptr, torch.tensor([1, 0]), truth={"part": torch.zeros(3)})


def test_batch_refuses_a_mask() -> None:
    store = planted_parts(num_graphs=3)
    x = torch.ones(store.num_nodes, 1)
    with pytest.raises(
        ArgumentError, match=r"'graphs' must hold integers, got torch\.bool\. Use mask\.nonzero"
    ):
        store.batch(x, torch.tensor([True, False, True]))


@pytest.mark.parametrize("y", ["a", [0, 1], torch.tensor(1)])
def test_a_column_that_is_no_tensor_is_refused(y):
    store = planted_parts(num_graphs=3)
    with pytest.raises(ArgumentError, match=r"^GraphStore: 'y' must be a tensor with 3 rows, got "):
        replace(store, y=y)


def test_names_of_columns_stay_with_the_graphs():
    store = replace(make(), source_columns={"node_labels": ("atom",)})
    assert (
        store[[1, 0]].column_names("node_labels") == store.to("cpu").column_names("node_labels") == ("atom",)
    )
    assert store.column_names("node_attributes") is None
    assert replace(store, node_labels=None).column_names("node_labels") is None
    with pytest.raises(ArgumentError, match="'source_columns' must hold 1 different names for 'node_labels'"):
        replace(store, source_columns={"node_labels": ("atom", "charge")})
    with pytest.raises(ArgumentError, match="'source_columns' must have the keys node_labels"):
        replace(store, source_columns={"y": ("class",)})


def test_a_part_of_a_store_costs_what_the_part_has(monkeypatch):
    store = random_graphs([3] * 50, seed=0).as_store()
    expected = store[[7, 4]]

    def small(name):
        read = getattr(GraphStore, name).fget

        def value(self):
            assert len(self) < 50, f"{name} of all graphs"
            return read(self)

        return property(value)

    for name in ("sizes", "degree"):
        monkeypatch.setattr(GraphStore, name, small(name))
    part = store[[7, 4]]
    assert torch.equal(part.neighbours, expected.neighbours)
    assert torch.equal(part.edge_ptr, expected.edge_ptr)
