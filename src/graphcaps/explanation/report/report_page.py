"""Assembles the report page of a model on a store of graphs, or of a single explanation."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import library_versions
from graphcaps.data.datasets.kind_names import kind_names
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError, ShapeError
from graphcaps.explanation.capsule_description import CapsuleCards, capsule_cards
from graphcaps.explanation.counterfactual import Counterfactuals
from graphcaps.explanation.explanation_data import ExplanationData, StoreExplanationData
from graphcaps.explanation.node_labels import NodeLabels, node_labels
from graphcaps.explanation.palette import palette_css, palette_script
from graphcaps.explanation.report.card_values import card_values, counterfactual_values
from graphcaps.explanation.report.molecule_columns import molecule_columns
from graphcaps.explanation.report.report_data import (
    Columns,
    bytes_per_graph,
    explanation_columns,
    graph_rows,
    pack_block,
    smallest_type,
)
from graphcaps.explanation.report.report_tables import metric_tables
from graphcaps.explanation.report.report_text import describe
from graphcaps.inference.fitted_model import FittedModel

__all__ = [
    "MAX_BLOCK_CHARS",
    "MAX_GRAPHS",
    "SCRIPTS",
    "assemble_page",
    "explanation_page",
    "page_script",
    "page_style",
    "write_report",
]


SCRIPTS = (
    *(
        "dom",
        "data",
        "colours",
        "layout",
        "label_text",
        "filter",
        "list",
        "filters_view",
        "molecule_view",
        "graph_view",
        "coarse_view",
        "tree_view",
        "counterfactuals_view",
        "cards_view",
    ),
    *("flow_view", "chips", "tools", "node_tables", "axes", "quality", "metrics", "explorer", "main"),
)
"""Scripts of the page, in the order of concatenation."""


@cache
def _resource(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text("utf-8")


@cache
def page_script() -> str:
    """All scripts in one function scope, after the colours of the palette."""
    joined = "\n".join(_resource(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{palette_script()}{joined}\n}})();\n'


@cache
def page_style() -> str:
    """The style sheet, with the colours of the palette."""
    return palette_css() + _resource("page.css")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def assemble_page(title: str, block: str) -> str:
    """The HTML page with a content security policy that allows only its own script and style.

    Args:
        title (str): Title and heading; any text.
        block (str): From :func:`pack_block`.
    """
    style, script = page_style(), page_script()
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    values = {
        "policy": policy,
        "version": library_versions()["graphcaps"],
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "style": style,
        "script": script,
        "data": block,
    }
    # A single pass, so that a title that looks like a placeholder is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _resource("page.html"))


PARTS = ("test", "new", "validation", "training", "left-out")
"""Parts of the training data, in the order of their codes on the page; ``"new"`` is none of them."""
MAX_BLOCK_CHARS = 7_600_000
"""Maximum length of the data block: the page stays under 8 MB."""
MAX_GRAPHS = 10_000
"""Maximum number of graphs in the list of a page; RDKit draws as many molecules in about ten seconds."""
_MAX_LISTED = 10  # graphs listed in a sentence
_MAX_RAW_BYTES = 3 * MAX_BLOCK_CHARS
"""Maximum size of the data before compression."""


def write_report(
    folder: str | Path,
    fitted: FittedModel,
    store: GraphStore,
    explanations: StoreExplanationData,
    *,
    metrics: Mapping[str, Any] | None = None,
    history: list[dict[str, Any]] | None = None,
    title: str = "",
    used_in: Sequence[str | None] | None = None,
    ids: Sequence[str] | None = None,
    cards: CapsuleCards | None = None,
    counterfactuals: Mapping[int, Counterfactuals] | None = None,
) -> Path:
    """Writes ``index.html`` into a folder, which is created if it does not exist.

    The page is self-contained and sends no network requests. It lists at most 10,000 graphs. To stay below 8 MB,
    routing weights of early iterations are left out, then graphs at regular intervals; the page states this. Graphs
    without nodes count in the metrics, and the page states which they are instead of drawing them.

    Args:
        folder (str or Path): Where to write.
        fitted (FittedModel): The model that was explained.
        store (GraphStore): Its graphs.
        explanations (StoreExplanation): Their explanations.
        metrics (mapping, optional): Result of :func:`graphcaps.explanation.evaluate_explanations`.
        history (list, optional): One row per epoch (``epoch``, ``train_loss``, …), for the training curves.
        title (str): Heading; any text. (default: the name of the data set)
        used_in (sequence, optional): Part of the training data that each graph was in, as
            :meth:`graphcaps.FittedModel.used_in` gives it. The figures on top of the page are those of graphs that did
            not train the model. (default: unknown)
        ids (sequence, optional): Name of each graph. (default: its number)
        cards (CapsuleCards, optional): What each capsule stands for. (default: computed here)
        counterfactuals (mapping, optional): Counterfactuals of some graphs, by their index, from
            :func:`graphcaps.explanation.find_counterfactuals`. (default: none)

    Returns:
        Path: The file written.

    Raises:
        ShapeError: If the numbers of graphs and explanations differ.
        DataError: If the folder cannot be written.
    """
    if len(explanations) != len(store):
        raise ShapeError("write_report", "explanations", f"be one per graph, {len(store)}", len(explanations))
    for name, values in (("used_in", used_in), ("ids", ids)):
        if values is not None and len(values) != len(store):
            raise ShapeError("write_report", name, f"have one entry per graph, {len(store)}", len(values))
    folder = Path(folder)
    meta = describe(fitted, store.name, explanations, used_in, history)
    meta["metrics"] = metric_tables(metrics)
    page = _page(
        title or store.name,
        meta,
        explanations,
        store,
        used_in=used_in,
        ids=ids,
        cards=capsule_cards(explanations, store) if cards is None else cards,
        counterfactuals=counterfactuals,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(folder, "a writable folder", f"'{error.strerror}'") from error
    path = folder / "index.html"
    write_atomically(path, page)
    return path


def explanation_page(explanation: ExplanationData, *, title: str = "") -> str:
    """A page about one graph.

    Args:
        explanation (Explanation): Explanation of one graph.
        title (str): Heading. (default: the graph's number)
    """
    if explanation.note:
        return _note_page(title or f"Graph {explanation.graph + 1}", explanation)
    one = _as_store(explanation)
    meta = describe(None, "", one, None, None)
    # Metrics over a set of graphs do not apply to a single one.
    meta |= {"facts": [], "other_facts": [], "other_title": "", "metrics": [], "sets": []}
    return _page(title or f"Graph {explanation.graph + 1}", meta, one, None, first=explanation.graph)


def _note_page(title: str, explanation: ExplanationData) -> str:
    """A page without script for a graph that has nothing to draw: its note and its probabilities."""
    style = page_style()
    names = zip(explanation.class_names, explanation.probabilities.tolist(), strict=True)
    rows = "".join(f"<li>{html.escape(name)}: {100 * value:.1f}\u00a0%</li>" for name, value in names)
    policy = f"default-src 'none'; style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'"
    heading = html.escape(title.encode("utf-8", "replace").decode("utf-8"))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{heading}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n<h1>{heading}</h1>\n"
        f"<p>{html.escape(explanation.note)}</p>\n<ul>{rows}</ul>\n</main>\n</body>\n</html>\n"
    )


def _page(
    title: str,
    meta: dict[str, Any],
    explanations: StoreExplanationData,
    store: GraphStore | None,
    *,
    used_in: Sequence[str | None] | None = None,
    ids: Sequence[str] | None = None,
    cards: CapsuleCards | None = None,
    counterfactuals: Mapping[int, Counterfactuals] | None = None,
    first: int = 0,
) -> str:
    last = len(explanations.iterations[0]) - 1
    graphs, iterations = _graphs_that_fit(explanations, _MAX_RAW_BYTES), tuple(range(1, last + 1))
    geometry, atoms = molecule_columns(explanations, store, graphs)
    labels = node_labels(explanations, store)
    while True:
        columns, steps = explanation_columns(explanations, graphs, weights=iterations)
        extra, names = _node_columns(explanations, store, graphs, labels)
        columns |= extra | geometry
        if used_in is not None:
            codes = [PARTS.index(used_in[graph] or "new") for graph in graphs.tolist()]
            columns["part"] = np.array(codes, dtype=np.uint8)
        columns["number"] = columns["number"] + np.uint32(first)
        header = meta | names | atoms | {
            "levels": steps,
            "ids": None if ids is None else [str(ids[graph]) for graph in graphs.tolist()],
            "smiles": None
            if explanations.smiles is None
            else [explanations.smiles[graph] for graph in graphs.tolist()],
            "iterations": last + 1,
            "cards": None if cards is None else card_values(cards, graphs),
            "counterfactuals": counterfactual_values(counterfactuals or {}, graphs),
            "foot": _foot(explanations, graphs, iterations),
        }  # fmt: skip
        block = pack_block(header, columns)
        if len(block) <= MAX_BLOCK_CHARS or len(graphs) <= 1:
            return assemble_page(title, block)
        if len(iterations) > 1:
            iterations = (last,)
        else:
            fewer = int(len(graphs) * 0.95 * MAX_BLOCK_CHARS / len(block))
            graphs = _spread(explanations, max(1, fewer))
            geometry, atoms = molecule_columns(explanations, store, graphs)


def _graphs_that_fit(explanations: StoreExplanationData, max_bytes: int) -> np.ndarray:
    """Indices of evenly spaced graphs, at most ``MAX_GRAPHS`` and ``max_bytes``; all graphs if they fit."""
    total, graphs = int(bytes_per_graph(explanations).sum()), len(_drawable(explanations))
    fitting = graphs if total <= max_bytes else max(1, graphs * max_bytes // total)
    return _spread(explanations, min(fitting, MAX_GRAPHS))


def _drawable(explanations: StoreExplanationData) -> np.ndarray:
    """Indices of the graphs that have nodes."""
    return np.flatnonzero(explanations.node_ptr.diff().numpy())


def _spread(explanations: StoreExplanationData, count: int) -> np.ndarray:
    """Indices of ``count`` evenly spaced graphs with nodes, including the first and the last."""
    graphs = _drawable(explanations)
    spread: np.ndarray = graphs[np.linspace(0, len(graphs) - 1, count).astype(np.int64)]
    return spread


def _node_columns(
    explanations: StoreExplanationData,
    store: GraphStore | None,
    graphs: np.ndarray,
    labels: NodeLabels | None,
) -> tuple[Columns, dict[str, Any]]:
    """Columns of node labels and, for planted data sets, planted parts; and the names of their values."""
    columns: Columns = {}
    names: dict[str, Any] = {}
    rows, _ = graph_rows(explanations.node_ptr, torch.from_numpy(graphs))
    if labels is not None:
        columns["label"] = labels.index[rows.numpy()].astype(smallest_type(len(labels.names)))
        names["labels"] = {"names": labels.names}
    if store is not None and "kind" in store.truth:
        node_rows = rows
        if explanations.nodes is not None:  # graphs were truncated: rows of the store differ
            node_rows = store.node_ptr[:-1][explanations.node_graph[rows]] + explanations.nodes[rows]
        # Kind 0 is the scaffold, which belongs to no part.
        columns["planted"] = (store.truth["kind"][node_rows] - 1).numpy().astype(np.int8)
        names["planted"] = {"title": "Planted part", "names": list(kind_names(store)[1:])}
    return columns, names


def _foot(explanations: StoreExplanationData, graphs: np.ndarray, iterations: tuple[int, ...]) -> str:
    sentences = [
        f"Written by graphcaps {library_versions()['graphcaps']}. This file sends no network requests."
    ]
    drawable, empty = (
        len(_drawable(explanations)),
        np.flatnonzero(explanations.node_ptr.diff().numpy() == 0) + 1,
    )
    if len(empty):
        listed = ", ".join(map(str, empty[:_MAX_LISTED])) + (", …" if len(empty) > _MAX_LISTED else "")
        sentences.append(
            f"{len(empty):,} of {len(explanations):,} graphs have no nodes and are not in the list ({listed}): their "
            "capsules are zero, and their probabilities are the class frequencies of the training graphs."
        )
    if len(graphs) < drawable:
        sentences.append(
            f"To limit the file size, the list holds {len(graphs):,} of {drawable:,} graphs, evenly spaced; "
            "all metrics are over all graphs."
        )
    if len(iterations) < len(explanations.iterations[0]) - 1:
        sentences.append(
            "Routing coefficients of early iterations are left out; the assigned capsules are included."
        )
    return " ".join(sentences)


def _as_store(one: ExplanationData) -> StoreExplanationData:
    """The explanation of one graph as that of a store."""
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
        elements=one.elements,
        featurizer=one.featurizer,
        assignments=tuple(
            level.assignment if number == 0 else level.assignment[None]
            for number, level in enumerate(one.levels)
        ),
        iterations=tuple(
            level.iterations if number == 0 else level.iterations[:, None]
            for number, level in enumerate(one.levels)
        ),
        lengths=tuple(level.lengths[None] for level in one.levels),
        adjacency=tuple(None if level.adjacency is None else level.adjacency[None] for level in one.levels),
        contributions=tuple(
            level.contributions if number == 0 else level.contributions[None]
            for number, level in enumerate(one.levels)
        ),
        residual_contributions=tuple(level.residual_contributions[None] for level in one.levels),
        node_scores=one.node_scores,
        edge_scores=one.edge_scores,
        reconstruction_error=one.reconstruction_error,
        nodes=one.nodes,
        bonds=one.bonds,
        smiles=None if one.smiles is None else (one.smiles,),
        member_node_scores=one.member_node_scores,
        member_predicted=None if one.member_predicted is None else one.member_predicted[:, None],
        part_names=one.part_names,
        network_share=None if one.network_share is None else torch.tensor([one.network_share]),
        mean_coefficients=_means(one),
        assigns_groups=one.levels[0].groups is not None,
    )


def _means(one: ExplanationData) -> tuple[Tensor, ...] | None:
    """Mean coefficients of each level; ``None`` if the model has none."""
    means = tuple(level.mean_coefficients for level in one.levels if level.mean_coefficients is not None)
    return means if len(means) == len(one.levels) else None
