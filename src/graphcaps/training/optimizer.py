"""Adam for replicas: each has its own step count, and a replica without a batch is not updated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from graphcaps.ops._triton.dispatch import supports
from graphcaps.ops.adam.adam import AdamMemo, adam_update_, adam_update_fused_cpu_

__all__ = ["ReplicaAdam"]


class ReplicaAdam:
    r"""Adam (https://arxiv.org/abs/1412.6980) with L2 regularisation in the gradient.

    Equals :class:`torch.optim.Adam` for every replica, also where another replica takes fewer steps: moments, step
    counts and weights are per replica.

    On a CPU torch's fused update runs on the weights of the active replicas. Elsewhere all state is on the device,
    the learning rate too, so that an update needs no host–device synchronisation and can be captured.

    Args:
        model (Module): Parameters with one leading axis of F replicas.
        num_replicas (int): Number of replicas F.
        weight_decay (float or Tensor): Coefficient of the L2 term in the gradient. With one per replica, ``[F]``,
            learning rates are one per replica too. (default: 0.0)
        betas (tuple): Decay rates of the moments. (default: (0.9, 0.999))
        epsilon (float): Added to the denominator. (default: 1e-8)
    """

    def __init__(
        self,
        model: nn.Module,
        num_replicas: int,
        *,
        weight_decay: float | Tensor = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.names = [name for name, _ in model.named_parameters()]
        self.parameters = [parameter for _, parameter in model.named_parameters()]
        self._values = [parameter.detach() for parameter in self.parameters]
        self.betas, self.epsilon = betas, epsilon
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        device = self.parameters[0].device
        self.steps = torch.zeros(num_replicas, dtype=torch.float64, device=device)
        self.weight_decay = weight_decay
        each: tuple[int, ...] = ()
        if isinstance(weight_decay, Tensor):
            each = (num_replicas,)
            self.weight_decay = weight_decay.to(device, torch.float64)
        self.rate = torch.zeros(each, dtype=torch.float64, device=device)
        self._memo: AdamMemo = {}

    def zero_grad(self) -> None:
        """Drops all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def set_rate(self, rate: float | Tensor) -> None:
        """Sets the learning rate of the next updates; one per replica, ``[F]``, if weight decays are."""
        if isinstance(rate, Tensor):
            self.rate.copy_(rate)
        else:
            self.rate.fill_(rate)

    @torch.no_grad()
    def count_step(self, active: Tensor | None = None) -> bool:
        """Counts the step that :meth:`step` takes next, on a GPU; returns whether it did."""
        if self._on_device:
            self._count(active)
        return self._on_device

    def _count(self, active: Tensor | None) -> None:
        self.steps += 1 if active is None else active  # a conversion would be a kernel of its own

    @torch.no_grad()
    def step(self, active: Tensor | None = None, *, counted: bool = False) -> None:
        """Updates all parameters that have a gradient, at the rate of the last :meth:`set_rate`.

        Args:
            active (Tensor, optional): True at replicas that have a batch, ``[F]``. (default: all)
            counted (bool): Whether :meth:`count_step` has counted this step. (default: False)
        """
        present = [k for k, p in enumerate(self.parameters) if p.grad is not None]
        if self._on_device:
            self._step_on_device(present, active, counted)
        else:
            self._step_on_cpu(present, active)

    @property
    def _on_device(self) -> bool:
        return self.steps.device.type != "cpu" or supports("adam_update", *self.parameters)

    def _step_on_cpu(self, present: list[int], active: Tensor | None) -> None:
        """torch's fused update of consecutive active replicas with the same numbers and as many steps; usually these
        are all replicas."""
        F = len(self.steps)
        moves = [True] * F if active is None else active.tolist()
        decays = self.weight_decay
        each = decays.tolist() if isinstance(decays, Tensor) else [decays] * F
        numbers = zip(moves, self.rate.expand(F).tolist(), each, self.steps.tolist(), strict=True)
        columns: Sequence[list[Tensor]] = self._tensors(present)
        first = 0
        for (is_active, rate, decay, steps), run in groupby(numbers):
            end = first + len(list(run))
            if is_active:
                whole = end - first == F  # indexing takes longer than the update of a small model
                rows = columns if whole else [[tensor[first:end] for tensor in column] for column in columns]
                counts = [torch.tensor(steps + 1.0)] * len(present)
                adam_update_fused_cpu_(
                    rows[0], rows[1], rows[2], rows[3], counts, rate,
                    betas=self.betas, epsilon=self.epsilon, weight_decay=decay,
                )  # fmt: skip
            first = end
        self.steps += 1 if active is None else active.to(self.steps.dtype)

    def _step_on_device(self, present: list[int], active: Tensor | None, counted: bool = False) -> None:
        if not counted:
            self._count(active)
        if not present:  # all gradients were early
            return
        parameters, grads, first, second = self._tensors(present)
        adam_update_(
            parameters, grads, first, second, self.steps, self.rate, active,
            betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay, memo=self._memo,
        )  # fmt: skip

    def _tensors(self, indices: list[int]) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Parameters, gradients, first and second moments by index; all of them have a gradient."""
        grads = [self.parameters[k].grad for k in indices]
        if len(indices) == len(self.parameters):
            return self._values, [grad for grad in grads if grad is not None], self.first, self.second
        return (
            [self._values[k] for k in indices],
            [grad for grad in grads if grad is not None],
            [self.first[k] for k in indices],
            [self.second[k] for k in indices],
        )

    def state(self) -> dict[str, Tensor]:
        """Step counts and moments, for a checkpoint."""
        state = {"steps": self.steps}
        for name, m, v in zip(self.names, self.first, self.second, strict=True):
            state |= {f"first.{name}": m, f"second.{name}": v}
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continues from a result of :meth:`state`."""
        self.steps.copy_(state["steps"])
        for name, m, v in zip(self.names, self.first, self.second, strict=True):
            m.copy_(state[f"first.{name}"])
            v.copy_(state[f"second.{name}"])
