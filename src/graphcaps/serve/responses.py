"""Responses as JSON values: predictions, explanations, and the data of the explorer page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch

from graphcaps.data.concatenation import concat_stores
from graphcaps.data.datasets.element_labels import name_node_labels
from graphcaps.data.features.compatibility import CheckedGraphs
from graphcaps.errors import ArgumentError
from graphcaps.explanation import explain_store, find_counterfactuals
from graphcaps.explanation.explanation import StoreExplanation
from graphcaps.explanation.report.card_values import counterfactual_values
from graphcaps.explanation.report.molecule_columns import molecule_columns
from graphcaps.explanation.report.report_data import explanation_columns, pack_block, smallest_type
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.predictions import predict_store
from graphcaps.nn import HGCN
from graphcaps.serve.limits import RequestError
from graphcaps.serve.request_graphs import RequestGraph

__all__ = ["Task", "describe_model", "predict_requests", "respond"]

Task = Literal["predict", "explain", "page"]

_MAX_EDITED, _MAX_EDITED_NODES = 20, 2_000
"""Graphs and nodes of a request up to which the explorer page shows counterfactuals."""


def respond(
    fitted: FittedModel,
    task: Task,
    graphs: Sequence[RequestGraph],
    *,
    target: str | None = None,
    rows: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The response to one request.

    Args:
        fitted (FittedModel): The model.
        task (str): ``"predict"``, ``"explain"``, or ``"page"`` for predictions and the data of the explorer page.
        graphs (sequence): The graphs of the request, checked against the model.
        target (str, optional): Class that node scores are for. (default: the predicted class)
        rows (list, optional): Predictions of the graphs, from :func:`predict_requests`. (default: computed here)

    Raises:
        RequestError: 422, if no graph can be predicted.
        ArgumentError: If the model has no class ``target``.
    """
    if rows is None:
        (rows,) = predict_requests(fitted, [graphs])
    predicted = [index for index, row in enumerate(rows) if row["error"] is None]
    if not predicted:
        which = "the graph" if len(rows) == 1 else f"none of the {len(rows)} graphs"
        first = "" if len(rows) == 1 else f"graph 1 ('{rows[0]['name']}'): "
        sentence = f"{which} can{'not' if len(rows) == 1 else ''} be read: {first}{rows[0]['error']}"
        raise RequestError(422, f"request: {sentence}.")
    response: dict[str, Any] = {"classes": list(fitted.class_names)}
    if task == "predict":
        return response | {"predictions": rows}
    if task == "page" and not isinstance(fitted.model, HGCN):
        return response | {"predictions": rows, "block": None}
    checked = _join([graphs[index] for index in predicted])
    if target is not None and target not in fitted.class_names:
        listed = ", ".join(fitted.class_names[:20])
        raise ArgumentError("explain", "target", f"be one of the classes {listed}", f"'{target[:60]}'")
    explanation = explain_store(fitted, checked, target=target)
    if task == "page":
        block = (
            _page_block(fitted, checked, explanation, graphs, predicted) if checked.store.num_nodes else None
        )
        return response | {"predictions": rows, "block": block}
    explained = {index: explanation[place].as_dict() for place, index in enumerate(predicted)}
    missing = dict.fromkeys(explained[predicted[0]])  # the same fields for a graph without an explanation
    return response | {
        "explanations": [
            explained.get(index, missing)
            | {key: row[key] for key in ("graph", "name", "unseen_values", "truncated", "error")}
            for index, row in enumerate(rows)
        ]
    }


def describe_model(fitted: FittedModel) -> dict[str, Any]:
    """Description of a model for the explorer page and ``/health``."""
    info = fitted.info()
    labels = info["expects"]["node_labels"]
    return {
        "kind": info["model"]["name"],
        "classes": info["class_names"],
        "parameters": info["model"]["parameters"],
        "members": len(fitted.members),
        "companions": list(fitted.part_names[1:]),
        "explains": isinstance(fitted.model, HGCN),
        "calibrated": fitted.calibration is not None,
        "trained_on": fitted.training.get("dataset"),
        "expects": {
            "node_label_columns": len(labels),
            "node_labels": list(labels[0][:100]) if len(labels) == 1 else [],
            "node_attributes": info["expects"]["node_attributes"] or 0,
            "featurizer": fitted.recipe.featurizer,
        },
    }


