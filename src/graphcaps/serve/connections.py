"""Connections with time-outs and a limit of their number, on top of uvicorn's.

uvicorn closes a connection that is idle after a response, but not one that never sends a request, sends its headers
slowly, or does not read the response; above a number of connections it rejects all requests, so that idle ones would
lock everyone out. It also answers in plain text what is not HTTP.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from graphcaps.serve.ipc import error_json
from graphcaps.serve.limits import Limits
from graphcaps.serve.security import SECURITY_HEADERS

__all__ = ["LimitedConnection"]


class LimitedConnection(H11Protocol):
    """A connection that is closed if it does not send a request, or does not read the response.

    The headers of a request must arrive within ``Limits.header_seconds`` of the opening of the connection or of the
    last response. The body is timed by the application. The response must be read within twice ``Limits.max_seconds``
    of the headers. If ``Limits.max_connections`` are open, a new one closes the connection whose request has been
    incomplete for the longest time.
    """

    limits: ClassVar[Limits] = Limits()

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_incomplete(self) -> bool:
        """Whether a request, or the rest of one, has yet to arrive."""
        return self.is_waiting or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._close_longest_incomplete()
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_waiting = self.is_waiting
        super().data_received(data)
        if was_waiting and not self.is_waiting:
            self._restart_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart_timer()

    def send_400_response(self, msg: str) -> None:
        self.send_error(400, "request: it is not valid HTTP.")

    def send_error(self, status: int, message: str) -> None:
        """Sends an error in the form of all others, and closes the connection."""
        content = error_json(message)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        headers |= {"Connection": "close"} | SECURITY_HEADERS
        response = h11.Response(
            status_code=status,
            reason=STATUS_PHRASES[status],
            headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        )
        try:
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # in the middle of another response
            pass
        self.transport.close()

    def _restart_timer(self) -> None:
        """Measures the time of what the connection does now."""
        self._stop_timer()
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        seconds = self.limits.header_seconds if self.is_waiting else 2 * self.limits.max_seconds
        self._since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        if not self.is_waiting:  # the client does not read the response
            self.transport.abort()
        elif (
            self.transport.get_write_buffer_size()
        ):  # nor has it read all of the last one: twice max_seconds in all
            rest = max(2 * self.limits.max_seconds - self.limits.header_seconds, 0.0)
            self._timer = self.loop.call_later(rest, self.transport.abort)
        elif self.conn.trailing_data[0]:
            self.send_error(408, f"request: its headers took more than {self.limits.header_seconds:g} s.")
        else:
            self.transport.close()

    def _close_longest_incomplete(self) -> None:
        others = [
            other
            for other in self.connections
            if isinstance(other, LimitedConnection) and other is not self and other.is_incomplete
        ]
        if others:
            min(others, key=lambda other: other._since).transport.abort()
