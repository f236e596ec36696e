"""The kernels of all options of HGCN compile for an H200, in each precision and with few and many capsules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = Path(__file__).with_name("option_kernels_program.py")
KERNELS = {
    *("_rows_kernel", "_shuffle_kernel"),  # sampled pairs; the first is a name of sparse features, too
    *("_dense_rows_kernel", "_fold_kernel"),  # features
    *(
        "_capsule_kernel",
        "_assignment_kernel",
        "_input_kernel",
        "_parameter_kernel",
    ),  # gradient through the routing
    "_both_gradients_kernel",  # hop among capsules
    *("_graph_kernel", "_loss_kernel"),  # block loss
    *("_gram_kernel", "_routing_kernel", "_norm_kernel", "_votes_kernel", "_terms_kernel"),  # the whole step
}


@pytest.mark.exhaustive  # the compiler takes minutes
def test_kernels_of_all_options_compile() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) >= KERNELS
