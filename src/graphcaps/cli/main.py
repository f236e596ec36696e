"""The program ``graphcaps``: registers the verbs, and reports user errors in one sentence with exit code 2.

Verbs import the library when they run, so that ``graphcaps --help`` does not wait for torch. The program imports and
registers only the verb that it is called with; :data:`app` has all of them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any

import typer

from graphcaps import __version__
from graphcaps._io.allocator import enable_huge_pages
from graphcaps.cli.interrupts import STOPPED, defer_interrupts, stop_code
from graphcaps.cli.output import as_options, note, print_text
from graphcaps.cli.processes import check_verb, claim_message, end_rank, leave_ranks
from graphcaps.cli.verb_command import VerbCommand, VerbGroup
from graphcaps.errors import GraphcapsError

__all__ = ["SHORT_VERBS", "VERBS", "app", "main", "make_app", "verb_function"]

# Read by torch's thread pool when it starts. Waiting threads spin; if another program uses the core, long spinning
# makes training up to thirty times slower (docs/training.md). On free cores the setting hardly matters.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
enable_huge_pages()

VERBS = {
    "bench": "graphcaps bench MUTAG --device cpu",
    "compare": "graphcaps compare MUTAG PTC_MR --models hgcn,gin,wl-forest --out comparison",
    "demo": "graphcaps demo --out demo",
    "evaluate": "graphcaps evaluate MUTAG PTC_MR --protocol both --seeds 3 --out runs",
    "explain": "graphcaps explain mutag.safetensors MUTAG --graph 3",
    "info": "graphcaps info mutag.safetensors",
    "predict": "graphcaps predict mutag.safetensors new.zip --out new.csv",
    "reproduce": "graphcaps reproduce table1 --datasets MUTAG,PTC_MR --seeds 1",
    "serve": "graphcaps serve mutag.safetensors",
    "train": "graphcaps train MUTAG --out mutag.safetensors --epochs 100",
    "tune": "graphcaps tune MUTAG --trials 64 --out search",
}
"""Verbs with the example of their help; ``data`` has verbs of its own."""

SHORT_VERBS = ("data", "explain", "info", "predict")
"""Verbs that take little longer than the imports, and train nothing."""

_MANY_OBJECTS = 100_000


@contextlib.contextmanager
def _collect_rarely() -> Iterator[None]:
    """Lets Python search for garbage after many new objects only.

    An import of torch makes some hundred thousand objects that stay; searching them again and again takes a tenth of
    its time.
    """
    before = gc.get_threshold()
    gc.set_threshold(_MANY_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Group(VerbGroup):
    """Ends a command without a traceback after a user error, Ctrl-C, SIGTERM or a closed pipe."""

    def invoke(self, ctx: Any) -> Any:
        verb = next(iter(ctx._protected_args), None) if ctx.parent is None else None
        defer_interrupts(trains=verb in VERBS and verb not in (*SHORT_VERBS, "serve"))
        try:
            if ctx.parent is None:
                check_verb(verb)
            with _collect_rarely() if verb in SHORT_VERBS else contextlib.nullcontext():
                result = super().invoke(ctx)
            leave_ranks()
            return result
        except GraphcapsError as error:
            _print_error(str(error))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            _note_stop()
            raise typer.Exit(stop_code(error)) from error
        except BrokenPipeError as error:
            _drop_output()
            raise typer.Exit(0) from error
        except OSError as error:
            _print_os_error(error)
            raise typer.Exit(2) from error
        except _usage_errors() as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # not an error: the help is shown
                raise
            command = getattr(error.ctx, "command_path", "graphcaps")
            sentence = _usage_sentence(error)  # it may end with a suggestion and a question mark
            _print_error(f"{sentence}{'' if sentence.endswith(('.', '?')) else '.'} See: {command} --help")
            raise typer.Exit(2) from error


def _usage_sentence(error: Any) -> str:
    """What is wrong with an option. Newer versions of Typer quote pydantic, which checks values, in its own words."""
    sentence: str = error.format_message()
    if type(error.__cause__).__name__ != "ValidationError":
        return sentence
    (first, *_) = error.__cause__.errors()
    kind = {"int": "a whole number", "float": "a number"}.get(first["type"].partition("_")[0])
    if kind is not None:
        return sentence.replace(first["msg"], f"must be {kind}, got {first['input']!r}")
    return sentence.replace("Value error, ", "")


def _usage_errors() -> Any:
    """The exception of a wrong option or argument; typer has no public name for its base class."""
    return typer.BadParameter.__mro__[1]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"graphcaps {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def verb_function(name: str) -> Callable[..., None]:
    """The function of a verb of :data:`VERBS`, which has the verb's name in a module of that name."""
    function: Callable[..., None] = getattr(importlib.import_module(f"graphcaps.cli.{name}"), name)
    return function


def make_app(verbs: Collection[str]) -> typer.Typer:
    """The program with some of its verbs, ``"data"`` among them or not."""
    program = typer.Typer(
        name="graphcaps",
        cls=_Group,
        help="Classify whole graphs with Hierarchical Graph Capsule Networks, and explain the predictions.",
        epilog="Example: graphcaps data info MUTAG",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_options)
    if "data" in verbs:
        from graphcaps.cli import data

        program.add_typer(data.app, name="data", cls=VerbGroup)
        _prepare(data.app)
    for name, example in VERBS.items():
        if name in verbs:
            program.command(name, epilog=f"Example: {example}")(verb_function(name))
    _prepare(program)
    return program


def _prepare(program: typer.Typer) -> None:
    """Makes each command a :class:`VerbCommand`, and joins the lines of each paragraph of its help text.

    The text then wraps to the terminal: Typer keeps line breaks.
    """
    for command in program.registered_commands:
        command.cls = VerbCommand
        paragraphs = (
            inspect.cleandoc(command.callback.__doc__ or "").split("\n\n") if command.callback else []
        )
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


app: typer.Typer
"""The program with all verbs."""


def __getattr__(name: str) -> Any:
    """Makes :data:`app` on first use."""
    if name != "app":
        raise AttributeError(f"module 'graphcaps.cli.main' has no attribute '{name}'")
    program = globals()[name] = make_app((*VERBS, "data"))
    return program


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):  # print \xb1 instead of failing if a stream cannot encode '±'
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    is_verb = verb in VERBS or verb == "data"
    try:
        program = make_app((verb,)) if is_verb else sys.modules[__name__].app
        program(prog_name="graphcaps")
    except SystemExit as end:
        if isinstance(end.code, int):
            end_rank(end.code)
        raise
    except KeyboardInterrupt as error:  # before or after the command itself
        _note_stop()
        sys.exit(stop_code(error))
    except OSError as error:
        _print_os_error(error)
        sys.exit(2)


def _note_stop() -> None:
    with contextlib.suppress(OSError):  # the error stream itself may fail
        note(STOPPED)


def _print_error(sentence: str) -> None:
    """Prints one line on the error stream; line breaks in names become spaces."""
    if not claim_message():
        return
    with contextlib.suppress(OSError):  # the error stream itself may fail
        print_text(f"graphcaps: {' '.join(as_options(sentence).split())}", to_errors=True)


def _print_os_error(error: OSError) -> None:
    """Prints an error of the operating system in one sentence; an output that fails is not written again."""
    path = "" if error.filename is None else f"{error.filename}: "
    _print_error(f"{path}{error.strerror or error or type(error).__name__}.")
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Discards the remaining output: the reader of a pipe (``| head``) has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
