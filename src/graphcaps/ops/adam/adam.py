r"""Adam's update of the parameters of F replicas, each with its own step count.

.. math::
    g &\leftarrow g + \lambda p, \quad m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
    v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
    p &\leftarrow p - \frac{\eta}{1 - \beta_1^t} \frac{m}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select

__all__ = ["AdamMemo", "adam_update_", "adam_update_fused_cpu_", "adam_update_torch_"]

AdamMemo = dict[tuple[int, ...], Tensor]
"""Tables that the Triton form makes once per list of parameter sizes. Captured CUDA graphs read them, so they must
live as long as the optimizer."""


def adam_update_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    steps: Tensor,
    rate: Tensor,
    active: Tensor | None,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float | Tensor,
    memo: AdamMemo,
) -> None:
    """Updates stacked parameters and their moments in place, without host–device synchronisation.

    Args:
        parameters, grads (list): Parameters and their gradients, ``[F, …]`` each.
        first, second (list): First and second moments, of the same shapes.
        steps (Tensor): Updates of each replica, this one included, float64, ``[F]``.
        rate (Tensor): Learning rate η, float64, ``[]``, or ``[F]`` for one per replica.
        active (Tensor, optional): True at the replicas to update, ``[F]``. (default: all)
        betas, epsilon (float): β and ε.
        weight_decay (float or Tensor): λ; float64 ``[F]`` if ``rate`` is one per replica.
        memo (dict): Kept by the caller between updates.
    """
    form = select("adam_update", adam_update_torch_, *parameters)
    form(
        parameters, grads, first, second, steps, rate, active,
        betas=betas, epsilon=epsilon, weight_decay=weight_decay, memo=memo,
    )  # fmt: skip


def adam_update_torch_(
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    steps: Tensor,
    rate: Tensor,
    active: Tensor | None,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float | Tensor,
    memo: AdamMemo,
) -> None:
    """The torch form of :func:`adam_update_`, on any device."""
    beta1, beta2 = betas
    for p, grad, m, v in zip(parameters, grads, first, second, strict=True):
        size = rate / (1 - beta1**steps).clamp_min(1e-30)
        root = (1 - beta2**steps).clamp_min(1e-30).rsqrt()
        shape = (-1, *[1] * (p.dim() - 1))
        if isinstance(weight_decay, Tensor):
            g = torch.addcmul(grad, p, weight_decay.to(p.dtype).reshape(shape))
        else:
            g = grad.add(p, alpha=weight_decay) if weight_decay else grad
        moves = torch.as_tensor(True if active is None else active.reshape(shape), device=p.device)
        m.copy_(torch.where(moves, m.lerp(g, 1 - beta1), m))
        v.copy_(torch.where(moves, v * beta2 + g * g * (1 - beta2), v))
        change = m / (v.sqrt() * root.to(p.dtype).reshape(shape) + epsilon)
        p.copy_(torch.where(moves, p - change * size.to(p.dtype).reshape(shape), p))


def adam_update_fused_cpu_(
    parameters: list[Tensor],
    grads: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    steps: list[Tensor],
    rate: float,
    *,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
) -> None:
    """torch's fused update on a CPU, in one pass over each parameter; ``steps`` are those with this update.

    The function of ``torch.optim`` sorts the parameters by device and type first, which takes as long as the update.
    """
    if not parameters:  # none has a gradient
        return
    torch._fused_adam_(
        parameters, grads, first, second, [], steps,
        lr=rate, beta1=betas[0], beta2=betas[1], weight_decay=weight_decay, eps=epsilon,
        amsgrad=False, maximize=False, grad_scale=None, found_inf=None,
    )  # fmt: skip
