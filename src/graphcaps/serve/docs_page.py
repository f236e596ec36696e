"""``/docs``: the schema as a page to read, with nothing from another place."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

__all__ = ["docs_page"]

_CURL = {
    "/predict": (
        """curl -H 'Content-Type: application/json' -d '{"smiles": ["CCO", "c1ccccc1N"]}' {address}/predict""",
        "curl -F file=@graphs.graphml {address}/predict",
        "curl -H 'Content-Type: text/csv' --data-binary @molecules.csv '{address}/predict?column=smiles'",
    ),
    "/explain": ("curl -F file=@graph.json '{address}/explain?unseen=ignore'",),
    "/health": ("curl {address}/health",),
}


def docs_page(schema: dict[str, Any], address: str = "http://127.0.0.1:8000") -> str:
    """The page.

    Args:
        schema (dict): As ``/openapi.json`` gives it.
        address (str): Where the examples send their requests.
    """
    info = schema["info"]
    sections = [
        _operation(path, method, told, address)
        for path, methods in schema["paths"].items()
        for method, told in methods.items()
    ]
    title, version = html.escape(info["title"]), html.escape(info["version"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
</head>
<body>
<header class="top"><div class="wrap docs">
<h1>{title}</h1>
<p class="lead">{html.escape(info["description"])}</p>
<p class="lead"><a href="./">The page</a> · <a href="openapi.json">openapi.json</a> · version {version}</p>
</div></header>
<main class="wrap docs">
{"".join(sections)}
</main>
</body>
</html>
"""


def _operation(path: str, method: str, told: dict[str, Any], address: str) -> str:
    parts = [
        f'<section><h2><span class="verb">{html.escape(method.upper())}</span> {html.escape(path)}</h2>',
        f"<p>{html.escape(told.get('summary', ''))}</p>",
        *(f"<pre>{html.escape(line.replace('{address}', address))}</pre>" for line in _CURL.get(path, ())),
    ]
    if told.get("parameters"):
        rows = [(one["name"], _kind(one["schema"]), one["description"]) for one in told["parameters"]]
        parts += ["<h3>Options in the address</h3>", _table(("name", "values", "meaning"), rows)]
    content = told.get("requestBody", {}).get("content", {})
    if content:
        rows = [(name, _body(one["schema"]), "") for name, one in content.items()]
        parts += ["<h3>Body</h3>", _table(("content type", "what it holds"), [row[:2] for row in rows])]
        example = content.get("application/json", {}).get("example")
        if example:
            parts.append(f"<pre>{html.escape(json.dumps(example, indent=1))}</pre>")
    for status, one in told.get("responses", {}).items():
        schema = one.get("content", {}).get("application/json", {}).get("schema", {})
        parts.append(f"<h3>Answer {html.escape(str(status))}</h3><p>{html.escape(one['description'])}</p>")
        rows = list(_fields(schema))
        if rows and str(status) == "200":
            parts.append(_table(("field", "type", "meaning"), rows))
    return "\n".join([*parts, "</section>"])


def _fields(schema: dict[str, Any], before: str = "") -> Iterable[tuple[str, str, str]]:
    """Fields and those inside them, by the way to them."""
    for name, one in schema.get("properties", {}).items():
        yield f"{before}{name}", _kind(one), one.get("description", "")
        if one.get("type") == "array":
            yield from _fields(one.get("items", {}), f"{before}{name}[].")


def _kind(schema: dict[str, Any]) -> str:
    return " or ".join(schema["enum"]) if "enum" in schema else schema.get("type", "any")


def _body(schema: dict[str, Any]) -> str:
    if schema.get("format") == "binary":
        return "the file itself"
    names = ", ".join(schema.get("properties", {}))
    return f"{schema.get('description', 'Files of any of these kinds.')} Fields: {names}."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    lines = [
        "<tr>" + "".join(f"<td>{f'<code>{html.escape(cell)}</code>' if not at else html.escape(cell)}</td>"
        for at, cell in enumerate(row)) + "</tr>"
        for row in rows
    ]  # fmt: skip
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
