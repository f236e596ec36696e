"""Memory of a training: an estimate before it starts, the replicas that fit together, and out-of-memory errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.store import GraphStore
from graphcaps.models.lookup import find_model
from graphcaps.nn.graph_model import ModelFactory
from graphcaps.ops._triton.dispatch import use_kernels
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


# Messages of torch's allocator for host memory, which has no exception class of its own.
_MESSAGES = ("not enough memory", "can't allocate memory", "out of memory")


class OutOfMemoryError(TrainingError):
    """A training that needs more memory than the device has."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that the device or the host is out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


@contextmanager
def explain_out_of_memory(config: RunConfig, device: str | torch.device = "cpu") -> Iterator[None]:
    """Turns an out-of-memory exception inside the block into an :class:`OutOfMemoryError` that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        where = "GPU" if torch.device(device).type == "cuda" else "computer"
        raise OutOfMemoryError(
            f"The {where} ran out of memory: lower the batch size (now {config.training.batch_size})"
            f"{_describe_sizes(config)}, or set max_nodes, which keeps the best connected nodes of large graphs."
        ) from error


def _describe_sizes(config: RunConfig) -> str:
    """``, num_capsules (now 10), capsule_dim (now 128)``: the options of the model that determine its memory."""
    model = find_model(config.model)
    options, shown = model.options(), []
    for name in model.memory_options:
        value = config.model_arguments.get(name, options[name].default)
        text = " and ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
        shown.append(f"{name} (now {text})")
    return f", {', '.join(shown)}" if shown else ""


USABLE_FRACTION = 0.8
"""Fraction of the memory that trainings may be estimated to use; the rest is a margin for errors of the estimate."""
_WEIGHT_COPIES = 4  # weights, gradients and both moments
_AVERAGING_COPIES = 2  # the mean and the latest weights
# Peak memory of a step over the tensors saved for the backward pass: temporaries of that pass, and rows that pad a
# replica to the largest of the others. With 1.5, peaks measured on a GPU were 0.7 to 2.4 times the estimate on five of
# the paper's data sets, the largest on REDDIT-BINARY, whose graph sizes vary most.
_STEP_FACTOR = 2.5


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated memory of a training, in bytes.

    Args:
        data (int): Graphs and features on the device; 0 if they are streamed.
        weights (int): Weights, gradients, moments and averages of one replica.
        step (int): Activations and temporaries of one replica's largest step.
        total (int, optional): Memory of the device, if it is known.
        scoring (int): Memory of the evaluation, for all replicas together. (default: 0)
    """

    data: int
    weights: int
    step: int
    total: int | None
    scoring: int = 0

    def bytes_for(self, replicas: int) -> int:
        """Bytes that ``replicas`` replicas need together."""
        return self.data + replicas * self.weights + max(replicas * self.step, self.scoring)

    def max_replicas(self, replicas: int) -> int:
        """The largest number of replicas, up to ``replicas``, that fit into the memory together; at least 1."""
        if self.total is None:
            return replicas
        usable = USABLE_FRACTION * self.total
        return next((count for count in range(replicas, 1, -1) if self.bytes_for(count) <= usable), 1)


def estimate_memory(
    factory: ModelFactory,
    store: GraphStore,
    x: Tensor,
    replica: Replica,
    config: TrainConfig,
    device: torch.device,
) -> MemoryEstimate:
    """Estimates memory from one forward pass: the bytes that one replica's largest step saves for the backward pass.

    Args:
        factory (callable): Builds a model with the given leading axes.
        store (GraphStore): All graphs, on the device or (streamed) on the host.
        x (Tensor): Features of all nodes, on the device of the store.
        replica (Replica): One of the replicas; the others are assumed to be similar.
        config (TrainConfig): Hyper-parameters of the training.
        device (device): Device of the training.
    """
    model = stack_replicas(factory, [replica]).to(device).train()
    schedule = schedule_epoch(
        [replica], 0, config.batch_size, store.host_node_ptr.diff(), config.batches_per_epoch
    )
    largest = max(range(len(schedule.num_rows)), key=schedule.num_rows.__getitem__)
    saved: dict[int, int] = {}  # bytes by address

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # views of one storage count once
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    # Without kernels: they save less, and would be compiled for a single replica.
    hooks = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with use_kernels("off"), hooks:
        batch = batch_source(store, device).batch(x, schedule.graphs(largest))
        assert batch.y is not None
        output = model.forward_batch(batch, batch.y)
        model.loss(output, batch.y)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    for parameter in model.parameters():  # saved for the backward pass too, but counted as weights
        saved.pop(parameter.untyped_storage().data_ptr(), None)
    resident = dataset_bytes(store, x) if store.device.type == device.type else 0
    step = int(_STEP_FACTOR * sum(saved.values()))
    row = step // max(schedule.num_rows[largest], 1)
    return MemoryEstimate(
        data=resident,
        weights=(_WEIGHT_COPIES + _AVERAGING_COPIES * (config.average_epochs > 1)) * weights,
        step=step,
        total=total_memory(device),
        # Evaluation saves nothing for a backward pass, but handles many rows at a time.
        scoring=row * EVALUATION_ROWS // 2 if device.type == "cuda" else 0,
    )
