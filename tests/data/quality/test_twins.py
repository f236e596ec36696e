"""Twins: worked examples, attributes beside labels, and the published percentages of small data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
import torch

import graphcaps
from graphcaps.data.convert.networkx_graphs import from_networkx
from graphcaps.data.quality.twins import has_twin, twin_colours
from graphcaps.data.splits.folds import Split, stratified_folds
from graphcaps.data.store import GraphStore


def store() -> GraphStore:
    """A path, the same path numbered the other way round, a star, a triangle with a tail, and the star again."""
    graphs = [
        nx.path_graph(4),
        nx.relabel_nodes(nx.path_graph(4), {0: 2, 1: 0, 2: 3, 3: 1}),
        nx.star_graph(3),
        nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)]),
        nx.star_graph(3),
    ]
    return from_networkx(graphs)


def split(train: list[int], validation: list[int] | None, test: list[int]) -> Split:
    parts = [None if part is None else torch.tensor(part) for part in (train, validation, test)]
    return Split(parts[0], parts[1], parts[2])  # type: ignore[arg-type]


def test_a_test_graph_with_the_colours_of_a_training_or_validation_graph_is_a_twin() -> None:
    colours = twin_colours(store())
    assert has_twin(colours, split([0, 3], None, [1, 2, 4])).tolist() == [True, False, False]
    # The second star is in the validation set; twins within the test set do not count.
    assert has_twin(colours, split([0, 3], [4], [1, 2])).tolist() == [True, True]
    assert has_twin(colours, split([3], None, [2, 4])).tolist() == [False, False]


def test_labels_count_and_attributes_only_without_labels() -> None:
    plain = store()
    values = torch.arange(plain.num_nodes, dtype=torch.float)[:, None]
    parts = split([0], None, [1])
    labelled = replace(plain, node_labels=torch.zeros(plain.num_nodes, 1, dtype=torch.long))
    assert has_twin(twin_colours(labelled), parts).tolist() == [True]
    assert has_twin(twin_colours(replace(labelled, node_attributes=values)), parts).tolist() == [True]
    assert has_twin(twin_colours(replace(plain, node_attributes=values)), parts).tolist() == [False]
    other = labelled.node_labels.clone()  # type: ignore[union-attr]
    other[0] = 1
    assert has_twin(twin_colours(replace(plain, node_labels=other)), parts).tolist() == [False]


def test_colours_of_a_store_are_computed_once() -> None:
    graphs = store()
    assert twin_colours(graphs) is twin_colours(graphs)


@pytest.mark.parametrize(
    ("name", "percent"),
    [("IMDB-MULTI", 80), ("IMDB-BINARY", 57), ("MUTAG", 11), ("PTC_MR", 8), ("PROTEINS", 5)],
)
def test_percentages_of_twins_are_the_known_ones(name: str, percent: int, shared_data: Path) -> None:
    graphs = graphcaps.load_dataset(name, root=shared_data)
    assert graphs.y is not None
    folds, colours = stratified_folds(graphs.y, seed=12345), twin_colours(graphs)
    twins = sum(int(has_twin(colours, folds.paper(fold)).sum()) for fold in range(10))
    assert round(100 * twins / len(graphs)) == percent
