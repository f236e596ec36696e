"""A real browser for tests: Chromium where one is installed, a reason to skip where none is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Visit", "browser", "find_chromium", "visit"]

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def find_chromium() -> str | None:
    """The browser named by $GRAPHCAPS_CHROMIUM, or the first one on the path."""
    named = os.environ.get("GRAPHCAPS_CHROMIUM")
    if named:
        return shutil.which(named)
    paths = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in paths if path), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A Chromium without a window, one for all tests of a process."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium found: install one, or name it in GRAPHCAPS_CHROMIUM")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield started
        started.close()


@dataclass
class Visit:
    """An open page, with its console messages and requested addresses."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens a file in a new window: ``visit(path, width=…, dark=…)``.

    It may say nothing on the console and ask for nothing but itself, unless ``clean=False``.
    """
    contexts, visits = [], []

    def open_page(
        path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, clean: bool = True
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        opened = Visit(page)
        page.on("console", lambda message: opened.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: opened.messages.append(f"error: {error}"))
        page.on("request", lambda request: opened.requests.append(request.url))
        if clean:
            visits.append((opened, path.as_uri()))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        return page

    yield open_page
    for opened, address in visits:
        assert opened.messages == []
        assert {url.partition("#")[0] for url in opened.requests} == {address}
    for context in contexts:
        context.close()
