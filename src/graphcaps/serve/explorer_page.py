"""The explorer page: its own form, and the report's scripts and style for everything that is drawn."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from graphcaps._io.provenance import library_versions
from graphcaps.serve.limits import Limits

__all__ = ["explorer_page", "page_parts"]

_REPORT = "graphcaps.explanation.report"
_OWN = ("request", "results", "start")


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("page", name).read_text("utf-8")


def page_parts() -> dict[str, str]:
    """What the page takes from the report, with its own beside it: ``script``, ``style`` and ``markup``.

    It is asked for in the process that computes, which has imported the report already.
    """
    from graphcaps.explanation.report.report_page import SCRIPTS

    # The last script of the report starts the report; this page starts itself.
    shared = [_read(_REPORT, f"{name}.js") for name in SCRIPTS if name != "main"]
    joined = "\n".join([*shared, *(_read(__package__, f"{name}.js") for name in _OWN)])
    markup = re.search(r'<div class="explorer">.*?(?=</section>)', _read(_REPORT, "page.html"), re.DOTALL)
    assert markup is not None, "the report's page has no explorer"
    return {
        "script": f'(() => {{\n"use strict";\n{joined}\n}})();\n',
        "style": _read(_REPORT, "page.css") + _read(__package__, "serve.css"),
        "markup": markup[0],
    }


def explorer_page(name: str, model: Mapping[str, Any], limits: Limits, markup: str) -> str:
    """The page.

    Args:
        name (str): What the model is called.
        model (mapping): From :func:`graphcaps.serve.responses.describe_model`.
        limits (Limits): What the page says of them.
        markup (str): Place of the list of graphs and of the chosen one, from :func:`page_parts`.
    """
    pieces = {
        "title": html.escape(name),
        "lead": html.escape(_lead(model)),
        "expects": html.escape(_expects(model)),
        "limits": html.escape(
            f"At most {limits.max_bytes / 1e6:g} MB and {limits.max_graphs} graphs at once, "
            f"of {limits.max_nodes:,} nodes each."
        ),
        "version": library_versions()["graphcaps"],
        "explorer": markup,
    }
    # In one pass: a name that looks like a place to fill in stays a name.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: pieces[match[1]], _read(__package__, "serve.html"))


def _lead(model: Mapping[str, Any]) -> str:
    names = [str(name) for name in model["classes"]]
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    source = f" Trained on {model['trained_on']}." if model["trained_on"] else ""
    return f"{len(names)} classes: {listed}.{source}"


def _expects(model: Mapping[str, Any]) -> str:
    expects = model["expects"]
    labels, attributes = expects["node_label_columns"], expects["node_attributes"]
    if not labels and not attributes:
        return "The model reads nodes and edges alone."
    parts = []
    if labels:
        parts.append("a label" if labels == 1 else f"{labels} labels")
    if attributes:
        parts.append("an attribute" if attributes == 1 else f"{attributes} attributes")
    return f"Every node needs {' and '.join(parts)}, as in training."
