"""The best published accuracies: nothing that chooses on test data, and the highest of what is listed."""

from __future__ import annotations

import pytest
from benchmarks.published_accuracies import (
    CHOOSES_NOTHING,
    LEFT_OUT,
    NOT_IN_SOURCE,
    PUBLICATIONS,
    best_published,
    quoted_accuracies,
)

from graphcaps.reproduction.paper_systems import PAPER_SYSTEMS, find_system
from graphcaps.reproduction.published import paper_datasets, published, systems


@pytest.mark.parametrize("dataset", paper_datasets())
def test_no_listed_system_is_higher(dataset: str) -> None:
    best, network = best_published(dataset), best_published(dataset, networks=True)
    assert best is not None
    assert network is not None
    assert network.is_network
    assert network.value <= best.value
    for system in PAPER_SYSTEMS:
        for table in (1, 2):
            quote = published(table, system.row, dataset) if system.row in systems(table) else None
            if quote is None or system.selection not in CHOOSES_NOTHING or system.row in LEFT_OUT:
                continue
            assert quote.mean <= best.value or (system.row, dataset) in NOT_IN_SOURCE, system.row
    assert all(each.accuracies.get(dataset, 0) <= best.value for each in PUBLICATIONS)


def test_what_chooses_on_test_data_is_left_out() -> None:
    sources = {each.source for name in paper_datasets() for each in quoted_accuracies(name)}
    assert sources
    for row in ("GIN", "GFN", "GCN", "GCAPS-CNN", "PSCN", "Ours", *LEFT_OUT):
        system = find_system(row)
        assert system is not None
        assert not any(source.startswith(row) for source in sources), row


def test_kernels_count_but_are_no_networks() -> None:
    best, network = best_published("NCI109"), best_published("NCI109", networks=True)
    assert best is not None
    assert (best.value, best.is_network) == (86.3, False)
    assert network is not None
    assert network.value == 75.6
    assert best_published("planted-parts") is None
