"""Prints what one training step on a GPU launches, a line each: the kernels of graphcaps and operations of torch.

Nothing is compiled or launched. The layout of the batch, which has its torch form here, and the first lines of a
matrix product that a GPU replaces by kernels are part of the list.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from triton import knobs

from graphcaps.ops._triton import dispatch, precompilation
from tests.ops._triton.precompilation_program import make_trainer
from tests.ops._triton.stub_driver import stub_driver
from tests.training.test_trainer import _replicas

WITHOUT_KERNEL = {
    *("_unsafe_view", "alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice"),
    *("squeeze", "t", "transpose", "unsqueeze", "view"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
}
"""Views and allocations."""


class _Recorder(TorchDispatchMode):
    """Notes operations of torch that launch a kernel."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in WITHOUT_KERNEL:
            self.found.append(f"torch.{name}")
        result = func(*args, **(kwargs or {}))
        return result.zero_() if func in precompilation._ALLOCATIONS else result


def main() -> None:
    found: list[str] = []

    def launch(*, fn: Any, **_: Any) -> bool:
        found.append(fn.jit_function.__name__)
        return True  # not compiled

    with stub_driver(), dispatch.use_kernels("always"):
        trainer = make_trainer(_replicas())
        knobs.runtime.jit_cache_hook = launch  # type: ignore[assignment]
        with torch.autograd.set_multithreading_enabled(False), _Recorder(found):
            trainer._runner.run_largest(trainer._schedule)  # type: ignore[union-attr]
            found.clear()  # the first step makes sums of metrics
            trainer._runner.run_largest(trainer._schedule)  # type: ignore[union-attr]
    print("\n".join(found))


if __name__ == "__main__":
    main()
