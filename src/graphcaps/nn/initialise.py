"""Initial weights, with fan-in and fan-out of a single replica whatever the leading axes are, and seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

__all__ = ["draw_seeds_", "forked_generator", "glorot_", "linear_"]

_generator_lock = RLock()


def glorot_(weight: Tensor, fan_in: int, fan_out: int) -> Tensor:
    """Fills ``weight`` uniformly within ±√(6 / (fan_in + fan_out))."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    with torch.no_grad():
        return weight.uniform_(-bound, bound)


def linear_(tensor: Tensor, fan_in: int) -> Tensor:
    """Fills ``tensor`` uniformly within ±1/√fan_in, as :class:`torch.nn.Linear` does for weight and bias."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    with torch.no_grad():
        return tensor.uniform_(-bound, bound)


def draw_seeds_(seed: Tensor) -> Tensor:
    """Fills ``seed``, int64, from torch's default generator.

    On the meta device, where a model file is checked, nothing is drawn: torch would import its symbolic shapes.
    """
    return seed if seed.is_meta else seed.copy_(torch.randint(1 << 62, seed.shape))


@contextmanager
def forked_generator() -> Iterator[None]:
    """Leaves torch's default generator on the CPU as it was; one thread at a time.

    The generator is the same for all threads. A model that is built draws from it, so every place where models are
    built beside trainings of other threads uses this.
    """
    with _generator_lock, torch.random.fork_rng(devices=[]):
        yield
