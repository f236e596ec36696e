"""Loopback names, limits, and an import that needs no extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphcaps.serve.limits import Limits
from graphcaps.serve.security import is_loopback


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.8.8", "::1", "[::1]"]
)
def test_loopback_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "example.org",
        "127.0.0.1.example.org",
        "localhost.example.org",
        "127.0.0.x",
        "10.0.0.1",
    ],
)
def test_other_names(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("name", ["max_bytes", "max_graphs", "workers", "max_seconds"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: 0})


def test_limits_and_worker_need_no_fastapi() -> None:
    code = (
        "import sys\n"
        "sys.modules['fastapi'] = sys.modules['pydantic'] = None\n"
        "import graphcaps.serve.worker\n"
        "from graphcaps.errors import MissingExtraError\n"
        "from graphcaps.serve import Limits\n"
        "try:\n    from graphcaps.serve import create_app\n"
        "except MissingExtraError as error:\n    assert 'graphcaps[serve]' in str(error)\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
