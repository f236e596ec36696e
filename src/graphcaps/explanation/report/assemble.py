"""The page from its pieces: markup, style, scripts and data in one file that loads nothing.

The policy names the style and the script by their hash and allows nothing else, so that neither a class name nor
anything that got into the file later can run or ask the network. Text from users is in the data block, which the
scripts write as text; the title alone stands in the markup, escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources

from graphcaps.versions import library_versions

__all__ = ["SCRIPTS", "assemble_page", "page_script"]

SCRIPTS = (
    *("dom", "data", "colours", "layout", "filter", "list", "filters_view", "graph_view", "coarse_view"),
    *("flow_view", "chips", "tools", "node_tables", "axes", "quality", "measures", "explorer", "main"),
)
"""Scripts in the order in which they are joined."""


@cache
def _resource(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text("utf-8")


@cache
def page_script() -> str:
    """All scripts in one function, so that their names meet no others."""
    joined = "\n".join(_resource(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{joined}\n}})();\n'


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def assemble_page(title: str, block: str) -> str:
    """The whole page.

    Args:
        title (str): What stands in the tab and on top; any text.
        block (str): From :func:`pack_block`.
    """
    style, script = _resource("page.css"), page_script()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    pieces = {
        "policy": policy,
        "version": library_versions()["graphcaps"],
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "style": style,
        "script": script,
        "data": block,
    }
    # In one pass: a title that looks like a place to fill in stays a title.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: pieces[match[1]], _resource("page.html"))
