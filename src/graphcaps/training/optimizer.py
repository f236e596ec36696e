"""Adam over replicas: each has its own step count, and one without a batch stands still."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcaps.ops._triton.dispatch import supports
from graphcaps.ops.adam.adam import AdamMemo, adam_update_, adam_update_fused_cpu_, adam_update_torch_
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
        self._memo: AdamMemo = {}

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
        if self.steps.device.type == "cpu" and not supports("adam_update", *self.parameters):
            self._step_on_cpu(present, active)
        else:
            self._step_on_device(present, active)

    def _step_on_cpu(self, present: list[int], active: Tensor | None) -> None:
        """torch's fused update in one pass: of all replicas at once where they have taken as many steps, and
        else of every moving replica's own rows."""
        even = active is None and bool((self.steps == self.steps[0]).all())
        whole = self._tensors(present)
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
        adam_update_fused_cpu_(
            rows[0], rows[1], rows[2], rows[3], rows[4], float(self.rate),
            betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay,
        )  # fmt: skip
        self.steps += 1 if active is None else active.to(self.steps.dtype)

    def _step_on_device(self, present: list[int], active: Tensor | None) -> None:
        self.steps += 1 if active is None else active.to(self.steps.dtype)
        parameters, grads, first, second = self._tensors([k for k in present if self._owners[k] is None])
        adam_update_(
            parameters, grads, first, second, self.steps, self.rate, active,
            betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay, memo=self._memo,
        )  # fmt: skip
        # A parameter of one replica is updated as one with an axis of one replica.
        for k in present:
            owner = self._owners[k]
            if owner is None:
                continue
            row = slice(owner, owner + 1)
            columns = ([tensor.unsqueeze(0) for tensor in column] for column in self._tensors([k]))
            parameters, grads, first, second = columns
            adam_update_torch_(
                parameters, grads, first, second, self.steps[row], self.rate,
                None if active is None else active[row],
                betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay, memo=self._memo,
            )  # fmt: skip

    def _tensors(self, indices: list[int]) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Parameters, gradients, first and second moments by index; all of them have a gradient."""
        grads = [self.parameters[k].grad for k in indices]
        return (
            [self.parameters[k].detach() for k in indices],
            [grad for grad in grads if grad is not None],
            [self.first[k] for k in indices],
            [self.second[k] for k in indices],
        )

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
