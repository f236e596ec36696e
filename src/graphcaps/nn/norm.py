"""Batch normalisation that counts real rows only, for one model or many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["RaggedBatchNorm"]


class RaggedBatchNorm(nn.Module):
    r"""Batch normalisation over the real rows of a ragged batch.

    .. math:: y = \gamma \, \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta

    with mean and variance over the real rows while training and running averages of them afterwards, as in
    :class:`torch.nn.BatchNorm1d`, which it equals where nothing is padding. Differs from it: a single row
    is normalised to :math:`\beta` instead of being refused.

    Args:
        channels (int): Length of a row.
        lead (tuple): Leading axes of the parameters. (default: ())
        momentum (float): Share of the newest batch in the running averages. (default: 0.1)
        epsilon (float): Added to the variance. (default: 1e-5)
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, channels: int, *, lead: tuple[int, ...] = (), momentum: float = 0.1, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.channels, self.lead, self.momentum, self.epsilon = channels, lead, momentum, epsilon
        self.weight = nn.Parameter(torch.empty(*lead, channels))
        self.bias = nn.Parameter(torch.empty(*lead, channels))
        self.register_buffer("running_mean", torch.empty(*lead, channels))
        self.register_buffer("running_var", torch.empty(*lead, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalises ``x [*lead, V, channels]``; ``mask [*lead, V]`` is True at real rows."""
        if not self.training:
            scale = self.weight * (self.running_var + self.epsilon).rsqrt()
            shift = self.bias - self.running_mean * scale
            return x * scale.unsqueeze(-2) + shift.unsqueeze(-2)
        if mask is None and x.size(-2) > 1 and torch.Size(self.lead).numel() == 1:
            # One model, nothing padded: torch's own kernel, one pass forward, one backward.
            flat = nn.functional.batch_norm(
                x.reshape(-1, self.channels),
                self.running_mean.view(-1),
                self.running_var.view(-1),
                self.weight.view(-1),
                self.bias.view(-1),
                training=True,
                momentum=self.momentum,
                eps=self.epsilon,
            )
            return flat.reshape(x.shape)
        return self._normalise(x, mask)

    def _normalise(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            count = x.new_full((), x.size(-2))
            mean = x.mean(-2, keepdim=True)
            centred = x - mean
        else:
            rows = mask.unsqueeze(-1)
            count = rows.sum(-2).to(x.dtype)  # [*lead, 1]
            mean = x.masked_fill(~rows, 0).sum(-2, keepdim=True) / count.clamp_min(1).unsqueeze(-1)
            centred = (x - mean).masked_fill(~rows, 0)
        var = centred.square().sum(-2) / count.clamp_min(1)
        with torch.no_grad():
            unbiased = var * (count / (count - 1).clamp_min(1))
            # A replica without a real row learns nothing from this batch.
            share = self.momentum * (count > 0).to(x.dtype).expand_as(var)
            self.running_mean.lerp_(mean.squeeze(-2).detach(), share)
            self.running_var.lerp_(unbiased.detach(), share)
        scale = self.weight * (var + self.epsilon).rsqrt()
        return centred * scale.unsqueeze(-2) + self.bias.unsqueeze(-2)

    def extra_repr(self) -> str:
        return f"{self.channels}" + (f", lead={self.lead}" if self.lead else "")
