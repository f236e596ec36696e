"""``docs/comparison.md``: says what beats HGCN, works with some cells missing, and is current."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.measure_comparison import RESULTS, write_failures
from benchmarks.pages import comparison
from benchmarks.pages.build import PAGES, ROOT, problems

from graphcaps.evaluation import RecordKey, ResultsStore
from tests.comparison.test_comparison import GIN, HGCN, MAJORITY, made
from tests.evaluation.records import record


def build(root: Path) -> str:
    comparison.comparison.cache_clear()
    return comparison.page(root)


def test_the_stored_page_is_current() -> None:
    for page in PAGES:
        if "comparison" in page.path:
            comparison.comparison.cache_clear()
            assert problems(page, ROOT) == []


def test_the_page_says_what_beats_hgcn_and_what_is_missing(tmp_path: Path) -> None:
    results = ResultsStore(tmp_path / RESULTS)
    for dataset in ("MUTAG", "PTC_MR"):
        results.add(made(dataset, "hgcn", HGCN))
        results.add(made(dataset, "gin", GIN))
    results.add(made("MUTAG", "majority", MAJORITY))
    paper = record(0, "paper", "PTC_MR")
    results.add(replace(paper, key=RecordKey("PTC_MR", "gcn", "paper", 0)))
    write_failures(tmp_path / RESULTS, {"MUTAG, wl, held-out": "too large"})
    text = build(tmp_path)
    assert "| MUTAG | 78.8 | gin +11.2 | gin | 1 of 2 |" in text
    assert "| **hgcn** | 78.8 ± 4.8 | 78.8 ± 4.8 |" in text
    assert "| gin | 90.0 ± 4.1\\* | 90.0 ± 4.1\\* |" in text
    assert "| majority | 50.0 ± 4.1\\* | – |" in text
    assert "Mean ranks: gin 1.0, hgcn 2.0" in text
    assert "- MUTAG, wl, held-out: too large" in text
    assert "{{" not in text
    assert "<polyline" in comparison.picture(tmp_path)
    comparison.comparison.cache_clear()


def test_without_records_there_is_still_a_page(tmp_path: Path) -> None:
    assert comparison.NOTHING in build(tmp_path)
    assert comparison.picture(tmp_path).startswith("<svg")
    comparison.comparison.cache_clear()
