"""Compiles the kernels of a training step of HGCN with each of its options for an H200, without a GPU.

Prints the names of the kernels. A kernel that needs more shared memory than the GPU has ends the program with an error.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import graphcaps.ops.coarsening.coarsening
from graphcaps.data.features.encoding import feature_table
from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops._triton.precision import Precision, use_precision
from graphcaps.ops._triton.precompilation import _ZeroedAllocations
from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.types import LossOptions
from tests.graphs import random_graphs
from tests.ops._triton.stub_driver import stub_driver

OPTIONS: list[dict[str, Any]] = [
    {},
    {"reconstruct_up_to": 8},
    {"formulation": "paper"},
    {"parts": "blocks"},
    {"context": "gated"},
    {"context": "gin"},
]
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")
CAPSULES = (10, 128)
WIDTH = 40  # columns of the features


def run_step(options: dict[str, Any], num_capsules: int) -> None:
    """A step whose kernels are compiled but not launched; what they would write is zero."""
    graphs = random_graphs([4, 9, 1, 17, 12] * 26, density=2.0)
    model = HGCN(WIDTH, 2, capsule_dim=128, num_capsules=(num_capsules,), dropout=0.2, lead=(2,), **options)
    store = graphs.as_store()
    graphs_of_step = torch.arange(len(store)).expand(2, len(store)).contiguous()
    y = torch.zeros_like(graphs_of_step)
    sparse = torch.nn.functional.one_hot(torch.arange(store.num_nodes) % WIDTH, WIDTH).float()
    for x in (sparse, torch.rand(store.num_nodes, WIDTH) + 1):
        batch = store.batch(feature_table(x, store), graphs_of_step)
        with use_kernels("always"), torch.autograd.set_multithreading_enabled(False), _ZeroedAllocations():
            model.loss(model.forward_batch(batch, y), y, LossOptions()).total.sum().backward()
            if num_capsules == CAPSULES[0]:  # these kernels are for at most 64
                bits = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes)
                whole = replace(batch, edges=replace(batch.edges, bits=bits), y=y)
                model.training_function()(whole, LossOptions()).backward()


def main() -> None:
    graphcaps.ops.coarsening.coarsening.adjacency_tiles = lambda *_: None  # type: ignore[assignment]  # the form of a CPU
    with stub_driver() as driver:
        for precision in PRECISIONS:
            for number in CAPSULES:
                for options in OPTIONS:
                    with use_precision(precision):
                        run_step(options, number)
    print(*sorted(set(driver.loaded)))


if __name__ == "__main__":
    main()
