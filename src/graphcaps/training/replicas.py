"""Replicas: F independent models of the same sizes, stacked along a leading axis and trained together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.nn.graph_model import GraphModel, ModelFactory
from graphcaps.nn.initialise import forked_generator

__all__ = [
    "Replica",
    "copy_replicas_",
    "join_replicas",
    "pick_replica",
    "replica_model",
    "select_replicas",
    "slice_replicas",
    "spread_sample",
    "stack_replicas",
]


@dataclass(frozen=True)
class Replica:
    """The split and the seed of one training among many.

    Args:
        train (Tensor): Indices of the training graphs, ``[n]``.
        validation (Tensor): Indices of the validation graphs; may be empty.
        test (Tensor): Indices of the test graphs; may be empty.
        seed (int): Seed of the run. (default: 0)
        fold (int): Number of the fold; enters the seed of every random stream. (default: 0)
        variant (str): Name of the weight initialisation, among variants that differ in nothing else. (default: "")
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    seed: int = 0
    fold: int = 0
    variant: str = ""

    @property
    def stream_seed(self) -> int:
        """Seed of this replica's random streams; it does not depend on the other replicas."""
        return (self.seed * 1_000_003 + self.fold) % (1 << 63)

    def order(self, epoch: int) -> Tensor:
        """The training graphs in the order of an epoch. It depends on seed, fold and epoch only."""
        return self.train[torch.randperm(self.train.numel(), generator=self._generator(epoch))]

    def draws(self, epoch: int, num_batches: int, batch_size: int) -> Tensor:
        """Random batches of training graphs, each drawn without replacement from all of them, ``[S, min(B, n)]``.

        They depend on seed, fold and epoch only.

        Args:
            epoch (int): Number of the epoch, counted from 0.
            num_batches (int): Number of batches S.
            batch_size (int): Graphs per batch B.
        """
        numbers = torch.rand(num_batches, self.train.numel(), generator=self._generator(epoch))
        return self.train[numbers.topk(min(batch_size, self.train.numel())).indices]

    def _generator(self, epoch: int) -> torch.Generator:
        seed = (self.stream_seed * 2_147_483_647 + epoch + 1) % (1 << 63)
        return torch.Generator().manual_seed(seed)


def stack_replicas(
    factory: ModelFactory,
    replicas: list[Replica],
    dtype: torch.dtype = torch.float32,
    variants: Mapping[str, ModelFactory] | None = None,
) -> GraphModel:
    """A model with leading axis F; replica f starts with the weights of a single model of seed ``replicas[f]``.

    Args:
        factory (callable): Builds a model with the given leading axes.
        replicas (list): F replicas.
        dtype (torch.dtype): Data type of the parameters. (default: float32)
        variants (dict, optional): Factories that draw the initial weights of a variant, where it is not ``factory``.
    """
    F = len(replicas)
    with forked_generator():
        stacked = factory((F,)).to(dtype)
        state = stacked.state_dict()
        for f, replica in enumerate(replicas):
            # torch.manual_seed would seed generators of other devices too, for which it formats the call stack.
            torch.default_generator.manual_seed(replica.stream_seed)
            draw = factory if variants is None else variants.get(replica.variant, factory)
            for name, value in draw(()).to(dtype).state_dict().items():
                state[name][f].copy_(value)
    return stacked


def pick_replica(stacked: GraphModel, factory: ModelFactory, f: int) -> GraphModel:
    """Replica f of a stacked model, as a single model without leading axes."""
    return replica_model(stacked.state_dict(), factory, f)


def replica_model(state: Mapping[str, Tensor], factory: ModelFactory, f: int) -> GraphModel:
    """Replica f of the weights of a stacked model, as a single model without leading axes."""
    with forked_generator():
        single = factory(())
    values = {name: state[name][f].clone() for name in single.state_dict()}
    dtype = next(value.dtype for value in values.values() if value.is_floating_point())
    single.to(dtype).load_state_dict(values)
    return single


# Replicas of a state, whose entries have a row per replica. The functions also take the states of optimizer and weight
# average.


def copy_replicas_(
    target: Mapping[str, Tensor], source: Mapping[str, Tensor], replicas: Sequence[int]
) -> None:
    """Copies some replicas of one state into another, in place.

    Args:
        target, source (dict): States of the same F replicas.
        replicas (list): Indices of the replicas to copy.
    """
    rows: Tensor | None = None
    for name, value in source.items():
        if len(replicas) == len(value):
            target[name].copy_(value)
            continue
        if rows is None or rows.device != value.device:
            rows = torch.tensor(replicas, dtype=torch.long, device=value.device)
        target[name].index_copy_(0, rows, value.index_select(0, rows))


def select_replicas(state: Mapping[str, Tensor], replicas: Sequence[int]) -> dict[str, Tensor]:
    """The state of some replicas alone, in the order of ``replicas``, as copies.

    Args:
        state (dict): State of F replicas, without entries that are not per replica.
        replicas (list): Indices of the replicas to keep.
    """
    return {name: value[list(replicas)] for name, value in state.items()}


def slice_replicas(state: Mapping[str, Tensor], first: int, end: int) -> dict[str, Tensor]:
    """The state of replicas ``first`` to ``end − 1`` alone, as views."""
    return {name: value[first:end] for name, value in state.items()}


def join_replicas(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The state of all replicas from the states of consecutive parts of them; undoes :func:`slice_replicas`."""
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def spread_sample(indices: Tensor, most: int) -> Tensor:
    """At most this many of some indices, evenly spread: graphs of a data set are often sorted by class."""
    count = indices.numel()
    return indices if count <= most else indices[torch.arange(most, device=indices.device) * count // most]
