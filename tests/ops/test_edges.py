"""Edges against a dictionary of pairs, row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcaps.errors import ShapeError
from graphcaps.ops import degrees, neighbour_sum, to_edge_index
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.edges import (
    CleanEdges,
    EdgeReport,
    _is_symmetric,
    clean_edges,
    edge_table,
    edge_table_from_list,
    repeat_edges,
)
from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.types import EdgeList
from tests.graphs import assert_equal, random_graphs

Row = tuple[int, int, int, int]  # source, target, weight, label


@st.composite
def listed(draw: st.DrawFn) -> tuple[int, list[Row]]:
    """A number of nodes and rows among them: directed, repeated, looped, with weights and labels that differ."""
    n = draw(st.integers(1, 6))
    node, small = st.integers(0, n - 1), st.integers(0, 3)
    return n, draw(st.lists(st.tuples(node, node, small, small), max_size=20))


def clean(n: int, rows: list[Row]) -> CleanEdges:
    table = torch.tensor(rows, dtype=torch.long).reshape(-1, 4)
    weight = table[:, 2].double()
    return clean_edges(
        table[:, 0],
        table[:, 1],
        n,
        weight=weight,
        labels=table[:, 3:],
        attributes=torch.stack([weight, -weight], dim=1),
    )


@settings(max_examples=60)
@given(listed())
def test_clean_edges_equals_a_dictionary_of_pairs(case: tuple[int, list[Row]]) -> None:
    n, rows = case
    real = [row for row in rows if row[0] != row[1]]
    pairs: dict[frozenset[int], list[Row]] = {}
    for row in real:
        pairs.setdefault(frozenset(row[:2]), []).append(row)
    entries = sorted((a, b) for pair in pairs for a in pair for b in pair if a != b)
    actual = clean(n, rows)

    source = torch.arange(n).repeat_interleave(actual.ptr[1:] - actual.ptr[:-1]).tolist()
    assert actual.ptr.numel() == n + 1
    assert list(zip(source, actual.neighbours.tolist(), strict=True)) == entries
    assert actual.weight is not None
    assert actual.labels is not None
    assert actual.attributes is not None
    for entry, pair in enumerate(entries):
        spoken = pairs[frozenset(pair)]
        mean = sum(row[2] for row in spoken) / len(spoken)
        assert float(actual.weight[entry]) == pytest.approx(mean, abs=1e-12)
        assert actual.attributes[entry].tolist() == pytest.approx([mean, -mean], abs=1e-12)
        assert actual.labels[entry].tolist() == [spoken[0][3]]  # the first row that names the pair

    ordered = Counter((row[0], row[1]) for row in real)
    assert actual.report == EdgeReport(
        rows=len(rows),
        self_loops=len(rows) - len(real),
        looped_nodes=len({row[0] for row in rows if row[0] == row[1]}),
        repeated=sum(count - 1 for count in ordered.values()),
        one_way=sum((b, a) not in ordered for a, b in ordered),
        conflicting_labels=sum(len({row[3] for row in spoken}) > 1 for spoken in pairs.values()),
        edges=len(pairs),
    )


@given(listed())
def test_structure_does_not_depend_on_columns_or_order(case: tuple[int, list[Row]]) -> None:
    n, rows = case
    full, table = clean(n, rows), torch.tensor(rows, dtype=torch.long).reshape(-1, 4).flip(0)
    bare = clean_edges(table[:, 0], table[:, 1], n)
    assert torch.equal(bare.ptr, full.ptr)
    assert torch.equal(bare.neighbours, full.neighbours)
    assert (bare.weight, bare.labels, bare.attributes) == (None, None, None)
    assert bare.report.as_dict() | {"conflicting_labels": 0} == full.report.as_dict() | {
        "conflicting_labels": 0
    }


def test_clean_edges_are_clean_already() -> None:
    once = clean(4, [(0, 1, 2, 1), (2, 1, 3, 0), (3, 3, 1, 1), (1, 0, 4, 1)])
    source = torch.arange(4).repeat_interleave(once.ptr[1:] - once.ptr[:-1])
    again = clean_edges(
        source, once.neighbours, 4, weight=once.weight, labels=once.labels, attributes=once.attributes
    )
    for name in ("ptr", "neighbours", "weight", "labels", "attributes"):
        assert torch.equal(getattr(again, name), getattr(once, name))
    assert again.report == EdgeReport(rows=4, edges=2)


def test_weights_of_both_directions_are_averaged_by_hand() -> None:
    actual = clean(3, [(0, 1, 1, 5), (1, 0, 3, 6), (2, 1, 7, 5)])
    assert actual.weight is not None
    assert actual.weight.tolist() == [2, 2, 7, 7]
    assert actual.labels is not None
    assert actual.labels.squeeze(1).tolist() == [5, 5, 5, 5]
    assert actual.report == EdgeReport(rows=3, one_way=1, conflicting_labels=1, edges=2)


@pytest.mark.parametrize("n", [1, 3])
def test_no_edges(n: int) -> None:
    empty = torch.empty(0, dtype=torch.long)
    actual = clean_edges(empty, empty, n, weight=torch.empty(0), labels=empty[:, None])
    assert actual.ptr.tolist() == [0] * (n + 1)
    assert actual.neighbours.numel() == 0
    assert actual.weight is not None
    assert actual.weight.numel() == 0
    assert actual.report == EdgeReport()


def test_one_node_with_loops_alone() -> None:
    zeros = torch.zeros(3, dtype=torch.long)
    actual = clean_edges(zeros, zeros, 1, weight=torch.ones(3), attributes=torch.ones(3, 2))
    assert actual.ptr.tolist() == [0, 0]
    assert actual.attributes is not None
    assert list(actual.attributes.shape) == [0, 2]
    assert actual.report == EdgeReport(rows=3, self_loops=3, looped_nodes=1)


# ---------------------------------------------------------------------- the table of one batch
def test_edge_table_reads_a_torch_geometric_batch() -> None:
    table = edge_table(torch.tensor([[0, 1, 3, 3], [1, 2, 4, 3]]), 6)
    assert table.ptr.tolist() == [0, 1, 3, 4, 5, 6, 6]
    assert table.neighbours.tolist() == [1, 0, 2, 1, 4, 3]
    assert table.node.tolist() == list(range(6))
    assert table.first.tolist() == [0] * 6
    assert table.weight is None
    assert table.num_entries == 6


def test_gradient_reaches_every_row_that_counts() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]])
    weight = torch.tensor([1.0, 3.0, 5.0, 7.0], dtype=torch.float64, requires_grad=True)
    table = edge_table(edges, 3, weight)
    assert table.weight is not None
    assert table.weight.tolist() == [2, 2, 5, 5]
    (table.weight * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [5.5, 5.5, 1100, 0]  # a mean of two, a pair of entries, a removed loop
    torch.autograd.gradcheck(lambda w: edge_table(edges, 3, w).weight, weight)


def test_edge_table_without_edges() -> None:
    table = edge_table(torch.empty(2, 0, dtype=torch.long), 1)
    assert table.ptr.tolist() == [0, 0]
    assert table.num_entries == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_a_list_in_any_order_gives_the_table_of_its_edges(weighted: bool) -> None:
    graphs = random_graphs([6, 1, 9, 4])
    node = torch.arange(20, dtype=torch.float64)
    source, target = to_edge_index(graphs.edges)
    shuffled = torch.randperm(len(source), generator=torch.Generator().manual_seed(2))
    source, target = source[shuffled], target[shuffled]
    weight = 1 + node[source] * node[target] if weighted else None
    expected = edge_table(torch.stack([source, target]), 20, weight)
    actual = edge_table_from_list(EdgeList(source, target, weight), 20)
    assert torch.equal(actual.ptr, expected.ptr)
    assert torch.equal(actual.neighbours, expected.neighbours)  # ascending for each node
    assert actual.num_entries == expected.num_entries
    assert_equal(degrees(actual), degrees(expected), "degrees")
    for mode in ("auto", "reference"):
        with use_kernels(mode):  # type: ignore[arg-type]
            assert_equal(neighbour_sum(graphs.x, actual), neighbour_sum(graphs.x, expected), mode)
    pairs = edge_list(actual)
    assert pairs.source is source
    assert torch.equal(to_edge_index(actual), torch.stack([source, target]))


@pytest.mark.parametrize(
    ("edges", "weight", "text"),
    [
        (torch.zeros(3, 2), None, r"'edge_index' must have the shape \[2, E\], got \[3, 2\]\."),
        (torch.zeros(2), None, r"'edge_index' must have the shape \[2, E\], got \[2\]\."),
        (torch.zeros(2, 3), torch.ones(2), r"'edge_weight' must have one number per edge, 3, got \[2\]\."),
        (
            torch.zeros(2, 3),
            torch.ones(3, 1),
            r"'edge_weight' must have one number per edge, 3, got \[3, 1\]\.",
        ),
        (torch.tensor([[0], [4]]), None, r"'edge_index' must hold node ids from 0 to 3, got 0 to 4\."),
        (torch.tensor([[0], [-1]]), None, r"'edge_index' must hold node ids from 0 to 3, got -1 to 0\."),
    ],
)
def test_edge_table_refuses_wrong_shapes(edges: torch.Tensor, weight: torch.Tensor | None, text: str) -> None:
    with pytest.raises(ShapeError, match=f"edge_table: {text}"):
        edge_table(edges, 4, weight)


@pytest.mark.parametrize("lead", [(), (2,)], ids=["one", "replicas"])
def test_repeated_edges_are_those_of_each_copy(lead):
    graphs = random_graphs([4, 6])
    store, count = graphs.as_store(), torch.Size(lead).numel()
    batch = store.batch(graphs.x, torch.tensor([0, 1]).expand(*lead, 2))
    x = torch.randn(*lead, 3, 10, 5, dtype=torch.float64)
    copies = repeat_edges(batch.edges, 3)
    assert copies.num_entries == (None if batch.edges.num_entries is None else 3 * batch.edges.num_entries)
    expected = torch.stack([neighbour_sum(x[..., c, :, :], batch.edges) for c in range(3)], -3)
    assert_equal(neighbour_sum(x, copies), expected)
    listed = replace(batch.edges, pairs=edge_list(batch.edges))
    assert edge_list(repeat_edges(listed, 3)).source.numel() == 3 * count * store.neighbours.numel()
    with use_kernels("reference"):
        assert_equal(neighbour_sum(x, repeat_edges(listed, 3)), expected)


@pytest.mark.parametrize("reverse", [True, False], ids=["both directions", "some one way"])
def test_large_tables_are_transposed_to_the_same_result(
    monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    pairs = torch.randint(0, 40, (300, 2), generator=torch.Generator().manual_seed(0))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if reverse:
        pairs = torch.cat([pairs, pairs.flip(1)])
    source, target = torch.unique(pairs, dim=0).T  # sorted and distinct
    expected = clean_edges(source, target, 41)
    monkeypatch.setattr("graphcaps.ops.edges._LARGE_TABLE", 1)
    actual = clean_edges(source, target, 41)
    assert _is_symmetric(source, target, 41) is reverse
    assert (actual.report.one_way == 0) is reverse
    assert actual.report == expected.report
    assert torch.equal(actual.ptr, expected.ptr)
    assert torch.equal(actual.neighbours, expected.neighbours)


def test_a_directed_cycle_is_not_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every node has one edge from it and one to it."""
    monkeypatch.setattr("graphcaps.ops.edges._LARGE_TABLE", 1)
    source, target = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    assert not _is_symmetric(source, target, 3)
    assert clean_edges(source, target, 3).report.one_way == 3
