"""Adam over replicas: each has its own step count, and one without a batch stands still."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ReplicaAdam"]


class ReplicaAdam:
    r"""Adam (https://arxiv.org/abs/1412.6980) with L2 inside the gradient, element by element.

    Equals :class:`torch.optim.Adam` for every replica, also where another replica takes fewer steps: its
    moments, its count and its weights are its own.

    Args:
        model (Module): Parameters with one leading axis of F replicas.
        num_replicas (int): F.
        weight_decay (float): Share of the weights added to their gradient.
        betas, epsilon: As in torch's. (default: (0.9, 0.999), 1e-8)
    """

    def __init__(
        self,
        model: nn.Module,
        num_replicas: int,
        *,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.names = [name for name, _ in model.named_parameters()]
        self.parameters = [parameter for _, parameter in model.named_parameters()]
        self.weight_decay, self.betas, self.epsilon = weight_decay, betas, epsilon
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        device = self.parameters[0].device
        self.steps = torch.zeros(num_replicas, dtype=torch.float64, device=device)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: float, active: Tensor | None = None) -> None:
        """One update with the gradients that are there.

        Args:
            rate (float): Learning rate.
            active (Tensor, optional): True at replicas that had a batch, ``[F]``. (default: all)
        """
        self.steps += 1 if active is None else active.to(self.steps.dtype)
        beta1, beta2 = self.betas
        scale1 = rate / (1 - beta1**self.steps).clamp_min(1e-30)
        scale2 = (1 - beta2**self.steps).clamp_min(1e-30).rsqrt()
        for p, m, v in zip(self.parameters, self.first, self.second, strict=True):
            if p.grad is None:
                continue
            g = p.grad.add(p, alpha=self.weight_decay) if self.weight_decay else p.grad
            shape = (-1, *[1] * (p.dim() - 1))
            root = scale2.to(p.dtype).reshape(shape)
            size = scale1.to(p.dtype).reshape(shape)
            if active is None:
                m.lerp_(g, 1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                p.sub_(m / (v.sqrt() * root).add_(self.epsilon) * size)
                continue
            moves = active.reshape(shape)
            m.copy_(torch.where(moves, m.lerp(g, 1 - beta1), m))
            v.copy_(torch.where(moves, v * beta2 + g * g * (1 - beta2), v))
            p.copy_(torch.where(moves, p - m / (v.sqrt() * root + self.epsilon) * size, p))

    def state(self) -> dict[str, Tensor]:
        """Everything that a resumed run needs."""
        state = {"steps": self.steps}
        for name, m, v in zip(self.names, self.first, self.second, strict=True):
            state |= {f"first.{name}": m, f"second.{name}": v}
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.steps.copy_(state["steps"])
        for name, m, v in zip(self.names, self.first, self.second, strict=True):
            m.copy_(state[f"first.{name}"])
            v.copy_(state[f"second.{name}"])
