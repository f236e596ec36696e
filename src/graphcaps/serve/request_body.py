"""Bodies of requests: read up to a size, and up to a size of all bodies together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from graphcaps.serve.limits import Limits, RequestError

__all__ = ["BodyReader"]


class BodyReader:
    """Reads bodies and counts the bytes that the server holds, so that many large requests cannot fill its memory."""

    def __init__(self, limits: Limits) -> None:
        self._max_bytes = limits.max_bytes
        self._max_held = max(limits.max_waiting_bytes, limits.max_bytes)
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request, held until the end of the context.

        Raises:
            RequestError: 415 for a compressed body, 413 for one that is larger than allowed, 503 if the server holds
                too many bytes. Reading stops there.
        """
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding != "identity":
            raise RequestError(415, f"request: compressed bodies are not supported, found '{encoding[:40]}'.")
        fix = "Send several requests, or start the server with a larger --max-mb."
        too_large = RequestError(413, f"request: the body is larger than {self._max_bytes / 1e6:g} MB. {fix}")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_bytes:
            raise too_large
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                self._held += len(chunk)
                if len(body) > self._max_bytes:
                    raise too_large
                if self._held > self._max_held:
                    message = f"the waiting requests have more than {self._max_held / 1e6:g} MB"
                    raise RequestError(503, f"server: busy, {message}; try again later.", retry_after=1)
            yield bytes(body)
        finally:
            self._held -= len(body)
