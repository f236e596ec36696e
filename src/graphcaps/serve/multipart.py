"""Files of an upload as browsers and ``curl -F`` send it (multipart/form-data, RFC 7578).

Every part is taken apart where the boundary says so, in one pass; nothing nests.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

from graphcaps.serve.limits import Refused

__all__ = ["Upload", "split_upload"]


@dataclass(frozen=True)
class Upload:
    """One file: the ``name`` it has at its sender's, without folders, its ``content_type`` and its bytes."""

    name: str
    content_type: str
    content: bytes


def split_upload(content_type: str, body: bytes) -> list[Upload]:
    """The files in the body of a request; other fields of a form are passed over.

    Raises:
        Refused: 422, if there is no boundary, no end, or no file.
    """
    boundary = _header("Content-Type", content_type).get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise Refused(422, "upload: expected a boundary in the content type, found none.")
    mark = b"--" + boundary.encode("latin-1", "replace")
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Refused(422, "upload: expected a closing boundary, found none.")
    found = []
    for piece in pieces[1:-1]:
        head, gap, content = piece.partition(b"\r\n\r\n")
        if not gap:
            raise Refused(422, "upload: expected a heading in every part, found none.")
        one = _part(head, content)
        if one is not None:
            found.append(one)
    if not found:
        raise Refused(422, "upload: expected at least one file, found none.")
    return found


def _part(head: bytes, content: bytes) -> Upload | None:
    lines = head.decode("utf-8", "replace").split("\r\n")
    headers = dict(_pair(line) for line in lines if ":" in line)
    name = _header("Content-Disposition", headers.get("content-disposition", "")).get_filename()
    if not name:
        return None
    plain = name.replace("\\", "/").rpartition("/")[2]
    return Upload(plain, headers.get("content-type", "").partition(";")[0].strip().lower(), content)


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _header(name: str, value: str) -> Message:
    message = Message()
    message[name] = value.replace("\r", " ").replace("\n", " ")
    return message
