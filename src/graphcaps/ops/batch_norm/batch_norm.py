r"""Batch normalisation over the real rows of a ragged batch, for one model or for many replicas.

.. math:: y = \gamma \hat x + \beta, \quad \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}

:math:`\mu` and :math:`\sigma^2` are statistics of the real rows while training, and running averages otherwise. In a
:class:`~graphcaps.ops.batch_shard.BatchShard` they are those of the whole batch, and so is their gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select, uses_reference
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.batch_shard import BatchShard, current_shard
from graphcaps.ops.compilation import is_traced

__all__ = ["Running", "batch_norm", "standardise"]

Running = tuple[Tensor, Tensor]
"""Running mean and running variance, ``[*lead, C]`` each."""


@full_precision
def batch_norm(
    x: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    r"""Normalises rows.

    Args:
        x (Tensor): Rows, ``[*lead, V, C]``; padding rows may hold anything.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``; fewer entries stand for as many rows each.
            (default: all are real)
        weight, bias (Tensor): :math:`\gamma` and :math:`\beta`, ``[*lead, C]``.
        running (tuple): Running mean and variance, ``[*lead, C]``; updated in place while training, except those of
            a replica without a real row.
        training (bool): Whether statistics are those of these rows or the running ones.
        momentum (float): Weight of this batch in the running averages.
        epsilon (float): :math:`\epsilon`.

    Returns:
        Tensor: ``[*lead, V, C]``, zero at padding rows.
    """
    form = select("batch_norm", _batch_norm, x, weight)
    return form(x, mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon)


@full_precision
@torch.no_grad()
def standardise(
    x: Tensor, mask: Tensor | None, running: Running, *, training: bool, momentum: float, epsilon: float
) -> Tensor:
    r""":math:`\hat x`, without :math:`\gamma`, :math:`\beta` and gradient; arguments as in :func:`batch_norm`."""
    form = select("standardise", _standardise, x, running[0])
    return form(x, mask, running, training=training, momentum=momentum, epsilon=epsilon)


def _batch_norm(
    x: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    running_mean, running_var = running
    mask = _mask_of_rows(mask, x.size(-2))
    if not training:
        scale = weight * (running_var + epsilon).rsqrt()
        shift = bias - running_mean * scale
        return _clear_padding_(torch.addcmul(shift.unsqueeze(-2), x, scale.unsqueeze(-2)), mask)
    if _is_plain(x, mask, running_mean):
        return _plain_batch_norm(x, running, momentum, epsilon, weight.view(-1), bias.view(-1))
    hat, rstd, count = _standardise_and_update(x, mask, running, momentum, epsilon)
    y: Tensor = _ScaleAndShift.apply(x, weight, bias, mask, hat, rstd, count, epsilon, current_shard())
    return y


def _standardise(
    x: Tensor, mask: Tensor | None, running: Running, *, training: bool, momentum: float, epsilon: float
) -> Tensor:
    running_mean, running_var = running
    mask = _mask_of_rows(mask, x.size(-2))
    if not training:
        scale = (running_var + epsilon).rsqrt().unsqueeze(-2)
        return _clear_padding_((x - running_mean.unsqueeze(-2)).mul_(scale), mask)
    if _is_plain(x, mask, running_mean):
        return _plain_batch_norm(x, running, momentum, epsilon)
    return _standardise_and_update(x, mask, running, momentum, epsilon)[0]


def _mask_of_rows(mask: Tensor | None, V: int) -> Tensor | None:
    """The mask with one entry per row."""
    if mask is None or mask.size(-1) == V:
        return mask
    return mask.unsqueeze(-1).expand(*mask.shape, V // mask.size(-1)).flatten(-2)


def _is_plain(x: Tensor, mask: Tensor | None, running_mean: Tensor) -> bool:
    """A whole batch of one model, without padding, of more than one row: what torch's own function computes."""
    is_single = running_mean.shape[:-1].numel() == 1
    return mask is None and x.size(-2) > 1 and is_single and current_shard() is None


