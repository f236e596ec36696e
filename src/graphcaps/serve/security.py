"""Protection against requests from other web sites, and the security headers of every response.

A page of another site can make a browser send requests to this machine. It can also point a host name of its own
at this machine, so that the browser takes the server for that site (DNS rebinding). A server for this machine alone
therefore accepts only loopback names in ``Host``, and every server accepts only its own address in ``Origin``.

Starlette's ``TrustedHostMiddleware`` compares names only: it cannot express the loopback network 127.0.0.0/8, does
not look at ``Origin``, and answers in plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from graphcaps.serve.limits import RequestError

__all__ = ["SECURITY_HEADERS", "check_host_and_origin", "is_loopback"]

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response; pages load everything from this server and nothing from elsewhere."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is ``localhost`` or a loopback address, which only this machine reaches."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def check_host_and_origin(headers: Mapping[str, str], *, any_host: bool) -> None:
    """Rejects a request for another host or from a page of another origin.

    Args:
        headers (mapping): Headers of the request, with lower-case names.
        any_host (bool): Whether any ``Host`` is accepted; otherwise only loopback names.

    Raises:
        RequestError: 421 for another host, 403 for another origin.
    """
    host = headers.get("host", "")
    name = host.partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not any_host and not is_loopback(name):
        raise RequestError(
            421, "request: the host must be localhost; start the server with --host for others."
        )
    origin = headers.get("origin")
    if origin is not None and _netloc(origin) != host.lower():
        raise RequestError(403, "request: pages of another origin may not use this server.")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
