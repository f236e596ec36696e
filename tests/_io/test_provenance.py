"""Versions, commit and hardware of a result."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphcaps import __version__
from graphcaps._io import provenance as module


def test_library_versions_are_those_in_use() -> None:
    versions = module.library_versions()
    assert versions["graphcaps"] == __version__
    assert versions["python"] == platform.python_version()
    assert versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"numpy", "scipy", "safetensors"} <= set(versions)
    assert "unknown" not in versions.values()


def test_the_commit_is_listed_with_the_versions() -> None:
    versions = module.versions_and_commit()
    assert module.library_versions().items() <= versions.items()
    assert ("commit" in versions) == (module.git_commit() is not None)


def test_the_module_does_not_import_torch() -> None:
    command = "import sys, graphcaps._io.provenance; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], check=True)


def _checkout(folder: Path) -> Path:
    """A git checkout with a committed package; returns the package."""
    package = folder / "src" / "graphcaps"
    package.mkdir(parents=True)
    (package / "a.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)
    return package


def test_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _checkout(tmp_path)
    monkeypatch.setattr(module, "_PACKAGE", package)
    module.git_commit.cache_clear()
    clean = module.git_commit()
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (package / "a.py").write_text("changed")
    module.git_commit.cache_clear()
    assert module.git_commit() == f"{clean}+changes"
    module.git_commit.cache_clear()


def test_an_installed_package_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _checkout(tmp_path)
    installed = tmp_path / "lib" / "site-packages" / "graphcaps"
    installed.mkdir(parents=True)
    monkeypatch.setattr(module, "_PACKAGE", installed)
    module.git_commit.cache_clear()
    assert module.git_commit() is None
    module.git_commit.cache_clear()


def test_description_of_the_processor() -> None:
    assert re.fullmatch(r"\d+ cores? of .+, \d+ threads?", module.describe_hardware("cpu"))
