"""The layers of the padded program: dense tensors, one graph convolution per whole, every vote stored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["DenseGCN", "MaskedBatchNorm", "PaddedCapsules", "Projection", "put_back", "squash_padded"]

_EPSILON = 1e-7


def squash_padded(z: Tensor, dim: int = -1) -> Tensor:
    """Squash of the released program along an axis."""
    squared = (z**2).sum(dim, keepdim=True)
    return squared / (1 + squared) * (z / torch.sqrt(squared + _EPSILON))


def put_back(rows: Tensor, mask: Tensor) -> Tensor:
    """Real rows ``[N, d]`` in their places of ``[B, n, d]``, 0 at padding.

    The zeros are made on the host and sent, as in the published program: 7 MB for a batch of NCI1.
    """
    out = torch.zeros(*mask.shape, rows.size(-1), dtype=rows.dtype).to(rows.device)
    out[mask] = rows
    return out


class MaskedBatchNorm(nn.Module):
    """Torch's batch normalisation of the real rows of ``[B, n, channels]``; padding becomes 0.

    Real rows are picked out and put back: two copies, and on a GPU the host waits to learn their number.
    Differs from :class:`graphcaps.nn.RaggedBatchNorm`: torch refuses a single row while training.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            flat: Tensor = self.norm(x.flatten(0, 1))
            return flat.view(x.shape)
        return put_back(self.norm(x[mask]), mask)


class Projection(nn.Module):
    """``x W + b``: a product and an addition, as the published program has it."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class DenseGCN(Projection):
    r"""A graph convolution on padded graphs, :math:`\hat A x W + e` with :math:`\hat A` made anew.

    Each of the J convolutions of a layer is a layer of its own and normalises the adjacency itself: a copy and
    about three passes over ``[B, n, n]`` beside its two products.
    """

    def convolve(self, x: Tensor, adjacency: Tensor, mask: Tensor | None) -> Tensor:
        A = adjacency.clone()
        each = torch.arange(A.size(-1), device=A.device)
        A[:, each, each] = 1
        out = x @ self.weight
        scale = A.sum(-1).clamp(min=1).pow(-0.5)
        A = scale.unsqueeze(-1) * A * scale.unsqueeze(-2)
        out = A @ out + self.bias
        return out if mask is None else out * mask.unsqueeze(-1).to(x.dtype)


class PaddedCapsules(nn.Module):
    r"""One step up the hierarchy over stored votes, in the released formulation.

    As :class:`graphcaps.nn.CapsuleLayer`, which holds the equations. What costs what, with votes of
    B·n·J·d numbers (73 MB for a batch of NCI1): J convolutions and their backward, 4 products each and 6
    passes over ``[B, n, n]``; stacking, 2 passes over the votes; each round but the last 4 passes and one
    product of 1×d by d×1 per vote, for which torch writes the wholes once for every node; the last round 3,
    its backward about 5. Rounds but the last see the votes without gradient, so nothing of them is kept. The
    logits start as zeros on the host that are sent. The adjacency of the wholes is computed at every level,
    also at the last, where nobody asks for it.

    Args:
        in_channels (int): Length of a part.
        capsule_dim (int): Length d of a whole.
        num_capsules (int): Wholes J.
        routing_iterations (int): Rounds R.
        residual (bool): Whether the mean part is added before the last squash.
        residual_nodes (int, optional): Fixed divisor of the sum over nodes; ``None``: each graph's own count.
    """

    def __init__(
        self,
        in_channels: int,
        capsule_dim: int,
        num_capsules: int,
        *,
        routing_iterations: int,
        residual: bool,
        residual_nodes: int | None,
    ) -> None:
        super().__init__()
        self.routing_iterations, self.residual = routing_iterations, residual
        self.residual_nodes = residual_nodes
        self.norm = MaskedBatchNorm(in_channels)
        self.convolutions = nn.ModuleList(DenseGCN(in_channels, capsule_dim) for _ in range(num_capsules))

    def forward(self, u: Tensor, adjacency: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Wholes ``[B, J, d]`` and their adjacency ``[B, J, J]``; ``mask [B, n]``, ``None`` for no padding."""
        u = self.norm(u, mask)
        votes = [each.convolve(u, adjacency, mask) for each in self.convolutions]  # type: ignore[operator]
        wholes, c = self._route(torch.stack(votes, 2), self._mean(u, mask) if self.residual else None)
        if mask is not None:
            c = c * mask.unsqueeze(-1)
        return wholes, c.transpose(1, 2) @ adjacency @ c

    def _mean(self, u: Tensor, mask: Tensor | None) -> Tensor:
        """GA(u), ``[B, 1, 1, d, 1]``; padding rows of ``u`` are 0."""
        total = u.sum(1)[:, None, None, :, None]
        if self.residual_nodes is not None:
            return total / self.residual_nodes
        return total / (u.size(1) if mask is None else mask.sum(1).view(-1, 1, 1, 1, 1))

    def _route(self, votes: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor]:
        votes = votes.unsqueeze(-1)  # [B, n, J, d, 1]
        frozen = votes.detach()
        logits = torch.zeros(*votes.shape[:3], 1, 1, dtype=votes.dtype).to(votes.device)
        for _ in range(self.routing_iterations - 1):
            c = logits.softmax(2)
            u = squash_padded((c * frozen).sum(1, keepdim=True), -2)  # [B, 1, J, d, 1]
            logits = logits + frozen.transpose(-1, -2) @ u
        c = logits.softmax(2)
        s = (c * votes).sum(1, keepdim=True)
        u = squash_padded(s if mean is None else s + mean, -2)
        return u.squeeze(-1).squeeze(1), c.squeeze(-1).squeeze(-1)
