"""The page of a comparison in a browser: it sorts, draws, and asks for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphcaps.comparison.comparison import Comparison, ComparisonCell
from graphcaps.comparison.comparison_page import comparison_page
from graphcaps.evaluation import Ledger
from tests.comparison.test_comparison import GIN, HGCN, made
from tests.evaluation.records import record


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    trained = record(0)
    cells = [
        ComparisonCell(name, model, Ledger((made(name, model, right),)))
        for name in ("A", "B")
        for model, right in (("hgcn", HGCN), ("gin", GIN))
    ]
    curves = replace(trained, key=replace(trained.key, dataset="A", variant="gcn"))
    cells.append(ComparisonCell("A", "gcn", Ledger((curves,))))
    cells.append(ComparisonCell("B", "gcn", None, "<b>why</b>"))
    return Comparison(cells)


def test_the_page_sorts_and_is_whole(comparison: Comparison, tmp_path: Path, visit: Any) -> None:
    path = tmp_path / "index.html"
    path.write_text(comparison_page(comparison, title="A & {{script}}"), "utf-8")
    page = visit(path)
    assert page.inner_text("h1") == "A & {{script}}"
    names = "section:nth-of-type(1) tbody tr td:first-child"
    assert page.locator(names).all_inner_texts() == ["gin", "hgcn", "gcn"]
    first = page.locator("section:nth-of-type(1) thead th").first
    first.locator("button").click()
    assert page.locator(names).all_inner_texts() == ["gcn", "gin", "hgcn"]
    assert first.get_attribute("aria-sort") == "ascending"
    first.locator("button").click()
    assert page.locator(names).all_inner_texts() == ["hgcn", "gin", "gcn"]
    column = page.locator("section:nth-of-type(1) thead th").nth(1).locator("button")
    column.click()  # the highest accuracy first
    assert page.locator(names).all_inner_texts()[0] == "gin"
    assert page.locator(".ranks svg polyline").count() == 2
    assert page.locator(".charts svg .curve").count() == 2
    assert "<b>why</b>" in page.inner_text("main")
    assert page.locator("tr.base").count() >= 2


def test_the_page_needs_no_network_and_no_held_out_records(comparison: Comparison) -> None:
    text = comparison_page(comparison)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    paper = record(0, "paper")
    only = Comparison([ComparisonCell("MUTAG", "hgcn", Ledger((paper,)))])
    assert "test accuracy" in comparison_page(only)


def test_a_narrow_page_scrolls_tables_and_the_picture_inside_it(
    comparison: Comparison, tmp_path: Path, visit: Any
) -> None:
    path = tmp_path / "index.html"
    path.write_text(comparison_page(comparison), "utf-8")
    page = visit(path, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(".ranks svg").bounding_box()["width"] >= 640
    # The name of a model stays in sight when its row is scrolled.
    table = page.locator("section.dataset .scroll").first
    table.evaluate("element => element.scrollLeft = element.scrollWidth")
    assert page.locator("section.dataset td.model").first.bounding_box()["x"] >= 0


def test_models_of_equal_rank_are_all_named(comparison: Comparison) -> None:
    cells = [
        ComparisonCell(name, model, Ledger((made(name, model, HGCN),)))
        for name in ("A", "B")
        for model in ("hgcn", "gin")
    ]
    assert "<dd>hgcn, gin</dd>" in comparison_page(Comparison(cells))
