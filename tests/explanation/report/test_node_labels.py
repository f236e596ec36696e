"""Captions of node labels, and their text in nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphcaps.data.store import GraphStore
from graphcaps.explanation import capsule_cards
from graphcaps.explanation.node_labels import count_labels
from graphcaps.explanation.report import write_report
from tests.explanation.synthetic import FakeModel, make_explanations, make_store

NAMES = {0: "member", 1: "lead", 2: "manager"}


@pytest.mark.parametrize(
    ("words", "as_formula", "expected"),
    [
        (["C", "N", "C"], True, "C2 N"),
        (["member"] * 5, False, "5 × member"),
        (["member", "lead", "member"], False, "2 × member, 1 × lead"),
        (["7", "0/1", "7"], False, "2 × label 7, 1 × label 0/1"),
        ([""], False, "1 × (empty)"),
        (["f", "e", "d", "d", "c", "b", "a"], False, "2 × d, 1 × a, 1 × b, 1 × c, 2 × other labels"),
    ],
)
def test_labels_are_counted(words: list[str], as_formula: bool, expected: str) -> None:
    assert count_labels(words, as_formula=as_formula) == expected


def labelled_store(names: dict[int, str]) -> GraphStore:
    return replace(make_store(30, name="networks"), label_names=names)


def page_of(visit: Any, folder: Path, names: dict[int, str], **options: Any) -> tuple[Any, Any]:
    store = labelled_store(names)
    explanations = make_explanations(store)
    page = visit(write_report(folder, FakeModel(store.class_names), store, explanations), **options)
    return page, explanations


@pytest.mark.parametrize("width", [400, 1400])
def test_words_are_abbreviated_inside_their_nodes(visit: Any, tmp_path: Path, width: int) -> None:
    page, explanations = page_of(visit, tmp_path, NAMES, width=width)
    card = page.locator(".capsule-card")
    texts = card.locator("svg.group text").all_text_contents()
    assert set(texts) == {"me", "l", "ma"}
    outside = """() => [...document.querySelectorAll("svg.group")].flatMap((svg) => {
      const circles = [...svg.querySelectorAll("circle")].map((circle) => circle.getBBox());
      return [...svg.querySelectorAll("text")].map((text) => text.getBBox()).filter((box) => !circles.some((circle) =>
        box.x >= circle.x && box.x + box.width <= circle.x + circle.width));
    })"""
    assert page.evaluate(outside) == []
    assert set(card.locator("svg.group title").all_text_contents()) == set(NAMES.values())
    assert "me = member" in page.text_content("#capsules")
    # The explorer has the same texts, and a legend while it shows them.
    page.check('[name=names][value="label"]', force=True)
    drawn = page.locator("svg.graph .node text").all_text_contents()
    short = {"member": "me", "lead": "l", "manager": "ma"}
    assert drawn == [short[NAMES[int(label)]] for label in explanations[0].node_labels[:, 0]]
    assert "l = lead" in page.text_content("#panels")
    page.check('[name=names][value="capsule"]', force=True)
    assert "l = lead" not in page.text_content("#panels")


def test_captions_count_words_and_are_no_formula(visit: Any, tmp_path: Path) -> None:
    page, explanations = page_of(visit, tmp_path, NAMES)
    cards = capsule_cards(explanations, labelled_store(NAMES)).cards
    assert any("2 × member" in group.labels for card in cards for group in card.typical)
    captions = page.locator(".capsule-card figcaption strong").all_text_contents()
    assert not any("member2" in caption for caption in captions)
    assert any("2 × member" in caption for caption in captions)


def test_labels_without_a_short_form_are_not_written_into_nodes(visit: Any, tmp_path: Path) -> None:
    page, _ = page_of(visit, tmp_path, {0: "node-a", 1: "node-b", 2: "1234"})
    assert page.locator(".capsule-card svg.group text").count() == 0
    assert "hover a node for its label" in page.text_content("#capsules")


def test_element_symbols_stay_as_they_are(visit: Any, tmp_path: Path) -> None:
    page, _ = page_of(visit, tmp_path, {0: "C", 1: "Br", 2: "Cu2+"})
    assert set(page.locator(".capsule-card svg.group text").all_text_contents()) >= {"C", "Br"}
    assert page.locator("#capsules .note").count() == 2  # no legend of abbreviations
