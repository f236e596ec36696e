"""What made a result."""

from __future__ import annotations

import platform

import torch

import graphcaps
from graphcaps._io.provenance import library_versions


def test_versions_are_those_in_use():
    found = library_versions()
    assert found["graphcaps"] == graphcaps.__version__
    assert found["python"] == platform.python_version()
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert "unknown" not in found.values()
