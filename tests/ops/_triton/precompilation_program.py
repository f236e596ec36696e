"""Prints the kernels that a dry run of a small training requests, those that its first epoch launches, and whether
torch's compiler was imported.

A kernel stands with a digest of the kind of its arguments. Nothing is compiled, and the layout of a batch has its torch
form.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from triton import knobs

from graphcaps.config import TrainConfig
from graphcaps.nn import HGCN
from graphcaps.ops._triton import dispatch, precompilation
from graphcaps.training import Replica, Trainer, stack_replicas
from tests.ops._triton.stub_driver import stub_driver
from tests.training.test_trainer import _graphs, _replicas


class EagerRecorder:
    """Runs what would be captured."""

    def record(self, body: Any) -> Any:
        return body


def make_trainer(replicas: list[Replica]) -> Trainer:
    """A training with every phase of a step: dropout, two levels, reconstruction, evaluation."""
    graphs = _graphs()

    def make(lead: tuple[int, ...]) -> HGCN:
        return HGCN(graphs.x.size(-1), 2, capsule_dim=16, num_capsules=(4,), dropout=0.3, lead=lead)

    model = stack_replicas(make, replicas)
    config = TrainConfig(epochs=1, batch_size=8)
    trainer = Trainer(
        model, graphs.as_store(), graphs.x.float(), replicas, config, step_mode="bucketed", allow_divergence=True
    )  # fmt: skip
    trainer._recorder = EagerRecorder()  # type: ignore[assignment]
    return trainer


def main() -> None:
    requested, launched = set[str](), set[str]()

    def name(function: Any, key: str) -> str:
        return f"{function.__module__}.{function.__name__}:{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    def build(function: Any, specialization: str, device: int) -> None:
        requested.add(name(function, json.loads(specialization)["key"]))

    def launch(*, key: str, fn: Any, **_: Any) -> bool:
        launched.add(name(fn.jit_function, key))
        return True  # not compiled

    precompilation._build = build  # type: ignore[assignment]
    precompilation._fill_cache = lambda *_: None
    with stub_driver(), dispatch.use_kernels("always"):
        trainer = make_trainer(_replicas())
        compile_first = trainer._compile_kernels
        compile_first(trainer._schedule)
        trainer._compile_kernels = lambda schedule: None  # type: ignore[method-assign]
        knobs.runtime.jit_cache_hook = launch  # type: ignore[assignment]
        with precompilation._ZeroedAllocations(), torch.autograd.set_multithreading_enabled(False):
            trainer.run_epoch()
    print(*sorted(requested))
    print(*sorted(launched))
    print("torch._dynamo" in sys.modules)


if __name__ == "__main__":
    main()
