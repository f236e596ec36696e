"""How the server and the process that computes speak: a head (JSON) and a body, with both lengths before them."""

from __future__ import annotations

import json
import struct
from typing import Any

__all__ = ["SIZES", "frame", "sentence"]

SIZES = struct.Struct(">II")
"""Lengths of head and body."""


def frame(head: dict[str, Any], body: bytes) -> bytes:
    """A frame as bytes."""
    plain = json.dumps(head).encode()
    return SIZES.pack(len(plain), len(body)) + plain + body


def sentence(text: str) -> bytes:
    """An error as it is answered: one sentence, without end only where it is very long."""
    return json.dumps({"error": " ".join(text.split())[:1000]}, ensure_ascii=False).encode("utf-8", "replace")
