"""``graphcaps serve``: a web page and an HTTP interface for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphcaps.cli.output import note, option

__all__ = ["serve"]


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors).")],
    host: Annotated[
        str,
        option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on; 0.0.0.0 accepts requests of other machines.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 selects a free one.")
    ] = 8000,
    workers: Annotated[
        int,
        option(
            "--workers",
            metavar="N",
            min=1,
            max=64,
            help="Number of worker processes, each with the model.",
        ),
    ] = 1,
    max_mb: Annotated[
        float, option("--max-mb", metavar="MB", min=0.001, max=1000, help="Size limit of a request in MB.")
    ] = 5.0,
    max_graphs: Annotated[
        int, option("--max-graphs", metavar="N", min=1, help="Limit of graphs per request.")
    ] = 256,
    max_nodes: Annotated[
        int, option("--max-nodes", metavar="N", min=1, help="Limit of nodes per graph.")
    ] = 20_000,
    max_seconds: Annotated[
        float,
        option(
            "--max-seconds",
            metavar="S",
            min=1,
            help="Time limit of a request in seconds, including the time in the queue.",
        ),
    ] = 30.0,
    max_waiting: Annotated[
        int,
        option(
            "--max-waiting",
            metavar="N",
            min=0,
            help="Limit of requests that wait for a worker process; more are refused (503).",
        ),
    ] = 256,
    grace: Annotated[
        float,
        option(
            "--grace",
            metavar="S",
            min=0,
            help="Seconds that running and waiting requests have to finish after Ctrl-C or SIGTERM.",
        ),
    ] = 10.0,
) -> None:
    """Serve a model over HTTP: a page in the browser, and /predict and /explain for programs.

    Only this machine can use the server unless --host is given. There is no password.

    Ctrl-C stops it when the requests that it has accepted are answered; a second Ctrl-C stops it at once. The model
    file is read once, at the start; SIGHUP reads it again.
    """
    from graphcaps.serve import Limits
    from graphcaps.serve import serve as run

    limits = Limits(
        max_bytes=int(max_mb * 1e6),
        max_graphs=max_graphs,
        max_nodes=max_nodes,
        max_total_nodes=max(Limits.max_total_nodes, max_nodes),
        max_seconds=max_seconds,
        workers=workers,
        max_waiting=max_waiting,
        grace_seconds=grace,
    )
    note(f"Loading {model.name} …")
    run(
        model,
        host=host,
        port=port,
        limits=limits,
        on_ready=_show_address,
        on_stopped=lambda: note("Stopped."),
    )


def _show_address(address: str, model: dict[str, Any]) -> None:
    typer.echo(f"Serving at {address} ({len(model['classes'])} classes); for programs: {address}/docs")
    note("Press Ctrl-C to stop.")
