"""Replicas: F independent models of the same sizes, stacked along a leading axis and trained together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from graphcaps.nn.graph_model import GraphModel, ModelFactory

__all__ = ["TRUNK_KEY", "Replica", "pick_replica", "stack_replicas"]

TRUNK_KEY = ".replicas."
"""Part of the state-dict keys of a trunk, which stores a module per replica instead of a leading axis."""

_generator_lock = Lock()


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
        generator = torch.Generator().manual_seed((self.stream_seed * 2_147_483_647 + epoch + 1) % (1 << 63))
        return self.train[torch.randperm(self.train.numel(), generator=generator)]


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
    # torch has one generator for all threads: concurrent trainings must not draw from it at the same time.
    with _generator_lock, torch.random.fork_rng(devices=[]):
        stacked = factory((F,)).to(dtype)
        state = stacked.state_dict()
        for f, replica in enumerate(replicas):
            torch.manual_seed(replica.stream_seed)
            draw = factory if variants is None else variants.get(replica.variant, factory)
            for name, value in draw(()).to(dtype).state_dict().items():
                _replica_view(state, name, f).copy_(value)
    return stacked


def pick_replica(stacked: GraphModel, factory: ModelFactory, f: int) -> GraphModel:
    """Replica f of a stacked model, as a single model without leading axes."""
    single = factory(())
    single.to(next(stacked.parameters()).dtype)
    state = stacked.state_dict()
    single.load_state_dict({name: _replica_view(state, name, f).clone() for name in single.state_dict()})
    return single


def _replica_view(state: dict[str, Tensor], name: str, f: int) -> Tensor:
    """The tensor of replica f in a stacked state, by its name in a single model."""
    if TRUNK_KEY in name:
        return state[name.replace(f"{TRUNK_KEY}0.", f"{TRUNK_KEY}{f}.")]
    return state[name][f]
