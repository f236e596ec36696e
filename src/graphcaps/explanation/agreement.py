"""How found parts agree with known ones or with one another, and how capsules are used."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ShapeError

__all__ = ["capsule_usage", "graphs_with_distinct_kinds", "partition_agreement", "rank_correlation"]


def partition_agreement(
    found: Tensor, truth: Tensor, node_ptr: Tensor, graphs: Tensor | None = None
) -> dict[str, float]:
    """Agreement of two ways to part the nodes of G graphs; what the parts are called plays no role.

    Args:
        found, truth (Tensor): Part of each node, ``[N]``.
        node_ptr (Tensor): First node of each graph, and the end of the last, ``[G + 1]``.
        graphs (Tensor, optional): Graphs that count, as a mask ``[G]``. (default: all)

    Returns:
        dict: ``nmi``, the normalised mutual information inside a graph, mean over graphs; ``nmi_all``, over all
        nodes together, where a part must be found under the same name in every graph; ``ari``, the adjusted
        Rand index inside a graph, mean over graphs. All are 1 where both agree. Where one tells nothing about
        the other, ``ari`` and ``nmi_all`` are about 0, but not ``nmi``: a graph has few nodes, and the more parts
        they are put into, the more agree by chance (docs/explaining.md).
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    if found.shape != truth.shape or found.dim() != 1 or int(node_ptr[-1]) != found.numel():
        raise ShapeError(
            "partition_agreement", "found, truth", f"have {int(node_ptr[-1])} nodes", list(found.shape)
        )
    a, b = found.numpy(), truth.numpy()
    spans = [slice(*span) for span in pairwise(node_ptr.tolist())]
    if graphs is not None:
        spans = [spans[graph] for graph in graphs.nonzero().flatten().tolist()]
    rows = np.concatenate([np.arange(s.start, s.stop) for s in spans])
    return {
        "nmi": float(np.mean([normalized_mutual_info_score(b[s], a[s]) for s in spans])),
        "nmi_all": float(normalized_mutual_info_score(b[rows], a[rows])),
        "ari": float(np.mean([adjusted_rand_score(b[s], a[s]) for s in spans])),
    }


def graphs_with_distinct_kinds(kind: Tensor, part: Tensor, node_ptr: Tensor) -> Tensor:
    """Graphs in which no two planted parts are of one kind, as a mask ``[G]``; nodes of part −1 do not count."""
    graph = torch.arange(node_ptr.numel() - 1).repeat_interleave(node_ptr.diff())
    planted = part >= 0
    width = int(torch.cat([kind, part]).max()) + 1
    parts = torch.unique((graph * width + part)[planted])
    pairs = torch.unique(((graph * width + kind) * width + part)[planted])
    kinds = torch.unique(pairs // width)
    count = torch.bincount(parts // width, minlength=node_ptr.numel() - 1)
    return count == torch.bincount(kinds // width, minlength=node_ptr.numel() - 1)


def capsule_usage(assignment: Tensor, node_ptr: Tensor) -> dict[str, Any]:
    """How the J capsules over nodes are used, from their routing weights ``[N, J]``.

    Returns:
        dict: ``entropy`` of a node's weights, mean over nodes, in units of log J: 0 where every node belongs to
        one capsule, 1 where all are spread evenly; ``dead_capsules``, how many are never the strongest of any
        node; ``share``, the part of a graph's nodes whose strongest capsule it is, mean over graphs, ``J`` numbers;
        ``used_per_graph``, capsules that are the strongest of some node of a graph, mean over graphs.
    """
    J = assignment.size(-1)
    entropy = -torch.xlogy(assignment.double(), assignment.double()).sum(-1).mean() / math.log(max(J, 2))
    sizes = node_ptr.diff()
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    counts = torch.bincount(graph * J + assignment.argmax(-1), minlength=sizes.numel() * J).reshape(-1, J)
    share = (counts / sizes.unsqueeze(-1)).double().mean(0)
    return {
        "entropy": float(entropy),
        "dead_capsules": int((counts.sum(0) == 0).sum()),
        "share": [round(value, 6) for value in share.tolist()],
        "used_per_graph": float((counts > 0).double().sum(-1).mean()),
    }


def rank_correlation(one: Tensor, two: Tensor, node_ptr: Tensor) -> float:
    """Spearman's correlation of two scores ``[N]`` inside a graph, mean over graphs in which both vary."""
    from scipy.stats import rankdata

    a, b = one.double().numpy(), two.double().numpy()
    found = []
    for start, end in pairwise(node_ptr.tolist()):
        ranks = rankdata(a[start:end]), rankdata(b[start:end])
        if min(rank.std() for rank in ranks) > 0:
            found.append(np.corrcoef(*ranks)[0, 1])
    return float(np.mean(found)) if found else float("nan")
