"""What is answered: classes, explanations, and what the page draws, in JSON's own types."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from graphcaps.data.coerce import concat_stores
from graphcaps.data.datasets.element_labels import node_label_names
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.explanation import explain_store
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.explanation.report.report_data import Columns, explanation_columns, pack_block, smallest_type
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.predictions import predict_store
from graphcaps.serve.limits import Refused
from graphcaps.serve.request_graphs import Item

__all__ = ["Kind", "answer", "describe_model", "page_block"]


def page_block(found: StoreExplanation, items: Sequence[Item], numbers: Sequence[int]) -> str:
    """The data block of the page.

    Args:
        found (StoreExplanation): Graphs that have a class.
        items (sequence): All graphs of the request.
        numbers (sequence): Which of them each graph of ``found`` is, from 0.
    """
    last = len(found.rounds[0]) - 1
    columns, steps = explanation_columns(found, np.arange(len(found)), weights=range(1, last + 1))
    columns["number"] = np.asarray(numbers, dtype=np.uint32)
    meta = {
        "classes": list(found.class_names),
        "levels": [
            {"capsules": own.size(-1), "step": step}
            for own, step in zip(found.assignments, steps, strict=True)
        ],
        "rounds": last + 1,
        "names": [items[number].name for number in numbers],
        "molecules": all(items[number].smiles for number in numbers),
    }
    if found.node_labels is not None and found.node_labels.size(-1):
        names, label = _labels(found, [items[number] for number in numbers])
        columns |= label
        meta["labels"] = {"names": names}
    return pack_block(meta, columns)


def _labels(found: StoreExplanation, items: Sequence[Item]) -> tuple[list[str], Columns]:
    """Names of the different labels, and which of them each node has."""
    assert found.node_labels is not None
    different, place = np.unique(found.node_labels.numpy(), axis=0, return_inverse=True)
    texts = {code: text for item in items for code, text in item.texts.items()}
    molecules = all(item.smiles for item in items)
    kinds = [tuple(row) for row in different.tolist()]
    if molecules:
        names = node_label_names(kinds, atomic_numbers=True)
    else:
        names = ["/".join([texts.get(first, str(first)), *map(str, rest)]) for first, *rest in kinds]
    return names, {"label": place.reshape(-1).astype(smallest_type(len(different)))}


Kind = Literal["predict", "explain", "page"]


def describe_model(fitted: FittedModel) -> dict[str, Any]:
    """What the page and ``/health`` say of a model."""
    info = fitted.info()
    labels = info["expects"]["node_labels"]
    return {
        "kind": info["model"]["name"],
        "classes": info["class_names"],
        "parameters": info["model"]["parameters"],
        "explains": fitted.scores_are == "lengths",
        "calibrated": fitted.calibration is not None,
        "trained_on": fitted.training.get("dataset"),
        "expects": {
            "node_label_columns": len(labels),
            "node_labels": list(labels[0][:100]) if len(labels) == 1 else [],
            "node_attributes": info["expects"]["node_attributes"] or 0,
        },
    }


def answer(
    fitted: FittedModel,
    kind: Kind,
    items: Sequence[Item],
    *,
    unseen: Literal["refuse", "ignore"] = "refuse",
    target: str | None = None,
) -> dict[str, Any]:
    """The answer to one request.

    Args:
        fitted (FittedModel): The model.
        kind (str): ``"predict"``, ``"explain"``, or ``"page"`` for both and what the page draws.
        items (sequence): Its graphs.
        unseen (str): As in :meth:`FittedModel.scores`. (default: ``"refuse"``)
        target (str, optional): Class that node scores are for. (default: the predicted one)

    Raises:
        Refused: 422, if no graph can be read, or there is no such class.
    """
    rows, sound = _predict(fitted, items, unseen)
    if not sound:
        more = (
            f" (the first of {len(rows)}: {rows[0]['error']})" if len(rows) > 1 else f": {rows[0]['error']}"
        )
        raise Refused(422, f"request: expected a graph that the model can read, found none{more}.")
    told: dict[str, Any] = {"classes": list(fitted.class_names)}
    if kind == "predict":
        return told | {"predictions": rows}
    if kind == "page" and fitted.scores_are != "lengths":
        return told | {"predictions": rows, "block": None}
    store = _joined([items[number] for number in sound])
    if target is not None and target not in fitted.class_names:
        listed = ", ".join(fitted.class_names[:20])
        raise ArgumentError("explain", "target", f"be one of the classes {listed}", f"'{target[:60]}'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels that are read as zeros, which was asked for
        found = explain_store(fitted, store, target=target, unseen=unseen)
    if kind == "page":
        return told | {"predictions": rows, "block": page_block(found, items, sound)}
    explained = {number: found[place].as_dict() for place, number in enumerate(sound)}
    return told | {
        "explanations": [
            explained.get(number, {}) | {"graph": row["graph"], "name": row["name"], "error": row["error"]}
            for number, row in enumerate(rows)
        ]
    }


def _predict(
    fitted: FittedModel, items: Sequence[Item], unseen: Literal["refuse", "ignore"]
) -> tuple[list[dict[str, Any]], list[int]]:
    """A row for every graph, and the numbers of those that have a class."""
    readable = [number for number, item in enumerate(items) if item.store is not None]
    predicted: dict[int, dict[str, Any]] = {}
    if readable:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = predict_store(fitted, _joined([items[number] for number in readable]), unseen=unseen)
        predicted = dict(zip(readable, found.rows(), strict=True))
    rows = [
        {"graph": number + 1, "name": item.name}
        | {key: value for key, value in predicted.get(number, _empty(item.error)).items() if key != "graph"}
        for number, item in enumerate(items)
    ]
    return rows, [number for number, row in enumerate(rows) if row["error"] is None]


def _empty(error: str) -> dict[str, Any]:
    return {"class": None, "probability": None, "probabilities": None, "error": error}


def _joined(items: Sequence[Item]) -> GraphStore:
    stores = [item.store for item in items if item.store is not None]
    if any(store.edge_weight is not None for store in stores):  # an edge without a weight has 1
        stores = [
            store
            if store.edge_weight is not None
            else replace(store, edge_weight=torch.ones(store.neighbours.numel()))
            for store in stores
        ]
    return concat_stores(stores)
