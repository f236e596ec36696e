"""The page ``/docs``, made from ``/openapi.json``; it loads nothing from another host."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
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
    """The page as HTML.

    Args:
        schema (dict): The OpenAPI schema, as ``/openapi.json`` has it.
        address (str): Address of the server in the example commands.
    """
    info, models = schema["info"], schema.get("components", {}).get("schemas", {})
    sections = [
        _section(path, method, operation, models, address)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
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
<p class="lead"><a href="./">Explorer page</a> · <a href="openapi.json">openapi.json</a> · version {version}</p>
</div></header>
<main class="wrap docs">
{"".join(sections)}
</main>
</body>
</html>
"""


def _section(path: str, method: str, operation: dict[str, Any], models: dict[str, Any], address: str) -> str:
    """One route: what it does, examples, options, bodies and responses."""
    parts = [
        f'<section><h2><span class="verb">{html.escape(method.upper())}</span> {html.escape(path)}</h2>',
        f"<p>{html.escape(operation.get('description', ''))}</p>",
        *(f"<pre>{html.escape(line.replace('{address}', address))}</pre>" for line in _CURL.get(path, ())),
    ]
    if operation.get("parameters"):
        rows = [(one["name"], _type(one["schema"]), one["description"]) for one in operation["parameters"]]
        parts += ["<h3>Options in the query string</h3>", _table(("name", "values", "meaning"), rows)]
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        bodies = [(name, _body(one["schema"])) for name, one in content.items()]
        parts += ["<h3>Body</h3>", _table(("content type", "content"), bodies)]
        example = content.get("application/json", {}).get("example")
        if example:
            parts.append(f"<pre>{html.escape(json.dumps(example, indent=1))}</pre>")
    for status, response in operation.get("responses", {}).items():
        description = html.escape(response["description"])
        parts.append(f"<h3>Response {html.escape(status)}</h3><p>{description}</p>")
        fields = list(_fields(response["content"]["application/json"]["schema"], models))
        if status == "200":
            parts.append(_table(("field", "type", "meaning"), fields))
    return "\n".join([*parts, "</section>"])


def _fields(
    schema: dict[str, Any], models: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Path, type and meaning of every field, nested ones included."""
    schema = _resolve(schema, models)
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix}{name}", _type(_resolve(field, models)), field.get("description", "")
        yield from _fields(field.get("items", {}), models, f"{prefix}{name}[].")


def _resolve(schema: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference names."""
    reference = schema.get("$ref")
    return schema if reference is None else models[reference.rpartition("/")[2]]


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    return " or ".join(schema["enum"]) if "enum" in schema else schema.get("type", "any")


def _body(schema: dict[str, Any]) -> str:
    if schema.get("format") == "binary":
        return "the file"
    fields = ", ".join(schema["properties"])
    return f"{schema.get('description', 'Files of any of these formats.')} Fields: {fields}."


def _table(headings: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    """A table whose first column is code."""
    head = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in headings)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
        lines.append(f"<tr><td><code>{html.escape(first)}</code></td>{cells}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
