"""What a result was made with: versions, commit and hardware, in words."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from graphcaps import __version__

if TYPE_CHECKING:
    import torch

__all__ = ["describe_hardware", "git_commit", "library_versions", "versions_and_commit"]


_LIBRARIES = ("torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "safetensors")


def library_versions() -> dict[str, str]:
    """Versions of graphcaps, Python and the libraries that numbers depend on; nothing is imported."""
    found = {"graphcaps": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found


_PACKAGE = Path(__file__).resolve().parents[1]


def versions_and_commit() -> dict[str, str]:
    """Versions of graphcaps and of what computes for it, and the commit where there is one."""
    found = library_versions()
    known = git_commit()
    return found if known is None else found | {"commit": known}


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Commit of the checkout that the package runs from, with ``+changes`` where tracked files differ.

    ``None`` for an installed package, and where git cannot be asked.
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
    """The device a training ran on, as people say it: ``"NVIDIA H200"``, ``"2 cores of …, 1 thread"``."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    return f"{_plural(cores, 'core')} of {_processor()}, {_plural(threads, 'thread')}"


def _processor() -> str:
    """The processor's own name, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine() or "an unknown processor"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _git(checkout: Path, *arguments: str) -> str | None:
    # Without optional locks a look at the tree never gets in the way of another git command.
    command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
