"""Provenance of results: library versions, git commit and hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from graphcaps import __version__
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    import torch

__all__ = ["describe_hardware", "git_commit", "library_versions", "versions_and_commit"]

_LIBRARIES = ("torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "safetensors")
_PACKAGE = Path(__file__).resolve().parents[1]


def library_versions() -> dict[str, str]:
    """Versions of graphcaps, Python and the libraries that numerical results depend on. None of them is imported."""
    return {"graphcaps": __version__, "python": platform.python_version()} | {
        name: _library_version(name) for name in _LIBRARIES
    }


@cache
def _library_version(name: str) -> str:
    """Version of an installed package; reading it takes milliseconds, and a run asks for it with each checkpoint."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions_and_commit() -> dict[str, str]:
    """:func:`library_versions`, with ``commit`` if the package runs from a git checkout."""
    commit = git_commit()
    return library_versions() | ({} if commit is None else {"commit": commit})


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Commit of the checkout that the package runs from, with ``+changes`` if tracked files are modified.

    Returns:
        str, optional: ``None`` for an installed package, or if git is not available.
    """
    checkout = _PACKAGE.parents[1]
    if _PACKAGE.parent.name != "src" or not (checkout / ".git").exists():
        return None
    head = _git(checkout, "rev-parse", "HEAD")
    if not head:
        return None
    changes = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if changes else head


def describe_hardware(device: str | torch.device = "cpu") -> str:
    """The device that a training runs on: ``"NVIDIA H200"`` or ``"2 cores of …, 1 thread"``."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    return f"{count_noun(cores, 'core')} of {_processor()}, {count_noun(threads, 'thread')}"


def _processor() -> str:
    """Model name of the processor, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine() or "an unknown processor"


def _git(checkout: Path, *arguments: str) -> str | None:
    # Without optional locks, reading the status never blocks another git command.
    command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
