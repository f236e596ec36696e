"""The page by axe-core's rules, by keyboard alone, and on screens of 1,400 and 390 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphcaps.explanation.counterfactual import Counterfactual, Counterfactuals
from graphcaps.explanation.report import write_report
from tests.browser.axe import broken_rules
from tests.explanation.synthetic import FakeModel, make_explanations, make_store

HISTORY = [{"epoch": e, "train_loss": 1 / e, "train_accuracy": 1 - 0.5 / e} for e in range(1, 6)]
METRICS = {"methods": {"capsules": {"nmi": 0.6}, "gradient": {"fidelity_plus": 0.2}}}
WIDTHS = (1400, 390)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = make_store(40)
    change = Counterfactual("removal", (0, 2), ((1, 1),), True, "", 1, "no", 0.75)
    return write_report(
        tmp_path_factory.mktemp("accessible"),
        FakeModel(store.class_names, {"dataset": "synthetic", "epoch": 2}),
        store,
        make_explanations(store, capsules=(6, 3)),
        metrics=METRICS,
        history=HISTORY,
        used_in=["test", "training", None, "validation"] * 10,
        counterfactuals={0: Counterfactuals((change,), 9, 0)},
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_no_rule_of_axe_is_broken(visit: Any, report: Path, axe_source: str, width: int, dark: bool) -> None:
    page = visit(report, width=width, dark=dark)
    for details in page.locator("details").all():
        details.evaluate("(d) => { d.open = true; }")
    page.wait_for_timeout(100)
    assert broken_rules(page, axe_source) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_does_not_scroll_sideways(visit: Any, report: Path, width: int) -> None:
    page = visit(report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_is_reached_by_keyboard_alone(visit: Any, report: Path) -> None:
    page = visit(report, width=1400)
    reached: list[str] = []
    seen = (
        "(() => { const e = document.activeElement; return [e.id, e.className, e.name ?? '', e.tagName]"
        ".map(String).join(' '); })()"
    )
    for _ in range(140):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(seen))
    text = "\n".join(reached)
    for part in (
        "find",
        "list",
        "colour",
        "level",
        "iteration",
        "chip",
        "SUMMARY",
        "change",
        "cards-level",
        "link",
    ):
        assert part in text, f"{part} is not reached"
    # The list by arrow keys, then the drawing, its parts and the counterfactual.
    page.focus("#list")
    page.keyboard.press("End")
    assert page.text_content("#graph-title") == "Graph 40"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "graph-title"
    summary = page.locator(".tree summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".tree details[open]").count() == 1
    page.locator(".change").first.focus()
    assert page.locator("svg.graph .node.lit").count() == 2
