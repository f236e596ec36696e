"""Batch normalisation that counts real rows only, for one model or many."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.ops._triton.dispatch import kernels_serve

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
        """Normalises ``x [*lead, V, channels]``; ``mask [*lead, V]`` is True at real rows, others become 0."""
        if self._kernels_serve(x):
            from graphcaps.ops.batch_norm.batch_norm_triton import batch_norm

            return batch_norm(x, mask, self.weight, self.bias, self._running, **self._how)
        if not self.training:
            scale = self.weight * (self.running_var + self.epsilon).rsqrt()
            shift = self.bias - self.running_mean * scale
            return _cleared(torch.addcmul(shift.unsqueeze(-2), x, scale.unsqueeze(-2)), mask)
        if self._torch_serves(x, mask):
            return self._by_torch(x, self.weight, self.bias)
        hat, rstd, count = self._standardised(x, mask)
        found: Tensor = _Normalise.apply(x, self.weight, self.bias, mask, hat, rstd, count, self.epsilon)
        return found

    @torch.no_grad()
    def standardise(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        r"""The same without :math:`\gamma`, :math:`\beta` and gradient; running averages move as in ``forward``.

        For rows that need no gradient: a linear map after the normalisation can take :math:`\gamma` and
        :math:`\beta` into its own weights.
        """
        if self._kernels_serve(x):
            from graphcaps.ops.batch_norm.batch_norm_triton import standardise

            return standardise(x, mask, self._running, **self._how)
        if not self.training:
            scale = (self.running_var + self.epsilon).rsqrt().unsqueeze(-2)
            return _cleared((x - self.running_mean.unsqueeze(-2)).mul_(scale), mask)
        if self._torch_serves(x, mask):
            return self._by_torch(x)
        return self._standardised(x, mask)[0]

    @property
    def _running(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_var

    @property
    def _how(self) -> dict[str, Any]:
        return {"training": self.training, "momentum": self.momentum, "epsilon": self.epsilon}

    def _kernels_serve(self, x: Tensor) -> bool:
        return x.numel() > 0 and tuple(x.shape[:-2]) == tuple(self.lead) and kernels_serve(x, self.weight)

    def _torch_serves(self, x: Tensor, mask: Tensor | None) -> bool:
        return mask is None and x.size(-2) > 1 and torch.Size(self.lead).numel() == 1

    def _by_torch(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """One model, nothing padded: torch's own kernel, one pass forward, one backward."""
        flat = nn.functional.batch_norm(
            x.reshape(-1, self.channels),
            self.running_mean.view(-1),
            self.running_var.view(-1),
            None if weight is None else weight.view(-1),
            None if bias is None else bias.view(-1),
            training=True,
            momentum=self.momentum,
            eps=self.epsilon,
        )
        return flat.reshape(x.shape)

    @torch.no_grad()
    def _standardised(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of mean 0 and variance 1, 0 at padding; 1 / σ and count; moves the running averages."""
        centred, mean, var, count = _centred(x, mask)
        unbiased = var * (count / (count - 1).clamp_min(1))
        # A replica without a real row learns nothing from this batch.
        share = self.momentum * (count > 0).to(x.dtype).expand_as(var)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(unbiased, share)
        rstd = (var + self.epsilon).rsqrt_()
        return centred.mul_(rstd.unsqueeze(-2)), rstd, count

    def extra_repr(self) -> str:
        return f"{self.channels}" + (f", lead={self.lead}" if self.lead else "")


class _Normalise(torch.autograd.Function):
    """γ x̂ + β from standardised rows, with the gradient of the statistics written out: few passes over rows."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, bias, mask, hat, rstd, count, epsilon = given
        ctx.save_for_backward(x, weight, mask, hat, rstd, count)
        ctx.epsilon = epsilon
        return _cleared(torch.addcmul(bias.unsqueeze(-2), hat, weight.unsqueeze(-2)), mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mask, hat, rstd, count = ctx.saved_tensors
        if mask is not None:
            grad = _cleared(grad.clone(), mask)
        if torch.is_grad_enabled():  # a gradient of the gradient: the same from x itself
            centred, _, var, _ = _centred(x, mask)
            rstd = (var + ctx.epsilon).rsqrt()
            hat = centred * rstd.unsqueeze(-2)
        n = count.clamp_min(1)
        dbias, dweight = grad.sum(-2), (grad * hat).sum(-2)
        dx = torch.addcmul(grad - (dbias / n).unsqueeze(-2), hat, (dweight / -n).unsqueeze(-2))
        dx = dx * (weight * rstd).unsqueeze(-2)
        return _cleared(dx, mask), dweight, dbias, None, None, None, None, None


def _centred(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows less their mean, 0 at padding; mean and variance ``[*lead, C]``; count of real rows."""
    if mask is None:
        count = x.new_full((1,), x.size(-2))
    else:
        count = mask.sum(-1, keepdim=True).to(x.dtype)  # [*lead, 1]
        x = _cleared(x.clone(), mask)
    n = count.clamp_min(1)
    mean = x.sum(-2) / n
    centred = _cleared(x - mean.unsqueeze(-2), mask)
    return centred, mean, centred.square().sum(-2) / n, count


def _cleared(rows: Tensor, mask: Tensor | None) -> Tensor:
    """``rows [*lead, V, C]`` with 0 at padding, in place: for tensors that the caller made itself."""
    if mask is None:
        return rows
    if rows.device.type == "cpu" and not rows.requires_grad:
        # Few rows are padding: writing them is cheaper than going over all; a GPU would have to be asked.
        outside = (~mask).reshape(-1).nonzero().squeeze(-1)
        return rows.view(-1, rows.size(-1)).index_fill_(0, outside, 0).view(rows.shape)
    return rows.masked_fill_(~mask.unsqueeze(-1), 0)
