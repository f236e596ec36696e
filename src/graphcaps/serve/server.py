"""``serve``: a model file behind an address, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from graphcaps.errors import DataError, UsageError
from graphcaps.serve.app import create_app
from graphcaps.serve.connections import LimitedConnection
from graphcaps.serve.limits import Limits
from graphcaps.serve.security import is_loopback
from graphcaps.serve.worker_pool import WorkerPool

__all__ = ["serve"]

_FLUSH_SECONDS = 0.5


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    on_ready: Callable[[str, dict[str, Any]], None] | None = None,
    on_stopped: Callable[[], None] | None = None,
) -> None:
    """Serves a model until Ctrl-C or SIGTERM; after SIGTERM the process ends with that signal.

    After the first of these signals no connection is accepted, and requests have ``Limits.grace_seconds`` to finish;
    after a second one they are answered with an error at once. SIGHUP, where the system has it, reads the model file
    again: :meth:`graphcaps.serve.worker_pool.WorkerPool.reload`.

    Args:
        model (str or Path): A model file.
        host (str): Address to listen on. With a loopback address, requests must name a loopback host; with any
            other address, every host name is accepted. (default: ``"127.0.0.1"``)
        port (int): Port to listen on; 0 selects a free one. (default: 8000)
        limits (Limits, optional): Limits of requests and connections.
        on_ready (Callable, optional): Called with the address and the description of the model when the server
            accepts requests.
        on_stopped (Callable, optional): Called when all requests are answered and the workers have ended.

    Raises:
        MissingExtraError: If FastAPI or uvicorn is not installed.
        DataError: If the model file does not exist.
        UsageError: If the server cannot listen on the address.
    """
    limits = limits or Limits()
    app = create_app(model, limits=limits, any_host=not is_loopback(host))
    if not Path(model).is_file():
        raise DataError(model, "file not found")
    listener = _listen(host, port)
    server = _Server(app, app.state.pool, limits)
    with contextlib.closing(listener), server.capture_signals():
        asyncio.run(
            server.run_until_stopped(
                listener, lambda: on_ready and on_ready(_address(host, listener), app.state.pool.model)
            )
        )
    if on_stopped is not None:
        on_stopped()
    if server.stopped_by == signal.SIGTERM:
        signal.raise_signal(signal.SIGTERM)  # ends the process as the signal does, now that all is done


class _Server(uvicorn.Server):
    """uvicorn's server with connections of :class:`LimitedConnection`, and with signals that end it in order.

    uvicorn raises the signals again when it has stopped, so that a second Ctrl-C would end the cleaning up with a
    traceback; and it cancels requests after the grace period, which are then answered in plain text.

    Args:
        app (ASGIApp): The application.
        pool (WorkerPool): Its workers.
        limits (Limits): Limits of connections.
    """

    def __init__(self, app: Any, pool: WorkerPool, limits: Limits) -> None:
        connection = type("Connection", (LimitedConnection,), {"limits": limits})
        config = uvicorn.Config(
            app,
            http=connection,
            ws="none",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_keep_alive=5,
            # Only if the end of the grace period below fails.
            timeout_graceful_shutdown=math.ceil(limits.grace_seconds + 2 * _FLUSH_SECONDS) + 1,
        )
        super().__init__(config)
        self.pool, self.grace_seconds = pool, limits.grace_seconds
        self.stopped_by: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._captures = False
        self._reloading: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[None] | None = None

    async def run_until_stopped(self, listener: socket.socket, on_ready: Callable[[], object]) -> None:
        """Starts the workers, accepts requests on a listening socket, and ends the workers."""
        self._loop = asyncio.get_running_loop()
        try:
            self._starting = self._loop.create_task(self.pool.start())
            if self.should_exit:
                self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
            if not self.should_exit:
                on_ready()
                await self.serve(sockets=[listener])
        finally:
            await self.pool.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals inside the context; the signals of uvicorn's own call are handled already."""
        if self._captures or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._captures = True
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]]
        handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self.handle_exit)
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self.handle_reload
        previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops the server, at the second signal without waiting for requests."""
        if not self.should_exit:
            self.should_exit, self.stopped_by = True, sig
            self._call(self._cancel_start)
        else:
            self._call(self._stop_now)

    def handle_reload(self, sig: int, frame: FrameType | None) -> None:
        """Reads the model file again."""
        self._call(self._reload)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes idle connections, and waits for requests until the end of the grace period."""
        timer = asyncio.get_running_loop().call_later(self.grace_seconds, self._stop_now)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _call(self, function: Callable[[], None]) -> None:
        """Calls a function in the event loop; a signal handler may interrupt it anywhere."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _cancel_start(self) -> None:
        if self._starting is not None:
            self._starting.cancel()

    def _stop_now(self) -> None:
        """Answers all requests with an error, and closes the connections when the answers are sent."""
        self.pool.abort()
        asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._close_connections)

    def _close_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _reload(self) -> None:
        if self.started and not self.should_exit:
            task = asyncio.get_running_loop().create_task(self.pool.reload())
            self._reloading.add(task)
            task.add_done_callback(self._reloading.discard)


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
