"""The body of a request as files: one file, or several in ``multipart/form-data``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from graphcaps.serve.limits import RequestError

if TYPE_CHECKING:
    from python_multipart.multipart import File

__all__ = ["CONTENT_TYPES", "SUFFIXES", "Upload", "check_content_type", "read_uploads"]

CONTENT_TYPES = {
    "application/json": ".json",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/graphml+xml": ".xml",
    "application/gexf+xml": ".xml",
    "application/xml": ".xml",
    "text/xml": ".xml",
}
"""Content types of a single file, and the format of each, written as a suffix."""

SUFFIXES = {
    ".json": ".json",
    ".csv": ".csv",
    ".tsv": ".tsv",
    ".xml": ".xml",
    ".graphml": ".xml",
    ".gexf": ".xml",
}
"""Suffixes of file names, and the format of each."""

_FORM = "multipart/form-data"


@dataclass(frozen=True)
class Upload:
    """One file of a request: its ``name`` without folders, its ``content_type``, and its bytes."""

    name: str
    content_type: str
    content: bytes

    @property
    def format(self) -> str:
        """One of the values of :data:`SUFFIXES`, by the file's name or else by its content type.

        Raises:
            RequestError: 415, if neither is known.
        """
        suffix = PureWindowsPath(self.name).suffix.lower()
        format = SUFFIXES.get(suffix) or CONTENT_TYPES.get(self.content_type)
        if format is None:
            listed = ", ".join(SUFFIXES)
            raise RequestError(415, f"upload: expected files that end in {listed}, found '{self.name[:60]}'.")
        return format


def read_uploads(content_type: str, body: bytes) -> list[Upload]:
    """The files of a request.

    Args:
        content_type (str): Content type of the request, with its parameters.
        body (bytes): The complete body.

    Raises:
        RequestError: 415 for an unknown content type, 422 for an invalid or incomplete form.
    """
    media_type = check_content_type(content_type)
    if media_type == _FORM:
        return _read_form(content_type, body)
    return [Upload(f"request{CONTENT_TYPES[media_type]}", media_type, body)]


def check_content_type(content_type: str) -> str:
    """The content type of a request without its parameters.

    Raises:
        RequestError: 415, if bodies of this type are not read.
    """
    media_type = _media_type(content_type)
    if media_type != _FORM and media_type not in CONTENT_TYPES:
        listed, found = ", ".join((*CONTENT_TYPES, _FORM)), f"'{media_type[:60]}'" if media_type else "none"
        raise RequestError(415, f"request: expected one of the content types {listed}, found {found}.")
    return media_type


def _read_form(content_type: str, body: bytes) -> list[Upload]:
    """The files of a form; its other fields are ignored."""
    from python_multipart import FormParser
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import parse_options_header

    files: list[File] = []
    ended: list[bool] = []  # set at the closing boundary: without it a file may be missing
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise RequestError(
            422, "upload: expected a boundary in the content type multipart/form-data, found none."
        )
    # Its parsers also log what they raise; the client gets the message, and the terminal of the server stays clean.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    try:
        parser = FormParser(
            _FORM,
            on_field=None,
            on_file=files.append,
            on_end=lambda: ended.append(True),
            boundary=boundary,
            config={"MAX_MEMORY_FILE_SIZE": len(body)},
        )
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        expected = "files that are separated by the boundary of the content type"
        raise RequestError(422, f"upload: expected {expected}, found other content.") from error
    if not ended:
        raise RequestError(422, "upload: expected a closing boundary, found none.")
    if not files:
        raise RequestError(422, "upload: expected at least one file, found none.")
    return [_upload(file) for file in files]


def _upload(file: File) -> Upload:
    name = PureWindowsPath((file.file_name or b"").decode("utf-8", "replace")).name  # splits at / and at \\
    file.file_object.seek(0)
    return Upload(name, _media_type(file.content_type or ""), file.file_object.read())


def _media_type(content_type: str) -> str:
    """A content type without its parameters."""
    return content_type.partition(";")[0].strip().lower()
