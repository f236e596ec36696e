"""The explorer page in a browser, with a running server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from graphcaps.inference.fitted_model import FittedModel
from tests.browser.axe import broken_rules
from tests.serve.models import molecule_model, node_link, saved
from tests.small_models import planted, small_model

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'graphcaps[serve]'")
pytest.importorskip(
    "python_multipart", reason="python-multipart is not installed: pip install 'graphcaps[serve]'"
)


@contextmanager
def serving(fitted: FittedModel, folder: Path) -> Iterator[str]:
    """The address of a running ``graphcaps serve``."""
    command = [sys.executable, "-m", "graphcaps", "serve", str(saved(fitted, folder, "m")), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match is not None
        yield match[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def address(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(small_model(), tmp_path_factory.mktemp("small")) as url:
        yield url


@pytest.fixture(scope="module")
def molecules(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(molecule_model(), tmp_path_factory.mktemp("molecules")) as url:
        yield url


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens an address; the page must not write to the console or send requests to another host."""
    opened, messages, urls = [], [], []

    def go(address: str, *, width: int = 1280, dark: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        opened.append((context, address))
        page = context.new_page()
        page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(f"error: {error}"))
        page.on("request", lambda request: urls.append(request.url))
        page.goto(f"{address}/")
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        return page

    yield go
    unexpected = [
        line for line in messages if "422 (Unprocessable" not in line
    ]  # the browser logs these itself
    assert unexpected == []
    for context, address in opened:
        assert all(url.startswith((f"{address}/", "data:,")) for url in urls), urls
        context.close()


def wait_done(page: Any) -> None:
    page.wait_for_selector('#state:has-text("Done")', timeout=120_000)


def test_a_pasted_smiles_shows_class_and_levels(molecules: str, open_page: Any) -> None:
    page = open_page(molecules)
    page.fill("#text", "c1ccccc1O")
    page.keyboard.press("Control+Enter")
    wait_done(page)
    from graphcaps.data.readers.molecules import from_smiles

    expected = str(molecule_model().predict(from_smiles(["c1ccccc1O"]))[0])
    assert page.text_content("#facts .fact:first-child dd") == expected
    assert page.text_content("#graph-title") == "c1ccccc1O"
    assert page.locator("svg.graph .node").count() == 7
    assert page.locator("svg.coarse .capsule").count() == 4
    assert page.locator("svg.flow .block").count() == 1 + 4 + 1 + 2  # with the mean capsule
    names = page.eval_on_selector_all("svg.graph .node text", "all => all.map((t) => t.textContent)")
    assert sorted(names) == [""] * 6 + ["OH"]  # a skeleton, as chemists draw it
    assert page.locator("svg.molecule .bond").count() == 7 + 3  # three of seven bonds are double
    # Again, with two valid SMILES and an invalid one.
    page.fill("#text", "CCO\n\nnothing\nCCCN")
    page.click("#go")
    page.wait_for_selector(".failed", timeout=120_000)
    assert "Graph 2 (nothing)" in page.text_content(".failed")
    assert page.locator('#list [role="option"]').count() == 2
    page.focus("#list")
    page.keyboard.press("ArrowDown")
    assert page.text_content("#graph-title") == "CCCN"


@pytest.mark.parametrize("width", [1400, 390])
def test_no_rule_of_axe_is_broken(molecules: str, open_page: Any, axe_source: str, width: int) -> None:
    page = open_page(molecules, width=width)
    page.fill("#text", "c1ccccc1O\nCCCN")
    page.click("#go")
    wait_done(page)
    page.wait_for_selector("svg.molecule")
    assert page.locator(".card", has_text="Counterfactuals").count()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.wait_for_timeout(300)  # until the page has scrolled
    assert broken_rules(page, axe_source) == []


def test_files_are_chosen_and_dropped(address: str, open_page: Any, tmp_path: Path) -> None:
    page = open_page(address, dark=True)
    network = nx.Graph((link["source"], link["target"]) for link in node_link(planted(), 0)["links"])
    nx.write_graphml(network, tmp_path / "g.graphml")
    page.set_input_files("#file", tmp_path / "g.graphml")
    wait_done(page)
    assert page.text_content("#graph-title") == "g.graphml"
    assert page.text_content("#facts .fact:first-child dd") == str(small_model().predict(planted()[0])[0])
    body = json.dumps({"graphs": [node_link(planted(), graph) for graph in range(5)]})
    page.evaluate(
        """(text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "five.json"));
          document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        body,
    )
    page.wait_for_selector('#state:has-text("5 graphs")', timeout=120_000)
    assert page.locator('#list [role="option"]').count() == 5
    page.hover('#chips [data-capsule="0"]')
    lit = page.locator("svg.graph .node.lit").count()
    tops = page.eval_on_selector_all("svg.graph .node text", "all => all.map((t) => t.textContent)")
    assert lit == tops.count("1")


def test_errors_are_shown_on_the_page(address: str, open_page: Any, tmp_path: Path) -> None:
    page = open_page(address, width=390)
    page.click("#go")
    assert "text box is empty" in page.text_content("#fault:not([hidden])")
    page.fill("#text", '{"nodes": [')
    page.click("#go")
    page.wait_for_selector('#fault:has-text("expected valid JSON")', timeout=120_000)
    assert page.is_hidden("#results")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.fill("#text", json.dumps(node_link(planted(), 1)))
    page.keyboard.press("Control+Enter")
    wait_done(page)
    assert page.is_hidden("#fault")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_tab_reaches_everything_in_order(address: str, open_page: Any) -> None:
    page = open_page(address)
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.name || document.activeElement.className || 'a'"
            )
        )
    assert reached == ["skip", "a", "text", "go", "file", "column", "ignore"]


def test_the_docs_page_works_offline(address: str, open_page: Any) -> None:
    page = open_page(address)
    page.click("text=Use it from a program")
    page.wait_for_selector("h2")
    assert "/predict" in page.text_content("main")
    assert address in page.text_content("pre >> nth=0")
