"""What every request must be, and what every answer carries.

A page of another site can make a browser send requests to this machine, and can take over a name so that the
browser believes to speak with that site (DNS rebinding). So a server for this machine alone answers only to names of
this machine, and never to a page that it did not send itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from graphcaps.serve.ipc import sentence

__all__ = ["POLICY", "Guard", "is_local"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: everything from this server, and nothing from elsewhere."""

_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def is_local(host: str) -> bool:
    """Whether a name or address is one of this machine that no other machine reaches."""
    plain = host.strip("[]").lower().rstrip(".")
    numbers = plain.split(".")
    return plain in ("localhost", "::1") or (
        len(numbers) == 4 and numbers[0] == "127" and all(number.isdecimal() for number in numbers)
    )


class Guard:
    """ASGI middleware: checks Host and Origin, and adds headers to every answer.

    Args:
        app: What is guarded.
        any_host (bool): Whether requests may call this server by any name. (default: ``False``)
    """

    def __init__(self, app: Any, any_host: bool = False) -> None:
        self.app, self.any_host = app, any_host

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send_with_headers)
            return
        status, words = refusal
        body = sentence(words)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send_with_headers({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refusal(self, scope: _Scope) -> tuple[int, str] | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self.any_host and not is_local(_name(host)):
            return 421, "request: expected the host localhost, found another; see --host."
        origin = headers.get(b"origin")
        if origin is not None and _address(origin) != host.lower():
            return 403, "request: expected to come from this server's own page, found another origin."
        return None


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0]
    return host.partition(":")[0]


def _address(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
