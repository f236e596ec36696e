"""Accessibility rules of axe-core (npm package, for these tests only) on an open page."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graphcaps._io.user_folders import user_folder

__all__ = ["axe_source", "broken_rules"]

VERSION = "4.14.0"
_SECONDS = 60  # for the download


@cache
def _find_source() -> str | None:
    """The script: the file that $GRAPHCAPS_AXE names, else the npm package, downloaded once."""
    named = os.environ.get("GRAPHCAPS_AXE")
    if named:
        return Path(named).read_text("utf-8") if Path(named).is_file() else None
    folder = user_folder("cache") / "axe-core" / VERSION
    script = folder / "axe.min.js"
    if not script.is_file():
        npm = shutil.which("npm")
        if npm is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", f"axe-core@{VERSION}", "--pack-destination", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS, cwd=folder)
        except (subprocess.SubprocessError, OSError):
            return None
        with tarfile.open(folder / f"axe-core-{VERSION}.tgz") as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            partial = script.with_suffix(f".{os.getpid()}")
            partial.write_bytes(member.read())
            partial.replace(script)
    return script.read_text("utf-8")


@pytest.fixture(scope="session")
def axe_source() -> str:
    """The script of axe-core, or a reason to skip."""
    source = _find_source()
    if source is None:
        pytest.skip("axe-core cannot be had: install npm, or name axe.min.js in GRAPHCAPS_AXE")
    return source


def broken_rules(page: Any, source: str) -> list[str]:
    """The rules of WCAG 2.2 A and AA and of good practice that a page breaks, with the elements.

    The script is evaluated by the debugger, which the page's content security policy does not concern.
    """
    page.evaluate(source)
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{rule['id']} ({rule['help']}): {', '.join(node['html'][:160] for node in rule['nodes'][:4])}"
        for rule in result["violations"]
    ]
