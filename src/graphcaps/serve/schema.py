"""What ``/openapi.json`` says of requests and answers; ``/docs`` is written from it."""

from __future__ import annotations

from typing import Any

from graphcaps.serve.limits import Limits
from graphcaps.serve.request_graphs import CONTENT_TYPES

__all__ = ["SUMMARIES", "answers", "description", "operation"]

SUMMARIES = {
    "predict": "Class and probabilities of each graph.",
    "explain": "From which parts each class was decided.",
    "health": "What is served, and for how long.",
}

_NODE_LINK = {
    "nodes": [{"id": 0, "label": 1}, {"id": 1, "label": 1}, {"id": 2, "label": 2}],
    "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2}],
}
_GRAPH = {
    "type": "object",
    "description": "A node-link graph: entries 'label' are categories, other numbers on every node are attributes.",
    "required": ["nodes", "links"],
    "properties": {
        "nodes": {"type": "array", "items": {"type": "object", "required": ["id"]}},
        "links": {"type": "array", "items": {"type": "object", "required": ["source", "target"]}},
        "directed": {"type": "boolean"},
    },
}
_BODY = {
    "type": "object",
    "description": "Either graphs or smiles.",
    "properties": {
        "graphs": {"type": "array", "description": "Node-link graphs.", "items": _GRAPH},
        "smiles": {
            "type": "array",
            "description": "Molecules, each as a SMILES.",
            "items": {"type": "string"},
        },
    },
}
_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}, "nullable": True}


def _text(words: str, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "description": words}


_COMMON = {
    "graph": _text("Number of the graph in the request, from 1.", "integer"),
    "name": _text("What its source calls it: a file, a line, a SMILES, or its number."),
    "error": _text("Why this graph has no answer; null where it has one."),
}
_PREDICTION = {
    **_COMMON,
    "class": _text("The most probable class, or null."),
    "probability": _text("Its probability.", "number"),
    "probabilities": _NUMBERS | {"description": "Probability of each class."},
    "lengths": _NUMBERS
    | {"description": "Length of each class capsule ('scores' in a model without capsules)."},
    "out_of_distribution": _text(
        "Why the graph lies outside the applicability domain; null if it lies inside, or if the model has no profile."
    ),
}
_EXPLANATION = {
    **_COMMON,
    "predicted": _text("The predicted class."),
    "target": _text("The class that scores are for."),
    "probabilities": _text("Of each class, in the order of 'class_names'.", "array"),
    "node_scores": _text("How far each node speaks for the class (above 0) or against it.", "array"),
    "edges": _text("Each edge once, as a pair of nodes counted from 0.", "array"),
    "edge_scores": _text("The same as node_scores, of edges.", "array"),
    "levels": _text("Per level: assignment, rounds, capsule, lengths, adjacency.", "array"),
}
_ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "predict": ("predictions", _PREDICTION),
    "explain": ("explanations", _EXPLANATION),
}


def description(limits: Limits) -> str:
    """Sentences on top of the schema."""
    return (
        f"One model, on this machine. A request holds at most {limits.max_bytes / 1e6:g} MB and {limits.max_graphs} "
        f"graphs of at most {limits.max_nodes:,} nodes each and {limits.max_total_nodes:,} together, and takes at most "
        f"{limits.max_seconds:g} s. A graph that cannot be read gets an error of its own; where none can be read, "
        'and at anything else that is wrong, the answer is {"error": "one sentence"}.'
    )


def operation(kind: str) -> dict[str, Any]:
    """Parameters and body of a POST, for FastAPI's ``openapi_extra``."""
    parameters = [
        _parameter(
            "unseen", ["refuse", "ignore"], "Labels that training never saw: an error, or read as zeros."
        ),
        _parameter("column", None, "Column of a CSV with the SMILES; smiles unless named."),
    ]
    if kind == "explain":
        parameters.append(
            _parameter("target", None, "Class that scores are for; the predicted one unless named.")
        )
    file = {"schema": {"type": "string", "format": "binary"}}
    example = {"graphs": [_NODE_LINK]}
    content: dict[str, Any] = {"application/json": {"schema": _BODY, "example": example}}
    content |= {name: file for name in CONTENT_TYPES if name != "application/json"}
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    content["multipart/form-data"] = {"schema": {"type": "object", "properties": {"file": files}}}
    return {"parameters": parameters, "requestBody": {"required": True, "content": content}}


def answers(kind: str) -> dict[int | str, dict[str, Any]]:
    """Answers of a POST, for FastAPI's ``responses``."""
    name, fields = _ANSWERS[kind]
    row = {"type": "object", "properties": fields}
    whole = {
        "type": "object",
        "properties": {
            "classes": {"type": "array", "items": {"type": "string"}, "description": "All classes."},
            name: {"type": "array", "items": row},
        },
    }
    error = {"type": "object", "properties": {"error": {"type": "string"}}}
    told: dict[int | str, dict[str, Any]] = {200: _answer("An entry for every graph.", whole)}
    for status, words in {
        413: "The request is too large, or holds too many graphs or nodes.",
        415: "The body is of a kind that is not read.",
        422: "What was sent cannot be read, or is not what it says.",
        503: "It took too long, or too many requests wait.",
    }.items():
        told[status] = _answer(words, error)
    return told


def _answer(words: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _parameter(name: str, choices: list[str] | None, words: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if choices:
        schema |= {"enum": choices, "default": choices[0]}
    return {"name": name, "in": "query", "required": False, "description": words, "schema": schema}
