"""Huge pages for large CPU tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource, sys, torch
from graphcaps._io.allocator import enable_huge_pages
if sys.argv[1] == "huge":
    enable_huge_pages()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(mode: str) -> int:
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}/src"}
    environment.pop("THP_MEM_ALLOC_ENABLE", None)
    command = [sys.executable, "-c", FAULTS, mode]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_a_large_tensor_touches_few_pages() -> None:
    """64 MB are 16384 pages of 4 kB, or 32 of 2 MB (memory may be too scattered for some of them)."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[madvise]" not in setting.read_text():
        pytest.skip("the system offers no huge pages on request")
    assert _faults("plain") >= 16384
    assert _faults("huge") < 8192


def test_a_value_that_is_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcaps._io.allocator import enable_huge_pages

    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    enable_huge_pages()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == "0"
