"""Many models as one: F single models stacked along a leading axis, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor, nn

__all__ = ["TRUNK_KEY", "ModelFactory", "Replica", "pick_replica", "stack_replicas"]

ModelFactory = Callable[[tuple[int, ...]], nn.Module]
"""From leading axes to a model."""

TRUNK_KEY = ".replicas."
"""In the names of tensors that are kept per replica, not along the leading axis."""


_drawing = Lock()


@dataclass(frozen=True)
class Replica:
    """One training among many: which graphs it sees, and its seed.

    Args:
        train (Tensor): Graphs it learns from, ``[n]``.
        validation (Tensor): Graphs that choose the epoch; may be empty.
        test (Tensor): Graphs that are only looked at; may be empty.
        seed (int): Seed of the run.
        fold (int): Number of the fold, part of every stream's seed. (default: 0)
        variant (str): Among variants that differ in their first weights alone, which it is. (default: "")
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    seed: int = 0
    fold: int = 0
    variant: str = ""

    @property
    def stream_seed(self) -> int:
        """One number for this replica's streams: the same whatever runs beside it."""
        return (self.seed * 1_000_003 + self.fold) % (1 << 63)

    def order(self, epoch: int) -> Tensor:
        """The training graphs in the order of an epoch, drawn from seed, fold and epoch alone."""
        generator = torch.Generator().manual_seed((self.stream_seed * 2_147_483_647 + epoch + 1) % (1 << 63))
        return self.train[torch.randperm(self.train.numel(), generator=generator)]


def stack_replicas(
    make: ModelFactory,
    replicas: list[Replica],
    dtype: torch.dtype = torch.float32,
    drawn: Mapping[str, ModelFactory] | None = None,
) -> nn.Module:
    """A model with leading axis F whose replica f starts as a model made under the seed of ``replicas[f]``.

    Args:
        make (callable): From leading axes to a model.
        replicas (list): F replicas.
        dtype (torch.dtype): Type of the parameters. (default: float32)
        drawn (dict, optional): What draws the first weights of a variant, where it is not ``make``.
    """
    F = len(replicas)
    # torch has one generator for all threads: trainings that start side by side must not share its numbers.
    with _drawing, torch.random.fork_rng(devices=[]):
        whole = make((F,)).to(dtype)
        state = whole.state_dict()
        for f, replica in enumerate(replicas):
            torch.manual_seed(replica.stream_seed)
            draw = make if drawn is None else drawn.get(replica.variant, make)
            for name, value in draw(()).to(dtype).state_dict().items():
                _slot(state, name, f).copy_(value)
    return whole


def pick_replica(whole: nn.Module, make: ModelFactory, f: int) -> nn.Module:
    """Replica f as a model of its own."""
    single = make(())
    dtype = next(whole.parameters()).dtype
    single.to(dtype)
    state = whole.state_dict()
    single.load_state_dict({name: _slot(state, name, f).clone() for name in single.state_dict()})
    return single


def _slot(state: dict[str, Tensor], name: str, f: int) -> Tensor:
    """Where a single model's tensor stands for replica f; a trunk keeps a stack per replica."""
    if TRUNK_KEY in name:
        return state[name.replace(f"{TRUNK_KEY}0.", f"{TRUNK_KEY}{f}.")]
    return state[name][f]
