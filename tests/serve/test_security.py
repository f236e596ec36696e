"""Loopback names, and positive limits."""

from __future__ import annotations

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
