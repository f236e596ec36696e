"""User-supplied names are rendered as text; the content security policy holds; large reports stay fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphcaps.explanation.report import explanation_page, write_report
from tests.explanation.synthetic import FakeModel, make_explanations, make_store

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "{{script}} ' & <b>\u2028\\u003c",
)


def test_names_are_rendered_as_text(visit: Any, tmp_path: Path) -> None:
    store = make_store(9, class_names=HOSTILE, name=HOSTILE[0])
    explanations = make_explanations(store)
    title = f"</title><script>alert(1)</script>{HOSTILE[1]} {{{{data}}}}"
    model = FakeModel(HOSTILE, {"dataset": HOSTILE[1]})
    path = write_report(
        tmp_path, model, store, explanations, title=title, metrics={HOSTILE[0]: {HOSTILE[1]: 1.0}}
    )
    text = path.read_text("utf-8")
    assert text.count("<script") == 2  # the data and the program
    assert 'onerror="' not in text
    page = visit(path)
    assert page.title() == title
    assert page.text_content("h1") == title
    assert page.locator("img, b").count() == 0
    panel_text = page.text_content("#panels")
    assert all(name in panel_text for name in HOSTILE)
    assert HOSTILE[0] in page.text_content("#metrics")


def test_the_content_security_policy_blocks_scripts_and_requests(visit: Any, tmp_path: Path) -> None:
    store = make_store(3)
    path = write_report(tmp_path, FakeModel(store.class_names), store, make_explanations(store))
    text = path.read_text("utf-8")
    assert "default-src 'none'" in text
    assert "unsafe" not in text.partition("</head>")[0].partition("<title>")[0]
    for word in ("http://", "https://", "//cdn", "@import", "url("):
        assert word not in text.replace("http://www.w3.org/2000/svg", "")
    # A script that is added to the file afterwards does not run.
    (tmp_path / "index.html").write_text(
        text.replace("</body>", "<script>document.title='in'</script></body>"), "utf-8"
    )
    page = visit(tmp_path / "index.html", clean=False)
    assert page.title() == "synthetic"
    blocked = page.evaluate(
        """new Promise((done) => {
        addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        fetch("https://example.org").catch(() => null); })"""
    )
    assert blocked == "connect-src"


def test_one_graph_has_a_page_of_its_own(visit: Any, tmp_path: Path) -> None:
    explanations = make_explanations(make_store(5))
    (tmp_path / "one.html").write_text(explanation_page(explanations[3]), "utf-8")
    page = visit(tmp_path / "one.html")
    assert page.text_content("h1") == "Graph 4"
    assert page.text_content("#graph-title") == "Graph 4"
    assert page.locator("svg.graph .node").count() == explanations[3].num_nodes
    assert page.is_hidden("#quality")
    assert page.is_hidden("#metrics")


def test_a_store_without_graphs_has_an_empty_page(visit: Any, tmp_path: Path) -> None:
    store = make_store(2)
    none = store[[]]
    path = write_report(tmp_path, FakeModel(store.class_names), none, make_explanations(none))
    page = visit(path)
    assert page.text_content("#graph-title") == "No graph selected"
    assert page.is_visible(".nothing")
    page.click(".nothing button")
    page.check('[name=colour][value="score"]')


@pytest.mark.slow
def test_five_thousand_graphs_stay_fast(visit: Any, tmp_path: Path) -> None:
    """At most 12 MB, 2 s until the page is ready and 50 ms for a filter: CPU time, since other tests run beside."""
    store = make_store(5000, nodes=(15, 45), labels=7)
    path = write_report(
        tmp_path, FakeModel(store.class_names), store, make_explanations(store, capsules=(10, 4))
    )
    assert path.stat().st_size < 12_000_000
    page = visit(path)
    assert page.locator("[role=option]").count() < 60  # only visible rows exist
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(entry["value"] for entry in metrics if entry["name"] == "TaskDuration")

    before = seconds()
    page.reload()
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    assert seconds() - before < 2
    before = seconds()
    page.evaluate(
        """(() => { const { filters } = graphcaps.explorer;
        for (const outcome of Array(10).fill(["wrong", "right", "all"]).flat()) {
          filters.form.elements.outcome.value = outcome; filters.changed(); } })()"""
    )
    assert (seconds() - before) / 30 < 0.05
    before = seconds()
    page.focus("#list")
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    assert page.text_content("#graph-title") == "Graph 21"
    assert seconds() - before < 5
