"""The program ``graphcaps``: joins the verbs and turns mistakes into one sentence and exit code 2.

Verbs import the library when they run, so that ``graphcaps --help`` does not wait for torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from graphcaps import __version__
from graphcaps._io.allocator import enable_huge_pages
from graphcaps.cli import bench, data, demo, evaluate, explain, info, predict, reproduce, serve, train
from graphcaps.errors import GraphcapsError

__all__ = ["app", "main"]

# Read by torch's thread pool when it starts. A thread that waits for others spins; where another program has
# the core, spinning long makes training up to thirty times slower (docs/training.md), and this hardly matters
# where the cores are free.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
enable_huge_pages()

SUBCOMMANDS = {"data": data.app}


class _Group(TyperGroup):
    """Ends a command that a user's mistake, Ctrl-C or a closed pipe stopped, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GraphcapsError as error:
            _say(str(error))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except BrokenPipeError as error:
            _drop_output()
            raise typer.Exit(0) from error
        except OSError as error:
            _say_refused(error)
            raise typer.Exit(2) from error
        except _usage_errors() as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # no mistake: the help is shown
                raise
            place = getattr(error.ctx, "command_path", "graphcaps")
            _say(f"{error.format_message().rstrip('.')}. See: {place} --help")
            raise typer.Exit(2) from error


def _usage_errors() -> Any:
    """What typer raises for a wrong option or argument; its base has no name of typer's own."""
    return typer.BadParameter.__mro__[1]


app = typer.Typer(
    name="graphcaps",
    cls=_Group,
    help="Classify whole graphs with Hierarchical Graph Capsule Networks, and see why.",
    epilog="Example: graphcaps data info MUTAG",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _verb in SUBCOMMANDS.items():
    app.add_typer(_verb, name=_name)
app.command("bench", epilog="Example: graphcaps bench MUTAG --device cpu")(bench.bench)
app.command("demo", epilog="Example: graphcaps demo --out demo")(demo.demo)
app.command(
    "evaluate", epilog="Example: graphcaps evaluate MUTAG PTC_MR --protocol both --seeds 3 --out results"
)(evaluate.evaluate)
app.command("explain", epilog="Example: graphcaps explain mutag.safetensors MUTAG --graph 3")(explain.explain)
app.command("info", epilog="Example: graphcaps info mutag.safetensors")(info.info)
app.command("predict", epilog="Example: graphcaps predict mutag.safetensors new.zip --out new.csv")(
    predict.predict
)
app.command("reproduce", epilog="Example: graphcaps reproduce table1 --datasets MUTAG,PTC_MR --seeds 1")(
    reproduce.reproduce
)
app.command("serve", epilog="Example: graphcaps serve mutag.safetensors")(serve.serve)
app.command("train", epilog="Example: graphcaps train MUTAG --out mutag.safetensors --epochs 100")(
    train.train
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphcaps {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):  # a stream without '±' gets \xb1, not a traceback
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="graphcaps")
    except KeyboardInterrupt:  # before or after the command itself
        sys.exit(130)
    except OSError as error:
        _say_refused(error)
        sys.exit(2)


def _say(sentence: str) -> None:
    """One line on the error stream; names in messages may hold line breaks."""
    with contextlib.suppress(OSError):  # the error stream may be what fails
        typer.echo(f"graphcaps: {' '.join(sentence.split())}", err=True)


def _say_refused(error: OSError) -> None:
    """What the system refused, in one sentence; an output that is full is not tried again."""
    place = "" if error.filename is None else f"{error.filename}: "
    _say(f"{place}{error.strerror or error or type(error).__name__}.")
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Sends what is left to nowhere: the reader of a pipe (``| head``) has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
