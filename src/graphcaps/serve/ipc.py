"""Messages between the server and its worker processes: a JSON header and parts of bytes.

A message is the length of the header, the header, and the parts one after the other; the header has their lengths.
The server sends the model, then batches of requests. A worker answers the model with a description of it, and each
batch with all responses. Before them, if the server asks for reports, it sends the number of a request that it begins
to read, as far as that is not known.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["Message", "encode_message", "error_json", "read_message", "receive_message"]

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Message:
    """A message: its ``header`` of JSON values and its ``parts``."""

    header: dict[str, Any]
    parts: tuple[bytes, ...]


def encode_message(header: dict[str, Any], parts: Sequence[bytes] = ()) -> bytes:
    """A message as bytes."""
    encoded = json.dumps(header | {"lengths": [len(part) for part in parts]}).encode()
    return b"".join((_LENGTH.pack(len(encoded)), encoded, *parts))


def read_message(stream: BinaryIO) -> Message | None:
    """The next message of a stream, or ``None`` at its end."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    header = json.loads(stream.read(*_LENGTH.unpack(length)))
    return Message(header, tuple(stream.read(size) for size in header["lengths"]))


async def receive_message(stream: asyncio.StreamReader) -> Message:
    """The next message of a stream.

    Raises:
        EOFError: If the stream ends before the message does.
    """
    header = json.loads(await stream.readexactly(*_LENGTH.unpack(await stream.readexactly(_LENGTH.size))))
    return Message(header, tuple([await stream.readexactly(size) for size in header["lengths"]]))


def error_json(message: str) -> bytes:
    """The JSON of an error, ``{"error": message}``, on one line and cut after 1,000 characters."""
    line = " ".join(message.split())[:1000]
    return json.dumps({"error": line}, ensure_ascii=False).encode("utf-8", "replace")
