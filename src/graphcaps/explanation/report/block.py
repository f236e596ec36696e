"""Columns and their header as one block of text: deflated bytes in base64.

Layout of the bytes: the length of the header (four bytes, low end first), four bytes of nothing, the header (JSON
in UTF-8, filled up with blanks to a multiple of eight), then the columns, each at a multiple of eight. The header
lists them as ``[name, type, first byte after the header, number of entries]``.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

from graphcaps.explanation.report.columns import Columns

__all__ = ["pack_block", "read_block"]


def pack_block(meta: dict[str, Any], columns: Columns) -> str:
    """The block as ASCII letters; no byte of it can end the element that it stands in."""
    entries, pieces, at = [], [], 0
    for name, values in columns.items():
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
        entries.append([name, values.dtype.str[1:], at, values.size])
        padding = -len(data) % 8
        pieces += [data, bytes(padding)]
        at += len(data) + padding
    text = json.dumps(meta | {"columns": entries}, ensure_ascii=False, allow_nan=False)
    header = text.encode("utf-8", "replace")  # half of a surrogate pair is no text
    header += b" " * (-len(header) % 8)
    body = len(header).to_bytes(4, "little") + bytes(4) + header + b"".join(pieces)
    return base64.b64encode(zlib.compress(body, 6)).decode("ascii")


def read_block(text: str) -> tuple[dict[str, Any], Columns]:
    """What :func:`pack_block` was given; the header holds ``columns`` as well."""
    body = zlib.decompress(base64.b64decode(text))
    end = 8 + int.from_bytes(body[:4], "little")
    meta = json.loads(body[8:end])
    columns = {
        name: np.frombuffer(body, dtype=f"<{kind}", count=count, offset=end + at)
        for name, kind, at, count in meta["columns"]
    }
    return meta, columns
