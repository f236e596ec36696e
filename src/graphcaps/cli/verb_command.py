"""The classes of verbs and of groups of verbs: help that fits a narrow terminal, and messages that name options."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from graphcaps.cli.verb_help import write_help
from graphcaps.errors import ArgumentError, UsageError, shorten

__all__ = ["VerbCommand", "VerbGroup"]

# Arguments of verbs that name data sets; the library calls their graphs "store".
_SOURCES = ("source", "names")
_ALIASES = {"store": _SOURCES, "source": _SOURCES, "table": ("tables",)}


class VerbGroup(TyperGroup):
    """A group of verbs."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)


class VerbCommand(TyperCommand):
    """A verb. An :class:`ArgumentError` on a value that came from an option names the verb and the option."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # An empty path would be that of the working folder: a shell writes one for a variable that is not set.
        if any(pair == ("--out", "") for pair in pairwise(args)) or "--out=" in args:
            raise UsageError(f"{_verb(ctx)}: '--out' must not be empty.")
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ArgumentError as error:
            subject = _find_subject(error.name, ctx)
            if subject is None:
                raise
            got = f"{error.got:g}" if isinstance(error.got, float) else shorten(str(error.got))
            sentence = f"{_find_owner(error.owner, ctx)}: {subject} must {error.expected}, got {got}."
            raise UsageError(f"{sentence} {error.fix}" if error.fix else sentence) from error


def _find_owner(owner: str, ctx: Any) -> str:
    """The verb, or the data set if the message is about one of them."""
    values = [ctx.params.get(name) for name in _SOURCES]
    sources = [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]
    is_source = owner in {Path(each).stem for each in sources if each is not None}
    return owner if is_source else _verb(ctx)


def _verb(ctx: Any) -> str:
    """The name of the verb, as ``data convert``."""
    return str(ctx.command_path.partition(" ")[2])


def _find_subject(name: str, ctx: Any) -> str | None:
    """The option of this name, the data set, or the name of another argument; ``None`` if it is none of them.

    An option without a value does not count: the value is that of a preset.
    """
    names = _ALIASES.get(name, (name,))
    for parameter in ctx.command.params:
        if parameter.name not in names and f"--{name.replace('_', '-')}" not in parameter.opts:
            continue
        value = ctx.params.get(parameter.name)
        if parameter.param_type_name != "argument":
            return None if value is None else f"'{parameter.opts[0]}'"
        values = value if isinstance(value, list | tuple) else [value]
        if names is not _SOURCES or len(values) != 1:
            return str(parameter.metavar or name.upper()).strip("[].")
        label = ctx.params.get("label")
        return f"{values[0]}" if label is None else f"{values[0]} (--label {label})"
    return None
