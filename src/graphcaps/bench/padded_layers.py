"""The layers of the padded program: dense tensors, one graph convolution per whole, every vote stored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["DenseGCN", "MaskedBatchNorm", "PaddedCapsules", "squash_padded"]

_EPSILON = 1e-7


def squash_padded(z: Tensor) -> Tensor:
    """Squash of the released program along the last axis."""
    squared = z.square().sum(-1, keepdim=True)
    return squared / (1 + squared) * z / torch.sqrt(squared + _EPSILON)


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
        out = torch.zeros_like(x)
        out[mask] = self.norm(x[mask])
        return out


class DenseGCN(nn.Module):
    r"""A graph convolution on padded graphs, :math:`\hat A x W + e` with :math:`\hat A` made anew.

    Each of the J convolutions of a layer is a layer of its own and normalises the adjacency itself: about
    three passes over ``[B, n, n]`` beside its two products.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor | None) -> Tensor:
        A = adjacency.clone()
        A.diagonal(dim1=-2, dim2=-1).add_(1)
        scale = A.sum(-1).clamp(min=1).pow(-0.5)
        A = scale.unsqueeze(-1) * A * scale.unsqueeze(-2)
        out = A @ (x @ self.weight) + self.bias
        return out if mask is None else out * mask.unsqueeze(-1)


class PaddedCapsules(nn.Module):
    r"""One step up the hierarchy over stored votes, in the released formulation.

    As :class:`graphcaps.nn.CapsuleLayer`, which holds the equations. What costs what, with votes of
    B·n·J·d numbers (73 MB for a batch of NCI1): J convolutions and their backward, 4 products each and 6
    passes over ``[B, n, n]``; stacking, 2 passes over the votes; each round but the last 6 passes, the last
    3, its backward about 5. Rounds but the last see the votes without gradient, so nothing of them is kept.

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
        """Wholes ``[B, J, d]`` and assignment ``[B, n, J]``; ``mask [B, n]``, ``None`` for no padding."""
        u = self.norm(u, mask)
        votes = torch.stack([convolve(u, adjacency, mask) for convolve in self.convolutions], 2)
        return self._route(votes, self._mean(u, mask) if self.residual else None)

    def _mean(self, u: Tensor, mask: Tensor | None) -> Tensor:
        """GA(u), ``[B, 1, 1, d]``; padding rows of ``u`` are 0."""
        total = u.sum(1).unsqueeze(1).unsqueeze(1)
        if self.residual_nodes is not None:
            return total / self.residual_nodes
        return total / (u.size(1) if mask is None else mask.sum(1).view(-1, 1, 1, 1))

    def _route(self, votes: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor]:
        frozen = votes.detach()  # [B, n, J, d]
        logits = frozen.new_zeros(*frozen.shape[:-1], 1)
        for _ in range(self.routing_iterations - 1):
            c = logits.softmax(2)
            u = squash_padded((c * frozen).sum(1, keepdim=True))  # [B, 1, J, d]
            logits = logits + (frozen * u).sum(-1, keepdim=True)
        c = logits.softmax(2)
        s = (c * votes).sum(1, keepdim=True)
        u = squash_padded(s if mean is None else s + mean)
        return u.squeeze(1), c.squeeze(-1)
