"""Kernels that are compiled before they are launched, for a GPU that is not there."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton.language as tl
from triton import knobs
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITFunction

from graphcaps.ops._triton import precompilation
from graphcaps.ops._triton.precompilation import compile_kernels
from tests.ops._triton.stub_driver import StubDriver, stub_driver

PROGRAM = Path(__file__).with_name("precompilation_program.py")


def _double(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * 2)


def _triple(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) * 3)


def _wrong(x, out, N: tl.constexpr):
    tl.store(out, tl.load(x) + missing_name)  # noqa: F821


_FACTOR = tl.constexpr(5)


def _times_factor(x):
    return x * _FACTOR


_function = JITFunction(_times_factor)


def _calls_it(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, _function(tl.load(x + i)))


def _calls_it_too(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, _function(tl.load(x + i)) + 1)


class _Scaled(torch.autograd.Function):
    """A forward and a backward kernel, which are not interpreted as those of other tests are."""

    double, triple = JITFunction(_double), JITFunction(_triple)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        _Scaled.double[(1,)](x, out, N=len(x))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        out = torch.empty_like(grads[0])
        _Scaled.triple[(1,)](grads[0], out, N=len(out))
        return out


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubDriver]:
    """A driver without a GPU, an empty cache of kernels, and kernels that are not compiled."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_Scaled, "double", JITFunction(_double))
    monkeypatch.setattr(_Scaled, "triple", JITFunction(_triple))
    with stub_driver() as driver:
        yield driver


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Name of each kernel that is compiled, and whether it was found in the cache."""
    found: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        knobs.compilation,
        "listener",
        lambda *, src, cache_hit, **_: found.append((src.name, cache_hit)),
        raising=False,
    )
    return found


def _compute(size: int = 16) -> Tensor:
    x = torch.ones(size, requires_grad=True)
    _Scaled.apply(x).backward(torch.ones(size))
    assert x.grad is not None
    return x.grad


def test_kernels_are_compiled_and_loaded_and_not_launched(
    stub: StubDriver, compiled: list[tuple[str, bool]]
) -> None:
    results: list[Tensor] = []
    assert compile_kernels(lambda: results.append(_compute()), cores=2) == 2
    assert sorted(compiled) == [("_double", True), ("_triple", True)]  # loaded; other processes compiled them
    assert sorted(stub.loaded) == ["_double", "_triple"]
    assert stub.launches == 0
    assert results[0].tolist() == [0.0] * 16  # what a kernel would have written


def test_other_threads_than_the_main_one_compile_in_threads(
    stub: StubDriver, compiled: list[tuple[str, bool]]
) -> None:
    other = Thread(target=compile_kernels, args=(_compute, 2))
    other.start()
    other.join()
    assert sorted(compiled) == [("_double", False), ("_triple", False)]


def test_processes_that_hang_are_ended_and_threads_compile(
    stub: StubDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(precompilation, "_FORKED_SECONDS", 0.5)
    here, launcher = os.getpid(), stub.launcher_cls

    def hang_elsewhere(source: Any, metadata: Any) -> Any:
        if os.getpid() != here:
            time.sleep(60)
        return launcher(source, metadata)

    monkeypatch.setattr(stub, "launcher_cls", hang_elsewhere)
    with caplog.at_level(logging.DEBUG, "graphcaps.ops"):
        assert compile_kernels(_compute, cores=2) == 2
    assert "did not end in time" in caplog.text
    assert sorted(stub.loaded) == ["_double", "_triple"]


def test_without_processes_threads_compile(
    stub: StubDriver,
    compiled: list[tuple[str, bool]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in a container without memory for processes, and in a process that may have no children."""

    def fail(method: str) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(multiprocessing, "get_context", fail)
    with caplog.at_level(logging.DEBUG, "graphcaps.ops"):
        assert compile_kernels(_compute, cores=2) == 2
        assert "could not be compiled by other processes" in caplog.text
        caplog.clear()
        monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
        assert compile_kernels(lambda: _compute(32), cores=2) == 2
        assert not caplog.text
    assert [hit for _, hit in compiled] == [False] * 4


