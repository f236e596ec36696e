"""How much memory a training will take, told before it starts, and how many replicas fit together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.store import GraphStore
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.registry import MODELS
from graphcaps.training.batch_schedule import EVALUATION_ROWS, schedule_epoch
from graphcaps.training.device import total_memory
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.step import TrainingError
from graphcaps.training.streaming import batch_source, dataset_bytes

__all__ = [
    "MemoryEstimate",
    "OutOfMemoryError",
    "estimate_memory",
    "explain_out_of_memory",
    "is_out_of_memory",
]


# How torch's allocator of host memory says it; there is no class for it.
_SIGNS = ("not enough memory", "can't allocate memory", "out of memory")
# What the memory of a step grows with, by model argument.
_SIZES = ("num_capsules", "capsule_dim", "hidden")


class OutOfMemoryError(TrainingError):
    """A step that needs more memory than there is."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that the device or the host has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


@contextmanager
def explain_out_of_memory(config: RunConfig, device: str | torch.device = "cpu") -> Iterator[None]:
    """Turns running out of memory inside the block into an :class:`OutOfMemoryError` that names what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        where = "GPU" if torch.device(device).type == "cuda" else "computer"
        raise OutOfMemoryError(
            f"The {where} ran out of memory: lower the batch size (now {config.training.batch_size})"
            f"{_sizes(config)}, or set max_nodes, which keeps the best connected nodes of large graphs."
        ) from error


def _sizes(config: RunConfig) -> str:
    """``, num_capsules (now 10) or capsule_dim (now 128)``: what the model has of these."""
    parameters = inspect.signature(MODELS[config.model]).parameters
    known: dict[str, Any] = {name: parameters[name].default for name in _SIZES if name in parameters}
    shown = []
    for name, value in (known | {n: v for n, v in config.model_arguments.items() if n in known}).items():
        text = " and ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
        shown.append(f"{name} (now {text})")
    return f", {', '.join(shown)}" if shown else ""


SHARE = 0.8
"""Share of the memory that trainings may fill: forecasts are no measurements."""
# Weights, gradients and both moments, and where weights are averaged the mean and the last ones. And beside what
# is kept for the backward pass, its own temporaries and the slots that a replica pads for the largest of the
# others. With 1.5 the peaks measured on a GPU were 0.7 to 2.4 times the forecast over five of the paper's data
# sets (REDDIT-BINARY, whose graphs differ most, the largest).
_COPIES, _AVERAGED, _TEMPORARIES = 4, 2, 2.5


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a training is expected to take.

    Args:
        data (int): Graphs and input columns, where they lie on the device; 0 where they are streamed.
        weights (int): Weights, gradients, moments and averages of one replica.
        step (int): What one replica's largest step keeps and needs beside.
        total (int, optional): Memory of the device, where it is known.
        scoring (int): What scoring takes, for all replicas together. (default: 0)
    """

    data: int
    weights: int
    step: int
    total: int | None
    scoring: int = 0

    def bytes_for(self, replicas: int) -> int:
        """Bytes of so many replicas together."""
        return self.data + replicas * self.weights + max(replicas * self.step, self.scoring)

    def max_replicas(self, replicas: int) -> int:
        """How many of ``replicas`` to train together: all, or as many as fit, and always one."""
        if self.total is None:
            return replicas
        room = SHARE * self.total
        return next((count for count in range(replicas, 1, -1) if self.bytes_for(count) <= room), 1)


def estimate_memory(
    make: Callable[[tuple[int, ...]], nn.Module],
    store: GraphStore,
    x: Tensor,
    replica: Replica,
    config: TrainConfig,
    device: torch.device,
) -> MemoryEstimate:
    """Runs the forward pass of one replica's largest step and counts what it keeps for the backward pass.

    Args:
        make (callable): From leading axes to the model.
        store (GraphStore): All graphs, on the device or (streamed) on the host.
        x (Tensor): Features of all nodes, beside the store.
        replica (Replica): One of those to be trained; the others are like it.
        config (TrainConfig): How they are trained.
        device (device): Where.
    """
    model: Any = stack_replicas(make, [replica]).to(device).train()
    plan = schedule_epoch([replica], 0, config.batch_size, store.host_node_ptr.diff())
    largest = max(range(len(plan.num_rows)), key=plan.num_rows.__getitem__)
    batch = batch_source(store, device).batch(x, plan.graphs(largest))
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # two views of one memory are one memory
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    # In torch's own form: kernels keep less, and would be compiled for one replica first.
    saved = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with use_kernels("off"), saved:
        assert batch.y is not None
        output = model.forward_batch(batch, batch.y)
        model.loss(output, batch.y)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    for parameter in model.parameters():  # kept for the backward pass too, but counted among the weights
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    resident = dataset_bytes(store, x) if store.device.type == device.type else 0
    step = int(_TEMPORARIES * sum(kept.values()))
    row = step // max(plan.num_rows[largest], 1)
    return MemoryEstimate(
        data=resident,
        weights=(_COPIES + _AVERAGED * (config.average_epochs > 1)) * weights,
        step=step,
        total=total_memory(device),
        # Nothing is kept for a backward pass there, but many rows are scored at a time.
        scoring=row * EVALUATION_ROWS // 2 if device.type == "cuda" else 0,
    )
