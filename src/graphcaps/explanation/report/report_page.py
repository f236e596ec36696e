"""The report of a model on a store of graphs, written as one file."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import library_versions
from graphcaps.data.datasets.element_labels import node_label_names
from graphcaps.data.datasets.motifs import MOTIF_KINDS
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError, ShapeError
from graphcaps.explanation.explanation_data import ExplanationData, StoreExplanationData
from graphcaps.explanation.report.report_data import (
    Columns,
    bytes_per_graph,
    explanation_columns,
    graph_rows,
    pack_block,
    smallest_type,
)
from graphcaps.explanation.report.report_tables import metric_tables
from graphcaps.explanation.report.report_text import ReportModel, describe

__all__ = ["MAX_BLOCK_CHARS", "SCRIPTS", "assemble_page", "explanation_page", "page_script", "write_report"]


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


MAX_BLOCK_CHARS = 7_600_000
"""Letters of the data block at most: the page stays under 8 MB."""
_MOST_BYTES = 3 * MAX_BLOCK_CHARS
"""Bytes before they are deflated, at most: no more is tried."""


def write_report(
    folder: str | Path,
    fitted: ReportModel,
    store: GraphStore,
    explanations: StoreExplanationData,
    *,
    metrics: Mapping[str, Any] | None = None,
    history: list[dict[str, Any]] | None = None,
    title: str = "",
    trained: Tensor | None = None,
) -> Path:
    """Writes ``index.html`` into a folder, which is made where it is missing.

    The page holds everything it needs and asks nothing of the network. Where the graphs would make it larger
    than 8 MB, the routing weights of early rounds are left out, then graphs at even distances; the page says so.

    Args:
        folder (str or Path): Where to write.
        fitted (FittedModel): The model that was explained.
        store (GraphStore): Its graphs.
        explanations (StoreExplanation): One for each of them.
        metrics (mapping, optional): Result of :func:`graphcaps.explanation.evaluate_explanations`.
        history (list, optional): A row per epoch (``epoch``, ``train_loss``, …), for the curves.
        title (str): Heading; any text. (default: the name of the data set)
        trained (Tensor, optional): Whether the model was trained on each graph, ``[G]``, where that is known.

    Returns:
        Path: The file written.

    Raises:
        ShapeError: If graphs and explanations are not as many.
        DataError: If the folder cannot be written.
    """
    if len(explanations) != len(store):
        raise ShapeError("write_report", "explanations", f"be one per graph, {len(store)}", len(explanations))
    if trained is not None and trained.shape != (len(store),):
        raise ShapeError("write_report", "trained", f"have the shape [{len(store)}]", list(trained.shape))
    folder = Path(folder)
    seen = None if trained is None else trained.bool().cpu().numpy()
    meta = describe(fitted, store.name, explanations, seen, history)
    meta["measures"] = metric_tables(metrics)
    page = _page(title or store.name, meta, explanations, store, seen)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(folder, "a folder to write into", f"'{error.strerror}'") from error
    path = folder / "index.html"
    write_atomically(path, page)
    return path


def explanation_page(explanation: ExplanationData, *, title: str = "") -> str:
    """A page about one graph, as text.

    Args:
        explanation (Explanation): Why a model gives a graph its class.
        title (str): Heading. (default: the graph's number)
    """
    one = _as_store(explanation)
    meta = describe(None, "", one, None, None)
    # One graph makes no accuracy: what the page says of a set of graphs falls away.
    meta |= {"facts": [], "measures": [], "confusion": None, "reliability": None}
    return _page(title or f"Graph {explanation.graph + 1}", meta, one, None, None, first=explanation.graph)


def _page(
    title: str,
    meta: dict[str, Any],
    found: StoreExplanationData,
    store: GraphStore | None,
    trained: np.ndarray | None,
    first: int = 0,
) -> str:
    last = len(found.rounds[0]) - 1
    graphs, rounds = _evenly(found, _MOST_BYTES), tuple(range(1, last + 1))
    while True:
        columns, steps = explanation_columns(found, graphs, weights=rounds)
        extra, names = _node_columns(found, store, graphs)
        columns |= extra
        if trained is not None:
            columns["trained"] = trained[graphs].astype(np.uint8)
        columns["number"] = columns["number"] + np.uint32(first)
        whole = meta | names | {
            "levels": [
                {"capsules": own.size(-1), "step": step}
                for own, step in zip(found.assignments, steps, strict=True)
            ],
            "rounds": last + 1,
            "foot": _foot(found, graphs, rounds),
        }  # fmt: skip
        block = pack_block(whole, columns)
        if len(block) <= MAX_BLOCK_CHARS or len(graphs) <= 1:
            return assemble_page(title, block)
        if len(rounds) > 1:
            rounds = (last,)
        else:
            fewer = int(len(graphs) * 0.95 * MAX_BLOCK_CHARS / len(block))
            graphs = _spread(len(found), max(1, fewer))


def _evenly(found: StoreExplanationData, most: int) -> np.ndarray:
    """Graphs at even distances that together take so many bytes at most; all of them where they fit."""
    total = int(bytes_per_graph(found).sum())
    return _spread(len(found), len(found) if total <= most else max(1, len(found) * most // total))


def _spread(total: int, count: int) -> np.ndarray:
    """``count`` of ``total`` numbers at even distances, the first and the last among them."""
    return np.linspace(0, total - 1, count).astype(np.int64)


def _node_columns(
    found: StoreExplanationData, store: GraphStore | None, graphs: np.ndarray
) -> tuple[Columns, dict[str, Any]]:
    """Labels of nodes and, in the embedded sets, the part that was planted; with the names of both."""
    columns: Columns = {}
    names: dict[str, Any] = {}
    rows, _ = graph_rows(found.node_ptr, torch.from_numpy(graphs))
    if found.node_labels is not None and found.node_labels.size(-1):
        different, place = np.unique(found.node_labels.numpy(), axis=0, return_inverse=True)
        columns["label"] = place.reshape(-1)[rows.numpy()].astype(smallest_type(len(different)))
        kinds = [tuple(row) for row in different.tolist()]
        molecules = store is not None and "element" in store.truth
        dataset = "" if store is None else store.name
        names["labels"] = {"names": node_label_names(kinds, atomic_numbers=molecules, dataset=dataset)}
    if store is not None and "kind" in store.truth:
        where = rows
        if found.nodes is not None:  # graphs were cut: the store counts its nodes otherwise
            where = store.node_ptr[:-1][found.node_graph[rows]] + found.nodes[rows]
        # Scaffold, kind 0, is no part.
        columns["known"] = (store.truth["kind"][where] - 1).numpy().astype(np.int8)
        names["known"] = {"title": "Planted part", "names": list(MOTIF_KINDS[1:])}
    return columns, names


def _foot(found: StoreExplanationData, graphs: np.ndarray, rounds: tuple[int, ...]) -> str:
    words = [
        f"Written by graphcaps {library_versions()['graphcaps']}. This file asks nothing of the network."
    ]
    if len(graphs) < len(found):
        words.append(
            f"To stay small, the list holds {len(graphs):,} of {len(found):,} graphs, at even distances; "
            "figures and measures are of all."
        )
    if len(rounds) < len(found.rounds[0]) - 1:
        words.append("Routing weights of early rounds are left out; the capsule of each node is there.")
    return " ".join(words)


def _as_store(one: ExplanationData) -> StoreExplanationData:
    """A store of the one graph."""
    return StoreExplanationData(
        class_names=one.class_names,
        class_scores=one.class_scores[None],
        probabilities=one.probabilities[None],
        target=torch.tensor([one.target]),
        true_class=None if one.true_class is None else torch.tensor([one.true_class]),
        node_ptr=torch.tensor([0, one.num_nodes]),
        edge_ptr=torch.tensor([0, one.edges.size(1)]),
        edges=one.edges,
        node_labels=one.node_labels,
        assignments=tuple(
            own.assignment if number == 0 else own.assignment[None] for number, own in enumerate(one.levels)
        ),
        rounds=tuple(
            own.rounds if number == 0 else own.rounds[:, None] for number, own in enumerate(one.levels)
        ),
        lengths=tuple(own.lengths[None] for own in one.levels),
        adjacency=tuple(None if own.adjacency is None else own.adjacency[None] for own in one.levels),
        node_scores=one.node_scores,
        edge_scores=one.edge_scores,
        reconstruction_error=one.reconstruction_error,
        nodes=one.nodes,
    )