def test_an_interrupt_ends_the_processes(stub: StubDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(worker: Any, timeout: float | None = None) -> None:
        if timeout is not None:
            raise KeyboardInterrupt

    processes: list[Any] = []
    start = multiprocessing.process.BaseProcess.start
    monkeypatch.setattr(
        multiprocessing.process.BaseProcess, "start", lambda self: (processes.append(self), start(self))
    )
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "join", interrupt)
    here, launcher = os.getpid(), stub.launcher_cls
    monkeypatch.setattr(
        stub, "launcher_cls", lambda *args: launcher(*args) if os.getpid() == here else time.sleep(60)
    )
    with pytest.raises(KeyboardInterrupt):
        compile_kernels(_compute, cores=2)
    monkeypatch.undo()
    for process in processes:
        process.join(10)
        assert process.exitcode is not None
    assert len(processes) == 2


def test_a_launch_finds_the_compiled_kernel(stub: StubDriver, compiled: list[tuple[str, bool]]) -> None:
    compile_kernels(_compute, cores=2)
    compiled.clear()
    _compute()
    assert stub.launches == 2
    assert compiled == []
    assert compile_kernels(_compute, cores=2) == 0
    assert stub.launches == 2


def test_a_later_process_finds_the_kernels_in_the_cache(
    stub: StubDriver, compiled: list[tuple[str, bool]]
) -> None:
    compile_kernels(_compute, cores=2)
    compiled.clear()
    _Scaled.double, _Scaled.triple = JITFunction(_double), JITFunction(_triple)
    _compute()
    assert compiled == [("_double", True), ("_triple", True)]


def test_kernels_that_call_one_function_are_found_in_the_cache(
    stub: StubDriver, compiled: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's hash of the second would depend on whether the process hashed the first one before it."""
    monkeypatch.setitem(globals(), "_function", JITFunction(_times_factor))
    kernels, x = [JITFunction(_calls_it), JITFunction(_calls_it_too)], torch.zeros(16)

    def launch_both() -> None:
        for kernel in kernels:
            kernel[(1,)](x, x, N=16)

    assert compile_kernels(launch_both, 2) == 2
    assert sorted(compiled) == [("_calls_it", True), ("_calls_it_too", True)]


def test_a_marker_is_made_when_nothing_failed(stub: StubDriver, tmp_path: Path) -> None:
    marker = tmp_path / "graphcaps" / "marker"
    compile_kernels(_compute, cores=2, marker=marker)
    assert marker.exists()
    (tmp_path / "file").touch()
    assert compile_kernels(lambda: _compute(32), cores=2, marker=tmp_path / "file" / "marker") == 2


def test_kinds_of_arguments_are_compiled_once_each(stub: StubDriver) -> None:
    def compute() -> None:
        for size in (16, 32, 16):
            _compute(size)

    assert compile_kernels(compute, cores=2) == 4


def test_a_failed_compilation_is_left_to_the_launch(
    stub: StubDriver, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    wrong = JITFunction(_wrong)

    def compute() -> None:
        wrong[(1,)](torch.ones(1), torch.ones(1), N=1)
        _compute()

    marker = tmp_path / "marker"
    with caplog.at_level(logging.DEBUG, "graphcaps.ops"):
        assert compile_kernels(compute, cores=2, marker=marker) == 3
    assert not marker.exists()
    assert [record.message for record in caplog.records] == [
        "A kernel could not be compiled before its launch."
    ]
    assert sorted(stub.loaded) == ["_double", "_triple"]
    with pytest.raises(CompilationError, match="missing_name"):
        compute()


def test_a_failed_computation_keeps_what_it_requested(
    stub: StubDriver, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    run, hook = JITFunction.run, knobs.runtime.jit_cache_hook

    def compute() -> None:
        _compute()
        raise RuntimeError("out of memory")

    marker = tmp_path / "marker"
    with caplog.at_level(logging.DEBUG, "graphcaps.ops"):
        assert compile_kernels(compute, cores=1, marker=marker) == 2
    assert not marker.exists()
    assert "could not be collected" in caplog.text
    assert len(stub.loaded) == 2
    assert (JITFunction.run, knobs.runtime.jit_cache_hook) == (run, hook)


def test_other_threads_launch_their_kernels(stub: StubDriver) -> None:
    def compute() -> None:
        other = Thread(target=_compute)
        other.start()
        other.join()

    assert compile_kernels(compute, cores=1) == 0
    assert stub.launches == 2


@pytest.mark.slow  # imports torch in a process where kernels are not interpreted
def test_a_training_launches_what_was_requested_and_nothing_else(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)  # the user's may say that these kernels are compiled
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    requested, launched, compiler = (set(line.split()) for line in done.stdout.splitlines())
    assert requested == launched
    assert len(launched) > 30
    assert compiler == {"False"}  # torch's own compiler takes seconds to import
