"""Connections that send nothing, send slowly, do not read, or do not speak HTTP.

The clock of the event loop stands still between the steps of a test, however long they take.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from graphcaps.serve.limits import Limits

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'graphcaps[serve]'")
from graphcaps.serve.connections import LimitedConnection  # noqa: E402  (imports uvicorn)
from tests.serve.event_loops import run_in_thread  # noqa: E402

GET = b"GET /size HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with as many bytes as the path says."""
    size = int(scope["path"].strip("/") or 2) if scope["path"].strip("/").isdecimal() else 2
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    for start in range(0, size, 100_000):
        await send(
            {"type": "http.response.body", "body": b"x" * min(100_000, size - start), "more_body": True}
        )
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def listening(**limits: Any) -> AsyncIterator[tuple[Any, int]]:
    """A server and its port."""
    connection = type("Connection", (LimitedConnection,), {"limits": Limits(**limits)})
    config = uvicorn.Config(application, http=connection, port=0, log_level="critical", lifespan="off")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        for one in list(server.server_state.connections):
            one.transport.abort()
        server.servers[0].close()


class Clock:
    """The time of an event loop, which passes in :meth:`advance` alone."""

    def __init__(self) -> None:
        self.now = 0.0

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(10):  # what is due now, and what follows from it
            await asyncio.sleep(0)


def run(test: Callable[[ExitStack, Clock], Coroutine[Any, Any, None]]) -> None:
    async def timed() -> None:
        clock = Clock()
        asyncio.get_running_loop().time = lambda: clock.now  # type: ignore[method-assign]
        await test(stack, clock)

    with ExitStack() as stack:
        run_in_thread(timed, seconds=1e9)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, for at most two minutes of real time."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "the condition was not met in two minutes"
        await asyncio.sleep(0)


def connect(stack: ExitStack, port: int, request: bytes = b"") -> socket.socket:
    """A client that has sent (a part of) a request."""
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    client.sendall(request)
    client.setblocking(False)
    return client


async def read(client: socket.socket) -> bytes:
    """What a client receives until the connection is closed."""
    content = b""
    while chunk := await receive(client):
        content += chunk
    return content


async def receive(client: socket.socket) -> bytes:
    """The next bytes, or none if the connection is closed."""
    received: list[bytes] = []

    def is_there() -> bool:
        try:
            received.append(client.recv(100_000))
        except BlockingIOError:
            return False
        except ConnectionResetError:
            received.append(b"")
        return True

    await until(is_there)
    return received[0]


async def response_of(port: int, request: bytes = GET) -> bytes:
    """The response on a new connection."""
    with ExitStack() as stack:
        closing = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
        return await read(connect(stack, port, closing))


def test_idle_and_slow_connections_are_closed_and_others_answered() -> None:
    async def test(stack: ExitStack, clock: Clock) -> None:
        async with listening(header_seconds=1.0) as (server, port):
            connections = server.server_state.connections
            idle = [connect(stack, port) for _ in range(300)]
            slow, kept = connect(stack, port, GET[:-2]), connect(stack, port, GET)
            assert (await response_of(port)).startswith(b"HTTP/1.1 200")
            sent = len(GET) - 2
            for _ in range(3):  # one header after the other
                await clock.advance(0.3)
                sent += slow.send(b"X-More: 1\r\n")
                await until(lambda: any(len(one.conn.trailing_data[0]) == sent for one in connections))  # noqa: B023
            assert len(connections) == 302
            await clock.advance(0.3)
            head, _, body = (await read(slow)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408")
            assert b"application/json" in head
            assert "1 s" in json.loads(body)["error"]
            assert await read(idle[-1]) == b""
            assert (await read(kept)).startswith(b"HTTP/1.1 200")  # closed after its response
            await until(lambda: not connections)

    run(test)


def test_a_new_connection_closes_the_one_that_has_been_idle_longest() -> None:
    async def test(stack: ExitStack, clock: Clock) -> None:
        async with listening(max_connections=5, header_seconds=20.0) as (server, port):
            connections, clients = server.server_state.connections, []
            for number in range(1, 6):
                clients.append(connect(stack, port))
                await until(lambda: len(connections) == number)  # noqa: B023
                await clock.advance(0.1)
            clients[0].sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nslow")
            await until(lambda: any(not one.is_waiting for one in connections))
            await clock.advance(0.1)
            assert (await response_of(port)).startswith(b"HTTP/1.1 200")
            assert await read(clients[1]) == b""  # not the first, which has begun its request later
            clients[0].sendall(b" body")
            assert (await receive(clients[0])).startswith(b"HTTP/1.1 200")
            for _ in range(20):
                assert (await response_of(port)).startswith(b"HTTP/1.1 200")
            assert len(connections) <= 5

    run(test)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    async def test(stack: ExitStack, clock: Clock) -> None:
        async with listening(max_seconds=1.0, header_seconds=1.0) as (server, port):
            connections = server.server_state.connections
            connect(stack, port, GET.replace(b"/size", b"/50000000"))
            await until(lambda: any(one.transport.get_write_buffer_size() > 0 for one in connections))
            await clock.advance(1.5)
            assert len(connections) == 1
            await clock.advance(1.0)
            await until(lambda: not connections)

    run(test)


def test_what_is_not_http_gets_an_error_in_json() -> None:
    async def test(stack: ExitStack, clock: Clock) -> None:
        async with listening() as (_, port):
            for request in (b"\x16\x03\x01\x02\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
                head, _, body = (await read(connect(stack, port, request))).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 400")
                assert b"Content-Type: application/json" in head
                assert list(json.loads(body)) == ["error"]

    run(test)
