"""The data block of the page: explanations as compact columns, compressed and encoded as text.

Routing coefficients and scores are quantised to one byte. The capsule that a node belongs to is computed before that,
so that the page shows the exact assignment. Coefficients of the first iteration are all 1/J and are not stored.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.explanation.agreement import member_agreement
from graphcaps.explanation.explanation_data import StoreExplanationData

__all__ = [
    "Columns",
    "bytes_per_graph",
    "explanation_columns",
    "graph_rows",
    "pack_block",
    "read_block",
    "smallest_type",
]


Columns = dict[str, np.ndarray]
"""Arrays by column name."""


def pack_block(meta: dict[str, Any], columns: Columns) -> str:
    """Header and columns as base64 text, which is safe inside an HTML element."""
    entries, pieces, at = [], [], 0
    for name, values in columns.items():
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
        entries.append([name, values.dtype.str[1:], at, values.size])
        padding = -len(data) % 8
        pieces += [data, bytes(padding)]
        at += len(data) + padding
    text = json.dumps(meta | {"columns": entries}, ensure_ascii=False, allow_nan=False)
    header = text.encode("utf-8", "replace")  # a lone surrogate cannot be encoded
    header += b" " * (-len(header) % 8)
    body = len(header).to_bytes(4, "little") + bytes(4) + header + b"".join(pieces)
    return base64.b64encode(zlib.compress(body, 6)).decode("ascii")


def read_block(text: str) -> tuple[dict[str, Any], Columns]:
    """The inverse of :func:`pack_block`; the header also holds the entry ``columns``."""
    body = zlib.decompress(base64.b64decode(text))
    end = 8 + int.from_bytes(body[:4], "little")
    meta = json.loads(body[8:end])
    columns = {
        name: np.frombuffer(body, dtype=f"<{kind}", count=count, offset=end + at)
        for name, kind, at, count in meta["columns"]
    }
    return meta, columns


def smallest_type(largest: int) -> Any:
    """The smallest unsigned integer type that holds a number."""
    return np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32


def explanation_columns(
    explanations: StoreExplanationData, graphs: np.ndarray, *, weights: Iterable[int]
) -> tuple[Columns, list[dict[str, Any]]]:
    """Columns of selected graphs.

    Args:
        explanations (StoreExplanation): Explanations of all graphs.
        graphs (ndarray): Indices of the graphs to include, ascending.
        weights (iterable): Iterations (from 0) whose node routing weights are included; for the others only the
            assigned capsule is.

    Returns:
        tuple: The columns, and per level the number of ``capsules``, the quantisation ``step`` of ``length_…`` and,
        above the first level, the ``contribution_step`` of ``contribution_…``.
    """
    chosen = torch.from_numpy(graphs)
    nodes, node_ptr = graph_rows(explanations.node_ptr, chosen)
    edges, edge_ptr = graph_rows(explanations.edge_ptr, chosen)
    scores, score_scale = _quantise_scores(explanations.node_scores[nodes], node_ptr)
    edge_scores, edge_scale = _quantise_scores(explanations.edge_scores[edges], edge_ptr)
    largest = int(node_ptr.diff().max()) if len(graphs) else 0
    ends = explanations.edges[:, edges].numpy().astype(smallest_type(largest))
    true_class = (
        explanations.true_class[chosen]
        if explanations.true_class is not None
        else torch.full_like(chosen, -1)
    )
    columns: Columns = {
        "number": graphs.astype(np.uint32),
        "node_ptr": node_ptr.numpy().astype(np.uint32),
        "edge_ptr": edge_ptr.numpy().astype(np.uint32),
        "edge_a": ends[0],
        "edge_b": ends[1],
        "predicted": explanations.predicted[chosen].numpy().astype(np.uint16),
        "target": explanations.target[chosen].numpy().astype(np.uint16),
        "true_class": true_class.numpy().astype(np.int16),
        "probability": explanations.probabilities[chosen].numpy().astype(np.float32),
        "confidence": _confidence(explanations)[graphs],
        "score": scores,
        "score_scale": score_scale,
        "edge_score": edge_scores,
        "edge_scale": edge_scale,
        "nearly_uniform": explanations.nearly_uniform[chosen].numpy().astype(np.uint8),
    }
    if explanations.member_node_scores is not None and explanations.member_predicted is not None:
        agreeing = explanations.member_predicted[:, chosen] == explanations.predicted[chosen]
        columns["agreeing"] = agreeing.sum(0).numpy().astype(np.uint16)
        agreement = member_agreement(explanations.member_node_scores[:, nodes], node_ptr)
        columns["agreement"] = agreement.numpy().astype(np.float32)
    if explanations.network_share is not None:
        columns["network_share"] = explanations.network_share[chosen].numpy().astype(np.float32)
    if explanations.reconstruction_error is not None:
        columns["edge_error"] = _to_bytes(explanations.reconstruction_error[edges])
    if explanations.nodes is not None:
        numbers = explanations.nodes[nodes].numpy()
        columns["node_number"] = numbers.astype(smallest_type(int(numbers.max(initial=0))))
    kept, levels = set(weights), []
    for level, iterations in enumerate(explanations.iterations):
        selected = iterations[:, nodes if level == 0 else chosen]
        for number in range(1, len(selected)):
            tops = explanations.capsules_of(level, number)[nodes if level == 0 else chosen].numpy()
            columns[f"top_{level}_{number}"] = tops.astype(smallest_type(selected.size(-1)))
            if level or number in kept:
                columns[f"weights_{level}_{number}"] = _to_bytes(selected[number])
        coarse = explanations.adjacency[level]
        if coarse is not None:
            columns[f"coarse_{level}"] = _coarse_weights(coarse[chosen])
        lengths = explanations.lengths[level][chosen].double().nan_to_num().numpy()
        step = float(lengths.max(initial=0.0)) / 65535 or 1.0
        columns[f"length_{level}"] = np.round(lengths / step).astype(np.uint16)
        levels.append({"capsules": selected.size(-1), "step": step})
        if level:  # the nodes are one block of the flow
            levels[-1]["contribution_step"] = _add_contributions(columns, explanations, level, chosen)
    return columns, levels


def _add_contributions(
    columns: Columns, explanations: StoreExplanationData, level: int, chosen: Tensor
) -> float:
    """Adds contributions to the capsules of a level, with the residual's as the last row; returns their step."""
    inputs = explanations.contributions[level][chosen]
    residual = explanations.residual_contributions[level][chosen].unsqueeze(1)
    values = torch.cat([inputs, residual], 1).double().nan_to_num().numpy()
    step = float(np.abs(values).max(initial=0.0)) / 32767 or 1.0
    columns[f"contribution_{level}"] = np.round(values / step).astype(np.int16)
    return step