def _plain_batch_norm(
    x: Tensor,
    running: Running,
    momentum: float,
    epsilon: float,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """torch's own kernel: one pass forward, one backward."""
    running_mean, running_var = running
    flat = torch.nn.functional.batch_norm(
        x.reshape(-1, running_mean.size(-1)),
        running_mean.view(-1),
        running_var.view(-1),
        weight,
        bias,
        training=True,
        momentum=momentum,
        eps=epsilon,
    )
    return flat.reshape(x.shape)


@torch.no_grad()
def _standardise_and_update(
    x: Tensor, mask: Tensor | None, running: Running, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Standardised rows (zero at padding), 1 / σ and the number of real rows; updates the running averages."""
    running_mean, running_var = running
    centred, mean, var, count = _centre(x, mask, current_shard())
    unbiased = var * (count / (count - 1).clamp_min(1))
    # The running averages of a replica without a real row stay as they are.
    share = momentum * (count > 0).to(x.dtype).expand_as(var)
    running_mean.lerp_(mean, share)
    running_var.lerp_(unbiased, share)
    rstd = (var + epsilon).rsqrt_()
    return centred.mul_(rstd.unsqueeze(-2)), rstd, count


class _ScaleAndShift(torch.autograd.Function):
    """γ x̂ + β from standardised rows. The gradient of the statistics is written out to save passes over the rows."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, weight, bias, mask, hat, rstd, count, epsilon, shard = inputs
        ctx.save_for_backward(x, weight, mask, hat, rstd, count)
        ctx.epsilon, ctx.shard = epsilon, shard
        return _clear_padding_(torch.addcmul(bias.unsqueeze(-2), hat, weight.unsqueeze(-2)), mask)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mask, hat, rstd, count = ctx.saved_tensors
        if mask is not None:
            grad = _clear_padding_(grad.clone(), mask)
        if torch.is_grad_enabled():  # for a second derivative, x̂ must be a function of x
            centred, _, var, _ = _centre(x, mask, ctx.shard)
            rstd = (var + ctx.epsilon).rsqrt()
            hat = centred * rstd.unsqueeze(-2)
        n = count.clamp_min(1)
        dbias, dweight = grad.sum(-2), (grad * hat).sum(-2)
        first, second = dbias, dweight
        if ctx.shard is not None:  # the statistics are functions of all rows of the batch
            first, second = ctx.shard.total(torch.stack([dbias, dweight]))
        dx = torch.addcmul(grad - (first / n).unsqueeze(-2), hat, (second / -n).unsqueeze(-2))
        dx = dx * (weight * rstd).unsqueeze(-2)
        return _clear_padding_(dx, mask), dweight, dbias, None, None, None, None, None, None


def _centre(
    x: Tensor, mask: Tensor | None, shard: BatchShard | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows minus their mean (zero at padding), mean and variance ``[*lead, C]``, and the number of real rows."""
    if shard is not None:
        return _centre_shard(x, mask, shard)
    if mask is None:
        count = x.new_full((1,), x.size(-2))
    else:
        count = mask.sum(-1, keepdim=True).to(x.dtype)  # [*lead, 1]
        x = _clear_padding_(x.clone(), mask)
    n = count.clamp_min(1)
    mean = x.sum(-2) / n
    centred = _clear_padding_(x - mean.unsqueeze(-2), mask)
    return centred, mean, centred.square().sum(-2) / n, count


def _centre_shard(x: Tensor, mask: Tensor | None, shard: BatchShard) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`_centre` with mean, variance and count of the whole batch: two sums over all processes."""
    count = x.new_full((*x.shape[:-2], 1), x.size(-2))
    if mask is not None:
        count = mask.sum(-1, keepdim=True).to(x.dtype)
        x = _clear_padding_(x.clone(), mask)
    total = shard.total(torch.cat([x.sum(-2), count], -1))
    sums, count = total[..., :-1], total[..., -1:]
    n = count.clamp_min(1)
    mean = sums / n
    centred = _clear_padding_(x - mean.unsqueeze(-2), mask)
    return centred, mean, shard.total(centred.square().sum(-2)) / n, count


def _clear_padding_(rows: Tensor, mask: Tensor | None) -> Tensor:
    """``rows [*lead, V, C]`` with zeros at padding, in place."""
    if mask is None:
        return rows
    if rows.device.type == "cpu" and not (rows.requires_grad or uses_reference() or is_traced()):
        # Few rows are padding, so writing only those is faster. On a GPU their indices would need a synchronisation.
        outside = (~mask).reshape(-1).nonzero().squeeze(-1)
        return rows.view(-1, rows.size(-1)).index_fill_(0, outside, 0).view(rows.shape)
    return rows.masked_fill_(~mask.unsqueeze(-1), 0)
