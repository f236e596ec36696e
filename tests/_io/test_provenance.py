"""What a result was made with."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from graphcaps import __version__
from graphcaps._io import provenance as module


def test_versions_name_what_computes() -> None:
    found = module.versions_and_commit()
    assert found["graphcaps"] == __version__
    assert {"python", "torch", "numpy"} <= set(found)
    assert ("commit" in found) == (module.git_commit() is not None)


def _checkout(folder: Path) -> Path:
    """A fresh checkout that holds a package, committed."""
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


def test_hardware_in_words() -> None:
    assert re.fullmatch(r"\d+ cores? of .+, \d+ threads?", module.describe_hardware("cpu"))
