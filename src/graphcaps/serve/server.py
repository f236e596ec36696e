"""From a model file to a server that listens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphcaps._io.optional_imports import require
from graphcaps.errors import ArgumentError, DataError
from graphcaps.serve.app import create_app
from graphcaps.serve.guard import is_local
from graphcaps.serve.limits import Limits

__all__ = ["serve"]


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    on_ready: Callable[[str, dict[str, Any]], None] | None = None,
) -> None:
    """Serves a model until Ctrl-C or a signal to end.

    Args:
        model (str or Path): A model file.
        host (str): Address to listen on; one that other machines reach is answered by any name.
            (default: ``"127.0.0.1"``)
        port (int): Port to listen on; 0 takes a free one. (default: 8000)
        limits (Limits, optional): What a request may ask for.
        on_ready (Callable, optional): Called with the address and what is known of the model.

    Raises:
        MissingExtraError: Without FastAPI or uvicorn.
        DataError: If there is no such model file.
        ArgumentError: If the address cannot be listened on.
    """
    uvicorn = require("uvicorn", extra="serve", purpose="Serving a model")
    app = create_app(model, limits=limits, any_host=not is_local(host))
    if not Path(model).is_file():
        raise DataError(model, "a model file", "none")
    listening = _listen(host, port)

    async def run() -> None:
        try:
            await app.state.pool.start()
            if on_ready is not None:
                on_ready(_address(host, listening), app.state.pool.model)
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=200,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=2,
            )
            await uvicorn.Server(config).serve(sockets=[listening])
        finally:
            await app.state.pool.close()

    with contextlib.closing(listening), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything slow is begun."""
    owner = "serve"
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise ArgumentError(owner, "--host", "be an address of this machine", f"'{host}'") from error
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            fix = "Another program listens there; choose another."
            raise ArgumentError(owner, "--port", "be free", port, fix) from error
        if error.errno == errno.EACCES:
            fix = "Ports from 1024 on need no rights."
            raise ArgumentError(owner, "--port", "be one that you may use", port, fix) from error
        raise ArgumentError(owner, "--host", "be an address of this machine", f"'{host}'") from error
    return made


def _address(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
