"""Models whose routing is forced to one capsule of the lowest level, by their initial weights."""

from __future__ import annotations

import pytest
import torch

from graphcaps.nn import CapsuleLayer

FORCED = 1  # the capsule that all nodes belong to


@torch.no_grad()
def force_one_capsule(layer: CapsuleLayer) -> None:
    """Votes for one capsule are a constant, votes for the others zero: only the former agree with their capsule."""
    layer.weight.zero_()
    layer.bias.zero_()
    layer.bias[..., FORCED, :] = 3.0


def force_new_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models that are built from now on start so; train them with a tiny learning rate."""
    reset = CapsuleLayer.reset_parameters

    def reset_parameters(self: CapsuleLayer) -> None:
        reset(self)
        if self.coarsen:  # the class level has no coarse graph
            force_one_capsule(self)

    monkeypatch.setattr(CapsuleLayer, "reset_parameters", reset_parameters)
