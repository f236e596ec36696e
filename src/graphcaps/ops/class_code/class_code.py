"""Code of each graph in the adjacency decoder: a linear map of the capsule of its class."""

from __future__ import annotations

from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.graph_mean import class_mask

__all__ = ["class_code"]


def class_code(capsules: Tensor, y: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    r"""The code :math:`W_y^\top u_y + e` of each graph, where y is its class.

    Args:
        capsules (Tensor): Class capsules u, ``[*lead, B, O, d]``.
        y (Tensor): Class of each graph, ``[*lead, B]``; a negative one counts as class 0.
        weight (Tensor): W, ``[*lead, O·d, E]``.
        bias (Tensor): e, ``[*lead, E]``.
        relu (bool): Whether a ReLU is applied to the code.

    Returns:
        Tensor: ``[*lead, B, E]``.
    """
    return select("class_code", _class_code, capsules, weight)(capsules, y, weight, bias, relu)


def _class_code(capsules: Tensor, y: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    masked = (capsules * class_mask(y, capsules.size(-2)).unsqueeze(-1)).flatten(-2)  # [*lead, B, O·d]
    code = masked @ weight + bias.unsqueeze(-2)
    return code.relu() if relu else code
