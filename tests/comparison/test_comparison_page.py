"""The page of a comparison in a browser: it sorts, draws, and asks for nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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


WARNING = "A: hgcn has hardly learned: its training accuracy (with dropout) is 50.0 %."


def warned(comparison: Comparison) -> Comparison:
    """The comparison, in which the baseline has hardly learned on one data set."""
    cells = [
        replace(cell, warning=WARNING if (cell.dataset, cell.model) == ("A", "hgcn") else "")
        for cell in comparison.cells.values()
    ]
    return Comparison(cells)


def test_a_model_that_has_hardly_learned_is_named_above_the_tables(
    comparison: Comparison, tmp_path: Path, visit: Any
) -> None:
    assert 'class="warnings"' not in comparison_page(comparison)
    path = tmp_path / "index.html"
    path.write_text(comparison_page(warned(comparison)), "utf-8")
    page = visit(path)
    assert page.locator(".warnings li").all_inner_texts() == [WARNING]
    box, table = page.locator(".warnings").bounding_box(), page.locator("table").first.bounding_box()
    assert box["y"] + box["height"] < table["y"]
    assert page.locator("body").inner_text().count(WARNING) == 1  # not among the explanations below
    assert "Caution: hgcn has hardly learned on A." in page.locator(".facts").inner_text()
    marks = page.locator("section.dataset tr.warned .mark")
    assert marks.all_inner_texts() == ["hardly learned"]
    assert page.locator("section.dataset tr.warned td.model").get_attribute("data-value") == "hgcn"
    assert page.locator("section:nth-of-type(2) tr.warned .mark").inner_text() == "hardly learned on A"


def test_models_of_a_data_set_have_one_axis() -> None:
    """The curves of one model begin at 20 %, those of the other at 80 %."""
    cells = []
    for model, low in (("hgcn", 0.2), ("gin", 0.8)):
        made_record = record(0)
        curves = made_record.curves
        rows = {
            name: np.round(
                np.linspace(low, 1, curves.num_epochs)
                * getattr(curves, f"{name.split('_')[0]}_graphs")[:, None]
            ).astype(int)
            for name in ("train_right", "validation_right")
        }
        key = replace(made_record.key, dataset="A", variant=model)
        cells.append(
            ComparisonCell(
                "A", model, Ledger((replace(made_record, key=key, curves=replace(curves, **rows)),))
            )
        )
    text = comparison_page(Comparison(cells))
    charts = re.findall(r"<h4>(\w+)</h4><svg.*?</svg>", text)
    assert charts == ["hgcn", "gin"]
    axes = [
        re.findall(r'class="tick end" x="29.0" y="[\d.]+">(\d+)<', chart)
        for chart in re.findall(r"<svg viewBox=\"0 0 236.*?</svg>", text)
    ]
    assert axes[0] == axes[1]
    assert axes[0][0] in ("10", "20")
    # The dropout of training is named.
    assert "training accuracy, during the epoch, with the dropout of the model" in text


def test_models_of_equal_rank_are_all_named(comparison: Comparison) -> None:
    cells = [
        ComparisonCell(name, model, Ledger((made(name, model, HGCN),)))
        for name in ("A", "B")
        for model in ("hgcn", "gin")
    ]
    assert "<dd>hgcn, gin</dd>" in comparison_page(Comparison(cells))