def bytes_per_graph(explanations: StoreExplanationData) -> np.ndarray:
    """Approximate size of the columns of each graph in bytes before compression, ``[G]``."""
    J, R = explanations.assignments[0].size(-1), len(explanations.iterations[0])
    per_node = J * (R - 1) + (R - 1) + 3
    upper = sum(level.size(-2) * level.size(-1) * (len(level) - 1) for level in explanations.iterations[1:])
    upper += sum(2 * level.size(-2) * level.size(-1) for level in explanations.contributions[1:])
    upper += sum(level.size(-1) ** 2 // 2 for level in explanations.adjacency if level is not None)
    sizes = explanations.node_ptr.diff() * per_node + explanations.edge_ptr.diff() * 6 + upper + 60
    if explanations.smiles is not None or explanations.elements is not None:  # drawn by RDKit
        sizes += explanations.node_ptr.diff() * 6 + explanations.edge_ptr.diff() * 2
    texts = explanations.smiles or ()
    return np.asarray(sizes.numpy() + (np.array([len(text or "") for text in texts]) if texts else 0))


def graph_rows(ptr: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the selected graphs, concatenated, and the offset of each graph among them."""
    length = ptr.diff()[chosen]
    first = torch.nn.functional.pad(length.cumsum(0), (1, 0))
    rows = torch.arange(int(first[-1])) + (ptr[:-1][chosen] - first[:-1]).repeat_interleave(length)
    return rows, first


def _confidence(explanations: StoreExplanationData) -> np.ndarray:
    """Probability of the predicted class, ``[G]``."""
    confidence = explanations.probabilities.gather(1, explanations.predicted[:, None]).squeeze(1)
    return confidence.numpy().astype(np.float32)


def _to_bytes(values: Tensor) -> np.ndarray:
    """Numbers from 0 to 1, quantised to bytes."""
    return (values.double().nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8).numpy().reshape(-1)


def _quantise_scores(scores: Tensor, first: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Scores divided by the largest absolute score of their graph, as −127 to 127, and these scales, ``[G]``."""
    sizes = first.diff()
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    values = torch.nan_to_num(scores.double())
    largest = torch.zeros(sizes.numel(), dtype=torch.float64).scatter_reduce(0, graph, values.abs(), "amax")
    normalised = values / largest.clamp(min=1e-30)[graph]
    return (normalised * 127).round().to(torch.int8).numpy(), largest.numpy().astype(np.float32)


def _coarse_weights(adjacency: Tensor) -> np.ndarray:
    """Upper triangle of the coarse adjacency, divided by its largest off-diagonal weight, as bytes."""
    J = adjacency.size(-1)
    row, column = torch.triu_indices(J, J)
    values = adjacency.double()[:, row, column]
    # The diagonal (edges within a capsule) is not drawn and is usually much larger.
    apart = values.masked_fill((row == column)[None], 0.0)
    return _to_bytes(values / apart.amax(-1, keepdim=True).clamp(min=1e-30))
