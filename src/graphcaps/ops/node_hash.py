"""Pseudo-random numbers of nodes that follow from a seed and from what a node and its surroundings are.

The numbers are hashes of Weisfeiler-Lehman colours. All sums are sums of integers, so that they depend neither on the
order of nodes nor on the device.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphcaps.ops.activation.hashed_dropout import mix64
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.types import EdgeTable

__all__ = ["hash_nodes"]

_PIECES, _BITS = 8, 8
"""A hash is summed over neighbours as eight integers of 8 bits: all products along edges are exact for them, in
bfloat16 too, and float32 adds 65,536 of them exactly."""


@torch.no_grad()
def hash_nodes(x: Tensor, edges: EdgeTable, seed: Tensor, iterations: int) -> Tensor:
    r"""Uniform pseudo-random numbers, one per node, from ``iterations`` rounds of colour refinement.

    .. math:: c^{(0)}_i = h\Big(\sum_k h(x_{ik}, k)\Big), \quad
        c^{(t+1)}_i = h\Big(c^{(t)}_i + \sum_{j \in N(i)} h(c^{(t)}_j)\Big)

    with a hash :math:`h` that depends on the seed. Nodes have the same number if and only if, up to collisions, colour
    refinement from equal features does not distinguish them. The order of nodes, other graphs and edge weights do not
    matter. Sums over more than 65,536 neighbours are rounded, which gives other numbers of the same distribution.

    Args:
        x (Tensor): Features, ``[*lead, V, in]``; padding rows must be finite.
        edges (EdgeTable): Edges of the batch.
        seed (Tensor): One seed per replica, int64, ``[*lead]``.
        iterations (int): Number of rounds.

    Returns:
        Tensor: Numbers in [0, 1), ``[*lead, V]``, float32, or float64 if ``x`` is.
    """
    column = mix64(torch.arange(1, x.size(-1) + 1, device=x.device))
    salt = mix64(seed).unsqueeze(-1)
    # + 0 makes −0 and 0 equal; a float64 has 64 bits that no rounding can change.
    bits = (x.double() + 0).view(torch.int64)
    colour = mix64(mix64(bits ^ column).sum(-1) ^ salt)
    unweighted = edges if edges.weight is None else replace(edges, weight=None, pairs=None)
    shifts = torch.arange(0, _PIECES * _BITS, _BITS, device=x.device)
    for _ in range(iterations):
        pieces = (mix64(colour ^ salt).unsqueeze(-1) >> shifts) & ((1 << _BITS) - 1)
        total = neighbour_sum(pieces.float(), unweighted).long()
        colour = mix64(colour + (total << shifts).sum(-1))
    dtype = torch.promote_types(x.dtype, torch.float32)
    return ((colour >> 40) & 0xFFFFFF).to(dtype) / (1 << 24)
