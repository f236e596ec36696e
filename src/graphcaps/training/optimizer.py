"""Adam over replicas: each has its own step count, and one without a batch stands still."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as torch_adam

from graphcaps.ops._triton.dispatch import kernels_serve
from graphcaps.training.replicas import TRUNK_KEY

__all__ = ["ReplicaAdam"]


class ReplicaAdam:
    r"""Adam (https://arxiv.org/abs/1412.6980) with L2 inside the gradient, element by element.

    Equals :class:`torch.optim.Adam` for every replica, also where another replica takes fewer steps: its
    moments, its count and its weights are its own.

    On a CPU torch's own fused update runs over the weights of the replicas that move. Elsewhere everything
    it needs lies on the device, the rate too: a captured update never asks the host.

    Args:
        model (Module): Parameters with one leading axis of F replicas, but those of a trunk, of which each replica
            has its own under its number.
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
        self._owners = [_owner(name) for name in self.names]
        self.steps = torch.zeros(num_replicas, dtype=torch.float64, device=device)
        self.rate = torch.zeros((), dtype=torch.float64, device=device)
        self._blocks: dict[tuple[int, ...], Tensor] = {}  # who updates what, for the kernel

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def set_rate(self, rate: float) -> None:
        """Learning rate of the next updates."""
        self.rate.fill_(rate)

    @torch.no_grad()
    def step(self, rate: float | None = None, active: Tensor | None = None) -> None:
        """One update with the gradients that are there.

        Args:
            rate (float, optional): Learning rate. (default: the one set before)
            active (Tensor, optional): True at replicas that had a batch, ``[F]``. (default: all)
        """
        if rate is not None:
            self.set_rate(rate)
        present = [place for place, p in enumerate(self.parameters) if p.grad is not None]
        if self.steps.device.type == "cpu" and not kernels_serve(*self.parameters):
            self._step_on_cpu(present, active)
        else:
            self._step_on_device(present, active)

    def _step_on_cpu(self, present: list[int], active: Tensor | None) -> None:
        """torch's fused update in one pass: of all replicas at once where they have taken as many steps, and
        else of every moving replica's own rows."""
        even = active is None and bool((self.steps == self.steps[0]).all())
        grads = [self.parameters[place].grad for place in present]
        whole = (
            [self.parameters[place].detach() for place in present],
            [grad for grad in grads if grad is not None],
            [self.first[place] for place in present],
            [self.second[place] for place in present],
        )
        rows: tuple[list[Tensor], ...]
        if even:  # few operations: they are what a small model's step is made of
            steps = self.steps[:1].float().repeat(len(present))
            rows = (*whole, list(steps.unbind()))
        else:
            moving = range(len(self.steps)) if active is None else active.nonzero()[:, 0].tolist()
            owners = [self._owners[place] for place in present]
            parts = [(k, f) for k, owner in enumerate(owners) for f in moving if owner in (None, f)]
            own = [[column[k] if owners[k] == f else column[k][f] for k, f in parts] for column in whole]
            rows = (*own, [self.steps[f].float() for _, f in parts])
        beta1, beta2 = self.betas
        torch_adam(
            rows[0], rows[1], rows[2], rows[3], [], rows[4],
            fused=True, amsgrad=False, maximize=False,
            beta1=beta1, beta2=beta2, lr=float(self.rate), weight_decay=self.weight_decay, eps=self.epsilon,
        )  # fmt: skip
        self.steps += 1 if active is None else active.to(self.steps.dtype)

    def _step_on_device(self, present: list[int], active: Tensor | None) -> None:
        self.steps += 1 if active is None else active.to(self.steps.dtype)
        if kernels_serve(*self.parameters):
            self._step_by_kernel([place for place in present if self._owners[place] is None], active)
            present = [place for place in present if self._owners[place] is not None]
        beta1, beta2 = self.betas
        for place in present:
            p, m, v = self.parameters[place].detach(), self.first[place], self.second[place]
            grad, owner = self.parameters[place].grad, self._owners[place]
            assert grad is not None
            whose = slice(None)
            if owner is not None:  # one replica's alone: an axis of one
                p, m, v, grad = (tensor.unsqueeze(0) for tensor in (p, m, v, grad))
                whose = slice(owner, owner + 1)
            size = self.rate / (1 - beta1 ** self.steps[whose]).clamp_min(1e-30)
            root = (1 - beta2 ** self.steps[whose]).clamp_min(1e-30).rsqrt()
            shape = (-1, *[1] * (p.dim() - 1))
            g = grad.add(p, alpha=self.weight_decay) if self.weight_decay else grad
            moves = True if active is None else active[whose].reshape(shape)
            moves = torch.as_tensor(moves, device=p.device)
            m.copy_(torch.where(moves, m.lerp(g, 1 - beta1), m))
            v.copy_(torch.where(moves, v * beta2 + g * g * (1 - beta2), v))
            change = m / (v.sqrt() * root.to(p.dtype).reshape(shape) + self.epsilon)
            p.copy_(torch.where(moves, p - change * size.to(p.dtype).reshape(shape), p))

    def _step_by_kernel(self, present: list[int], active: Tensor | None) -> None:
        """One launch for many parameters: most of them are too small to be worth one each."""
        from graphcaps.ops.adam.adam_triton import PARAMETERS, blocks_of, update_

        for start in range(0, len(present), PARAMETERS):
            places = tuple(present[start : start + PARAMETERS])
            weights = [self.parameters[place] for place in places]
            if places not in self._blocks:
                self._blocks[places] = blocks_of(weights)
            slopes = [weight.grad for weight in weights if weight.grad is not None]
            first, second = ([table[place] for place in places] for table in (self.first, self.second))
            update_(
                weights, slopes, first, second, self._blocks[places], self.steps, self.rate, active,
                betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay,
            )  # fmt: skip

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


def _owner(name: str) -> int | None:
    """The replica that a parameter belongs to, where it is not that of all of them, one row each."""
    return int(name.split(TRUNK_KEY)[1].split(".")[0]) if TRUNK_KEY in name else None
