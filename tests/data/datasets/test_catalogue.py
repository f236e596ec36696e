"""The catalogue: its entries, and how names are resolved."""

from __future__ import annotations

import hashlib

import pytest

from graphcaps.data.datasets.catalogue import CATALOGUE, find_entry, similar_names
from graphcaps.data.datasets.molecule_tasks import MOLECULE_TASKS
from graphcaps.data.datasets.planted_parts import LEVELS, planted_parts

PAPER = [name for name, entry in CATALOGUE.items() if not entry.embedded]


def test_it_holds_the_papers_eleven_and_the_embedded_sets():
    assert len(PAPER) == 11
    embedded = [name for name, entry in CATALOGUE.items() if entry.embedded]
    assert embedded == [
        "planted-parts",
        *(f"planted-parts-{level}" for level in LEVELS),
        *("ba-2motifs", "ba-multishapes", *MOLECULE_TASKS),
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MUTAG", "MUTAG"),
        ("mutag", "MUTAG"),
        ("imdb_binary", "IMDB-BINARY"),
        ("D&D", "DD"),
        ("PTC-MR", "PTC_MR"),
        ("Planted_Parts", "planted-parts"),
    ],
)
def test_case_and_punctuation_do_not_matter(written, meant):
    entry = find_entry(written)
    assert entry is not None
    assert entry.name == meant


@pytest.mark.parametrize("unknown", ["PTC", "MUTAGG", "NCI", "", "AIDS"])
def test_a_similar_name_is_not_resolved(unknown):
    assert find_entry(unknown) is None


@pytest.mark.parametrize(
    ("written", "similar"),
    [("PTC", "PTC_MR"), ("MUTAGG", "MUTAG"), ("IMDB", "IMDB-MULTI"), ("redit-binary", "REDDIT-BINARY")],
)
def test_similar_names(written, similar):
    assert similar in similar_names(written)


def test_nothing_is_similar_to_nonsense():
    for name in ("zzzzzzzz", "nofile", "foo", "data", "graphs"):
        assert similar_names(name) == ()


def test_checksums_are_sha256_and_all_different():
    stated = [entry.collection_sha256 for entry in CATALOGUE.values() if entry.collection_sha256]
    measured = [CATALOGUE[name].measured_sha256 for name in PAPER]
    assert all(len(text) == 64 and int(text, 16) for text in stated + measured)
    # The zips of this project were packed again, so that none is identical to that of the collection.
    assert len(set(stated + measured)) == len(stated) + len(measured) == 21


@pytest.mark.parametrize("name", PAPER)
def test_measured_zips_are_those_of_the_shared_folder(name, shared_data):
    digest = hashlib.sha256((shared_data / f"{name}.zip").read_bytes()).hexdigest()
    assert digest == CATALOGUE[name].measured_sha256


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_sizes_of_the_embedded_sets(level):
    store, entry = planted_parts(level), CATALOGUE[f"planted-parts-{level}"]
    assert (len(store), store.num_classes) == (entry.graphs, entry.classes)
