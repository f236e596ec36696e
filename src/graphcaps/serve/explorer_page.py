"""The explorer page: a form of its own, and the scripts and style of the report for the drawings."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from graphcaps._io.provenance import library_versions
from graphcaps.serve.limits import Limits

__all__ = ["explorer_page", "page_assets"]

_REPORT = "graphcaps.explanation.report"
_SCRIPTS = ("request", "results", "start")


def page_assets() -> dict[str, str]:
    """Parts of the page that include parts of the report: ``script``, ``style`` and ``markup``.

    The worker process calls it, because it has imported the report and with it torch.
    """
    from graphcaps.explanation.palette import palette_script
    from graphcaps.explanation.report.report_page import SCRIPTS, page_style

    # The report's last script starts the report; this page has its own start.
    report_scripts = [_read(_REPORT, f"{name}.js") for name in SCRIPTS if name != "main"]
    joined = "\n".join([*report_scripts, *(_read(__package__, f"{name}.js") for name in _SCRIPTS)])
    markup = re.search(r'<div class="explorer">.*?(?=</section>)', _read(_REPORT, "page.html"), re.DOTALL)
    assert markup is not None, "the report's page has no explorer"
    return {
        "script": f'(() => {{\n"use strict";\n{palette_script()}{joined}\n}})();\n',
        "style": page_style() + _read(__package__, "serve.css"),
        "markup": markup[0],
    }


def explorer_page(name: str, model: Mapping[str, Any], limits: Limits, markup: str) -> str:
    """The page as HTML.

    Args:
        name (str): Name of the model.
        model (mapping): Result of :func:`graphcaps.serve.responses.describe_model`.
        limits (Limits): Limits that the page shows.
        markup (str): The part with the graphs, from :func:`page_assets`.
    """
    values = {
        "title": html.escape(name),
        "lead": html.escape(_describe_classes(model)),
        "expects": html.escape(_describe_input(model)),
        "limits": html.escape(
            f"At most {limits.max_bytes / 1e6:g} MB and {limits.max_graphs} graphs per request, "
            f"{limits.max_nodes:,} nodes per graph."
        ),
        "version": library_versions()["graphcaps"],
        "explorer": markup,
    }
    # One pass, so that a model name that contains {{…}} is not filled in.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _read(__package__, "serve.html"))


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath("page", name).read_text("utf-8")


def _describe_classes(model: Mapping[str, Any]) -> str:
    names = [str(name) for name in model["classes"]]
    listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    source = f" Trained on {model['trained_on']}." if model["trained_on"] else ""
    return f"{len(names)} classes: {listed}.{source}"


def _describe_input(model: Mapping[str, Any]) -> str:
    expects = model["expects"]
    labels, attributes = expects["node_label_columns"], expects["node_attributes"]
    if expects["featurizer"] is not None:
        return f"The model reads SMILES (featurizer {expects['featurizer']})."
    if not labels and not attributes:
        return "The model uses nodes and edges only."
    parts = []
    if labels:
        parts.append("a label" if labels == 1 else f"{labels} labels")
    if attributes:
        parts.append("an attribute" if attributes == 1 else f"{attributes} attributes")
    return f"Every node needs {' and '.join(parts)}, as in the training set."
