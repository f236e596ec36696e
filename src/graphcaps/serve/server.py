"""``serve``: a model file behind an address, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphcaps._io.optional_imports import require
from graphcaps.errors import DataError, UsageError
from graphcaps.serve.app import create_app
from graphcaps.serve.limits import Limits
from graphcaps.serve.security import is_loopback

__all__ = ["serve"]


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    on_ready: Callable[[str, dict[str, Any]], None] | None = None,
) -> None:
    """Serves a model until Ctrl-C or SIGTERM.

    Args:
        model (str or Path): A model file.
        host (str): Address to listen on. With a loopback address, requests must name a loopback host; with any
            other address, every host name is accepted. (default: ``"127.0.0.1"``)
        port (int): Port to listen on; 0 selects a free one. (default: 8000)
        limits (Limits, optional): Limits of a request.
        on_ready (Callable, optional): Called with the address and the description of the model when the server
            accepts requests.

    Raises:
        MissingExtraError: If FastAPI or uvicorn is not installed.
        DataError: If the model file does not exist.
        UsageError: If the server cannot listen on the address.
    """
    uvicorn = require("uvicorn", extra="serve", purpose="Serving a model")
    app = create_app(model, limits=limits, any_host=not is_loopback(host))
    if not Path(model).is_file():
        raise DataError(model, "file not found")
    listener = _listen(host, port)

    async def run() -> None:
        try:
            await app.state.pool.start()
            if on_ready is not None:
                on_ready(_address(host, listener), app.state.pool.model)
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=200,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=2,
            )
            await uvicorn.Server(config).serve(sockets=[listener])
        finally:
            await app.state.pool.close()

    with contextlib.closing(listener), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened before the model is loaded so that a wrong address is reported at once."""
    no_address = f"serve: '{host}' is not an address of this machine; see --host."
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(no_address) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"serve: port {port} is in use; choose another with --port.") from error
        if error.errno == errno.EACCES:
            raise UsageError(f"serve: port {port} needs special rights; choose one above 1023.") from error
        raise UsageError(no_address) from error
    return listener


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"
