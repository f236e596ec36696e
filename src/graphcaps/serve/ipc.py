"""Messages between the server and its worker processes: a JSON header and a body, preceded by their lengths."""

from __future__ import annotations

import json
import struct
from typing import Any

__all__ = ["LENGTHS", "encode_message", "error_json"]

LENGTHS = struct.Struct(">II")
"""Lengths of header and body in bytes."""


def encode_message(header: dict[str, Any], body: bytes) -> bytes:
    """A message as bytes: both lengths, the header as JSON, the body."""
    encoded = json.dumps(header).encode()
    return LENGTHS.pack(len(encoded), len(body)) + encoded + body


def error_json(message: str) -> bytes:
    """The JSON of an error, ``{"error": message}``, on one line and cut after 1,000 characters."""
    line = " ".join(message.split())[:1000]
    return json.dumps({"error": line}, ensure_ascii=False).encode("utf-8", "replace")
