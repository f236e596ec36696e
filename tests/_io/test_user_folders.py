"""The user's cache and data folders on each operating system, and ``~`` in paths."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.windows import Windows

from graphcaps._io.user_folders import expand_home, user_folder
from graphcaps.errors import ArgumentError, UsageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_folder("cache") == tmp_path / ".cache" / "graphcaps"
    assert user_folder("data") == tmp_path / ".local" / "share" / "graphcaps"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert user_folder("cache") == tmp_path / "xdg" / "graphcaps"
    assert user_folder("data") == tmp_path / "share" / "graphcaps"


def test_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "PlatformDirs", MacOS)
    assert user_folder("cache") == tmp_path / "Library" / "Caches" / "graphcaps"
    assert user_folder("data") == tmp_path / "Library" / "Application Support" / "graphcaps"


def test_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    monkeypatch.setattr("platformdirs.windows.get_win_folder", lambda _: str(tmp_path / "local"))
    assert user_folder("cache") == tmp_path / "local" / "graphcaps" / "Cache"
    assert user_folder("data") == tmp_path / "local" / "graphcaps"


def test_an_unknown_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ArgumentError, match=r"f: 'path' must be in a known home folder, got '~no-such-user/x'"
    ):
        expand_home("~no-such-user/x", "f", "path")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without HOME and a user entry
    with pytest.raises(UsageError, match=r"^The cache folder cannot be located .*; set HOME\.$"):
        user_folder("cache")


def test_home_is_expanded(tmp_path: Path) -> None:
    assert expand_home("~/x", "f", "path") == tmp_path / "x"
    assert expand_home("x", "f", "path") == Path("x")
