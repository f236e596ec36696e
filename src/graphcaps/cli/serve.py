"""``graphcaps serve``: a model behind an address on this machine, for browsers and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphcaps.cli.output import note, option

__all__ = ["serve"]


def serve(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors).")],
    host: Annotated[
        str, option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[
        int,
        option("--workers", metavar="N", min=1, max=64, help="Requests worked on at once, a process each."),
    ] = 1,
    max_mb: Annotated[
        float, option("--max-mb", metavar="MB", min=0.001, max=1000, help="Largest request.")
    ] = 5.0,
    max_graphs: Annotated[
        int, option("--max-graphs", metavar="N", min=1, help="Most graphs in a request.")
    ] = 256,
    max_nodes: Annotated[
        int, option("--max-nodes", metavar="N", min=1, help="Most nodes of a graph.")
    ] = 20_000,
    max_seconds: Annotated[
        float, option("--max-seconds", metavar="S", min=1, help="Longest time for a request.")
    ] = 30.0,
) -> None:
    """Serve a model: a page to try it on, and /predict and /explain for programs.

    Only this machine is answered unless --host says otherwise. There is no password.

    Ctrl-C ends it.
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
    )
    note(f"Loading {model.name} …")
    run(model, host=host, port=port, limits=limits, on_ready=_say)
    note("Stopped.")


def _say(address: str, known: dict[str, Any]) -> None:
    typer.echo(f"Serving at {address} ({len(known['classes'])} classes); for programs: {address}/docs")
    note("Ctrl-C ends it.")
