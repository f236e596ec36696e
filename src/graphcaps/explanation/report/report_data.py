"""Explanations as small columns: what the page needs to draw a graph, and no more.

Routing weights and scores are rounded to a byte; which capsule a part belongs to most is taken before that,
so that the page never differs from the assignment. Weights of the first round are all 1/J and are not kept.
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


def pack_block(meta: dict[str, Any], columns: Columns) -> str:
    """The block as ASCII letters; no byte of it can end the element that it stands in."""
    entries, pieces, at = [], [], 0
    for name, values in columns.items():
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
        entries.append([name, values.dtype.str[1:], at, values.size])
        padding = -len(data) % 8
        pieces += [data, bytes(padding)]
        at += len(data) + padding
    text = json.dumps(meta | {"columns": entries}, ensure_ascii=False, allow_nan=False)
    header = text.encode("utf-8", "replace")  # half of a surrogate pair is no text
    header += b" " * (-len(header) % 8)
    body = len(header).to_bytes(4, "little") + bytes(4) + header + b"".join(pieces)
    return base64.b64encode(zlib.compress(body, 6)).decode("ascii")


def read_block(text: str) -> tuple[dict[str, Any], Columns]:
    """What :func:`pack_block` was given; the header holds ``columns`` as well."""
    body = zlib.decompress(base64.b64decode(text))
    end = 8 + int.from_bytes(body[:4], "little")
    meta = json.loads(body[8:end])
    columns = {
        name: np.frombuffer(body, dtype=f"<{kind}", count=count, offset=end + at)
        for name, kind, at, count in meta["columns"]
    }
    return meta, columns


Columns = dict[str, np.ndarray]


def smallest_type(largest: int) -> Any:
    """The shortest unsigned type that holds a number."""
    return np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32


def explanation_columns(
    found: StoreExplanationData, graphs: np.ndarray, *, weights: Iterable[int]
) -> tuple[Columns, list[float]]:
    """Columns of the chosen graphs.

    Args:
        found (StoreExplanation): All of them.
        graphs (ndarray): Numbers of those to keep, in order.
        weights (iterable): Rounds (from 0) whose routing weights of nodes are kept; of the others only the
            capsule that a node belongs to most.

    Returns:
        tuple: The columns, and per level what one step of ``length_…`` is worth.
    """
    chosen = torch.from_numpy(graphs)
    nodes, node_ptr = graph_rows(found.node_ptr, chosen)
    edges, edge_ptr = graph_rows(found.edge_ptr, chosen)
    scores, score_scale = _scored(found.node_scores[nodes], node_ptr)
    edge_scores, edge_scale = _scored(found.edge_scores[edges], edge_ptr)
    largest = int(node_ptr.diff().max()) if len(graphs) else 0
    ends = found.edges[:, edges].numpy().astype(smallest_type(largest))
    known = found.true_class[chosen] if found.true_class is not None else torch.full_like(chosen, -1)
    columns: Columns = {
        "number": graphs.astype(np.uint32),
        "node_ptr": node_ptr.numpy().astype(np.uint32),
        "edge_ptr": edge_ptr.numpy().astype(np.uint32),
        "edge_a": ends[0],
        "edge_b": ends[1],
        "predicted": found.predicted[chosen].numpy().astype(np.uint16),
        "target": found.target[chosen].numpy().astype(np.uint16),
        "true_class": known.numpy().astype(np.int16),
        "probability": found.probabilities[chosen].numpy().astype(np.float32),
        "confidence": _confidence(found)[graphs],
        "score": scores,
        "score_scale": score_scale,
        "edge_score": edge_scores,
        "edge_scale": edge_scale,
    }
    if found.reconstruction_error is not None:
        columns["edge_error"] = _byte(found.reconstruction_error[edges])
    if found.nodes is not None:
        numbers = found.nodes[nodes].numpy()
        columns["node_number"] = numbers.astype(smallest_type(int(numbers.max(initial=0))))
    kept, steps = set(weights), []
    for level, rounds in enumerate(found.rounds):
        own = rounds[:, nodes if level == 0 else chosen]
        for number in range(1, len(own)):
            tops = own[number].argmax(-1).numpy()
            columns[f"top_{level}_{number}"] = tops.astype(smallest_type(own.size(-1)))
            if level or number in kept:
                columns[f"weights_{level}_{number}"] = _byte(own[number])
        joined = found.adjacency[level]
        if joined is not None:
            columns[f"joined_{level}"] = _joined(joined[chosen])
        lengths = found.lengths[level][chosen].double().nan_to_num().numpy()
        steps.append(float(lengths.max(initial=0.0)) / 65535 or 1.0)
        columns[f"length_{level}"] = np.round(lengths / steps[-1]).astype(np.uint16)
    return columns, steps


def bytes_per_graph(found: StoreExplanationData) -> np.ndarray:
    """About how many bytes the columns of each graph take before they are deflated, ``[G]``."""
    J, R = found.assignments[0].size(-1), len(found.rounds[0])
    per_node = J * (R - 1) + (R - 1) + 3
    upper = sum(own.size(-2) * own.size(-1) * (len(own) - 1) for own in found.rounds[1:])
    upper += sum(own.size(-1) ** 2 // 2 for own in found.adjacency if own is not None)
    sizes = found.node_ptr.diff() * per_node + found.edge_ptr.diff() * 6 + upper + 60
    return sizes.numpy()


def graph_rows(ptr: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the chosen graphs one after another, and where each begins among them."""
    length = ptr.diff()[chosen]
    first = torch.nn.functional.pad(length.cumsum(0), (1, 0))
    rows = torch.arange(int(first[-1])) + (ptr[:-1][chosen] - first[:-1]).repeat_interleave(length)
    return rows, first


def _confidence(found: StoreExplanationData) -> np.ndarray:
    """Probability of the predicted class, ``[G]``."""
    own = found.probabilities.gather(1, found.predicted[:, None]).squeeze(1)
    return own.numpy().astype(np.float32)


def _byte(values: Tensor) -> np.ndarray:
    """Numbers from 0 to 1 as bytes."""
    return (values.double().nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8).numpy().reshape(-1)


def _scored(scores: Tensor, first: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Scores as shares of the largest of their graph from −127 to 127, and that largest, ``[G]``."""
    sizes = first.diff()
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    values = torch.nan_to_num(scores.double())
    largest = torch.zeros(sizes.numel(), dtype=torch.float64).scatter_reduce(0, graph, values.abs(), "amax")
    share = values / largest.clamp(min=1e-30)[graph]
    return (share * 127).round().to(torch.int8).numpy(), largest.numpy().astype(np.float32)


def _joined(adjacency: Tensor) -> np.ndarray:
    """Weights between capsules as shares of the heaviest pair of a graph: the upper triangle, as bytes."""
    J = adjacency.size(-1)
    row, column = torch.triu_indices(J, J)
    values = adjacency.double()[:, row, column]
    # The diagonal, edges inside a capsule, is not drawn and would dwarf the rest.
    apart = values.masked_fill((row == column)[None], 0.0)
    return _byte(values / apart.amax(-1, keepdim=True).clamp(min=1e-30))
