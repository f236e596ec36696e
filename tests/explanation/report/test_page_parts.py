"""The page in a browser: capsule cards, parts of parts, counterfactuals, and graphs with many nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.explanation import capsule_cards
from graphcaps.explanation.counterfactual import Counterfactual, Counterfactuals
from graphcaps.explanation.report import write_report
from tests.explanation.synthetic import FakeModel, make_explanations, make_store

HOSTILE = ("<img src=x onerror=alert(1)>", "no", "maybe")


@pytest.fixture(scope="module")
def explained() -> tuple[Any, Any]:
    store = make_store(30, class_names=HOSTILE)
    return store, make_explanations(store, capsules=(6, 3))


@pytest.fixture(scope="module")
def report(explained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store, explanations = explained
    change = Counterfactual("removal", (0, 2), ((1, 4),), True, "", 1, "no", 0.75)
    smaller = Counterfactual("replacement", (3,), ((1, 0),), False, "one node", 2, "maybe", 0.5, "<b>CC</b>")
    found = {2: Counterfactuals((change, smaller), 12, 3), 4: Counterfactuals((), 7, 0)}
    return write_report(
        tmp_path_factory.mktemp("parts"),
        FakeModel(store.class_names, {"dataset": "synthetic"}),
        store,
        explanations,
        counterfactuals=found,
    )


def lit(page: Any) -> set[int]:
    return set(
        page.eval_on_selector_all("svg.graph .node.lit", "all => all.map((n) => Number(n.dataset.node))")
    )


def test_cards_show_use_classes_and_typical_groups(visit: Any, report: Path, explained: Any) -> None:
    store, explanations = explained
    cards = [card for card in capsule_cards(explanations, store).cards if card.level == 1]
    page = visit(report)
    assert page.locator(".capsule-card").count() == sum(card.groups > 0 for card in cards)
    most = max(cards, key=lambda card: (card.graph_share, -card.capsule))
    words = page.locator(".capsule-card").first.text_content().replace("\u00a0", " ")
    assert f"Capsule {most.capsule + 1} of level 1" in words
    assert f"In {100 * most.graph_share:.0f} % of the graphs" in words
    assert f"{most.groups} groups of {most.kinds} kinds, purity {100 * most.purity:.0f} %" in words
    first = page.locator(".capsule-card figure").first
    assert first.locator("svg.group .node").count() == most.typical[0].nodes
    assert first.locator("svg.group .edge").count() == most.typical[0].edges
    assert "<img src=x" in words  # as text
    # A typical group leads to its graph.
    graph, _ = most.typical[0].examples[0]
    first.locator("button").click()
    assert page.text_content("#graph-title") == f"Graph {graph + 1}"
    page.check('input[name="cards-level"][value="1"]', force=True)
    assert "of level 2" in page.locator(".capsule-card").first.text_content()


def test_capsules_beyond_the_first_six_are_shown_on_request(visit: Any, tmp_path: Path) -> None:
    store = make_store(12)
    explanations = make_explanations(store, capsules=(9,))
    used = sum(card.groups > 0 for card in capsule_cards(explanations, store).cards)
    assert used > 6
    page = visit(write_report(tmp_path, FakeModel(store.class_names, {}), store, explanations))
    assert page.locator(".capsule-card").count() == 6
    page.get_by_role("button", name=f"Show all {used} capsules").click()
    assert page.locator(".capsule-card").count() == used


def test_parts_of_parts_are_opened_level_by_level(visit: Any, report: Path, explained: Any) -> None:
    one = explained[1][0]
    page = visit(report)
    low, high = one.levels[0].capsule.numpy(), one.levels[1].capsule.numpy()
    paths = high[low]
    top = page.locator(".tree > li > details")
    numbers = [int(text.split("-")[1]) for text in top.evaluate_all("all => all.map((d) => d.dataset.tree)")]
    assert sorted(numbers) == sorted(set(paths.tolist()))
    parent = numbers[0]
    summary = page.locator(f'[data-tree="1-{parent}"] > summary')
    summary.hover()
    assert lit(page) == set(np.flatnonzero(paths == parent).tolist())
    # By keyboard: focus highlights, Enter opens.
    page.hover("h1")
    summary.focus()
    assert lit(page) == set(np.flatnonzero(paths == parent).tolist())
    page.keyboard.press("Enter")
    children = sorted({int(j) for j in low[paths == parent]})
    page.wait_for_selector(f'[data-tree="0-{children[0]}"]')
    inner = page.locator(f'[data-tree="1-{parent}"] [data-tree^="0-"]')
    assert (
        sorted(inner.evaluate_all("all => all.map((d) => Number(d.dataset.tree.split('-')[1]))")) == children
    )
    page.locator(f'[data-tree="0-{children[0]}"] > summary').press("Enter")
    listed = page.locator(f'[data-tree="0-{children[0]}"] .tree-nodes')
    listed.wait_for()
    expected = ", ".join(str(node + 1) for node in np.flatnonzero(low == children[0]))
    assert listed.text_content() == f"Nodes {expected}"
    # Both levels have a coarse graph.
    assert page.locator(".card > svg.coarse").count() == 2


def test_counterfactuals_highlight_their_nodes(visit: Any, report: Path) -> None:
    page = visit(report)
    assert page.locator(".change").count() == 0
    page.click('[role=option][data-graph="2"]')
    texts = [text.replace("\u00a0", " ") for text in page.locator(".change").all_text_contents()]
    assert texts[0] == "no, 75 %Without nodes 1, 3 (capsule 5 of level 1)"
    assert texts[1] == "maybe, 50 %With one node in place of node 4 (in capsule 1 of level 1)<b>CC</b>"
    page.locator(".change").first.focus()
    assert lit(page) == {0, 2}
    page.locator(".change").nth(1).hover()
    assert lit(page) == {3}
    page.click('[role=option][data-graph="4"]')
    card = page.locator(".card", has_text="Counterfactuals").text_content()
    assert "none of 7 edits changes the class" in card


def test_graphs_with_many_nodes_show_their_capsules_first(visit: Any, tmp_path: Path) -> None:
    store = make_store(1, nodes=(5000, 5000))
    explanations = make_explanations(store, capsules=(8,))
    model = FakeModel(store.class_names, {})
    page = visit(write_report(tmp_path, model, store, explanations))
    assert page.locator("svg.graph").count() == 0
    assert page.locator(".card > svg.coarse .capsule").count() == 2 * 8
    assert "5,000\u00a0nodes" in page.text_content("#draw-all")
    page.hover('#chips [data-capsule="2"]')
    count = int((explanations.capsule == 2).sum())
    assert f"{count:,}\u00a0nodes" in page.text_content("#hint")
    page.click("#draw-all")
    assert page.locator("svg.graph .node").count() == 5000
    page.hover('#chips [data-capsule="2"]')
    assert len(lit(page)) == count


def test_single_nodes_and_graphs_without_edges_are_drawn(visit: Any, tmp_path: Path) -> None:
    store = make_store(3, nodes=(1, 1))
    page = visit(write_report(tmp_path, FakeModel(store.class_names, {}), store, make_explanations(store)))
    assert page.locator("svg.graph .node").count() == 1
    assert page.locator("svg.coarse .capsule:not(.vacant)").count() == 1
    assert page.locator(".capsule-card figure svg.group .node").count() >= 1


def test_one_routing_iteration_leaves_the_tree_out(visit: Any, tmp_path: Path) -> None:
    store = make_store(4)
    explanations = make_explanations(store, capsules=(4, 2), iterations=1)
    page = visit(write_report(tmp_path, FakeModel(store.class_names, {}), store, explanations))
    card = page.locator(".card", has_text="Parts of parts").text_content()
    assert "no node belongs to a capsule more than to another" in card


def test_older_models_without_hashes_are_described(visit: Any, tmp_path: Path, explained: Any) -> None:
    store, explanations = explained
    model = FakeModel(store.class_names, {"dataset": store.name})
    page = visit(write_report(tmp_path, model, store, explanations, used_in=None))
    assert "the model file does not record which" in page.text_content("#caveats")
    unlabelled = replace(explanations, true_class=torch.full((len(store),), -1))
    page = visit(write_report(tmp_path, model, store, unlabelled))
    assert "of each predicted class" in page.locator(".capsule-card").first.text_content()