def predict_requests(
    fitted: FittedModel, requests: Sequence[Sequence[RequestGraph]]
) -> list[list[dict[str, Any]]]:
    """The predictions of several requests, computed together: a row of JSON values per graph.

    A row has the same fields whether or not its graph could be predicted; what it does not have is ``None``. Values are
    those of each request alone up to rounding.

    Args:
        fitted (FittedModel): The model.
        requests (sequence): The graphs of each request.
    """
    graphs = [graph for request in requests for graph in request]
    readable = [index for index, graph in enumerate(graphs) if graph.store is not None]
    results: dict[int, dict[str, Any]] = {}
    if readable:
        joined = _join([graphs[index] for index in readable])
        predictions = predict_store(fitted, joined, parts=bool(fitted.companions))
        results = dict(zip(readable, predictions.rows(), strict=True))
    rows = iter(_row(fitted, graph, results.get(index)) for index, graph in enumerate(graphs))
    return [[{"graph": number} | next(rows) for number in range(1, len(one) + 1)] for one in requests]


def _row(fitted: FittedModel, graph: RequestGraph, predicted: dict[str, Any] | None) -> dict[str, Any]:
    """The row of one graph; ``predicted`` is its row of :meth:`Predictions.rows`, or ``None`` with an error."""
    row: dict[str, Any] = {"name": graph.name}
    row["unseen_values"], row["truncated"] = graph.unseen_values or None, graph.truncated or None
    if predicted is not None:
        return row | {name: value for name, value in predicted.items() if name != "graph"}
    scores = "lengths" if fitted.score_kind == "lengths" else "scores"
    names = ("class", "probability", "probabilities", scores)
    row |= dict.fromkeys([*names, "parts"] if fitted.companions else names)
    row |= {"disagreement": None} if fitted.is_committee else {}
    row |= {"abstained": False, "out_of_distribution": None, "used_in": None}
    return row | {"error": graph.error}


def _join(graphs: Sequence[RequestGraph]) -> CheckedGraphs:
    """The graphs together; each was checked when it was read."""
    stores = []
    for _, run in groupby(graphs, key=lambda graph: id(graph.store)):  # molecules that were read together
        members = list(run)
        store, indices = members[0].store, [graph.index for graph in members]
        assert store is not None
        stores.append(store if indices == list(range(len(store))) else store[indices])
    if any(store.edge_weight is not None for store in stores):  # an edge without a weight has weight 1
        stores = [
            store
            if store.edge_weight is not None
            else replace(store, edge_weight=torch.ones(store.neighbours.numel()))
            for store in stores
        ]
    return CheckedGraphs(concat_stores(stores), errors={}, unseen={}, owner="predict")


def _page_block(
    fitted: FittedModel,
    checked: CheckedGraphs,
    explanation: StoreExplanation,
    graphs: Sequence[RequestGraph],
    indices: Sequence[int],
) -> str:
    """The data block that the scripts of the explorer page draw: graphs with nodes.

    Args:
        fitted (FittedModel): The model.
        checked (CheckedGraphs): The graphs that have a class.
        explanation (StoreExplanation): Explanation of the graphs that have a class.
        graphs (sequence): All graphs of the request.
        indices (sequence): Index in ``graphs`` of each explained graph.
    """
    last = len(explanation.iterations[0]) - 1
    drawn = np.flatnonzero(explanation.node_ptr.diff().numpy())
    columns, levels = explanation_columns(explanation, drawn, weights=range(1, last + 1))
    columns["number"] = np.asarray(indices, dtype=np.uint32)[drawn]
    explained = [graphs[indices[place]] for place in drawn.tolist()]
    changes = {}
    if len(drawn) <= _MAX_EDITED and checked.store.num_nodes <= _MAX_EDITED_NODES:
        edited = drawn.tolist()
        found = find_counterfactuals(fitted, checked, explanation, indices=edited)
        changes = dict(zip(edited, found, strict=True))
    meta = {
        "classes": list(explanation.class_names),
        "members": 1 if explanation.member_predicted is None else len(explanation.member_predicted),
        "parts": list(explanation.part_names),
        "levels": levels,
        "iterations": last + 1,
        "ids": [graph.name for graph in explained],
        "smiles": None
        if explanation.smiles is None
        else [explanation.smiles[place] for place in drawn.tolist()],
        "molecules": all(graph.is_molecule for graph in explained),
        "counterfactuals": counterfactual_values(changes, drawn),
    }
    geometry, atoms = molecule_columns(explanation, None, drawn)
    columns |= geometry
    meta |= atoms
    if explanation.node_labels is not None and explanation.node_labels.size(-1):
        stores = [graph.store for graph in explained if graph.store is not None]
        names, index = name_node_labels(
            explanation.node_labels,
            featurizer=explanation.featurizer if meta["molecules"] else None,
            elements=explanation.elements,
            texts={code: text for store in stores for code, text in store.label_names.items()},
        )
        columns["label"] = index.astype(smallest_type(len(names)))
        meta["labels"] = {"names": names}
    return pack_block(meta, columns)
