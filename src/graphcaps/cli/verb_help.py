"""The text of ``--help``: a panel of options with two columns, readable on a terminal of 80 characters.

Typer's own panels have six columns, of which the type and the negative form of an option leave 19 characters for the
explanation on such a terminal, and cut names that are longer than their column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any

from graphcaps.cli.output import terminal

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.text import Text

__all__ = ["write_help"]

_MAX_SHARE = 0.4  # of the width, for the column of names


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Writes the help of a verb or of a group of verbs.

    Args:
        command (TyperCommand or TyperGroup): The verb.
        ctx (Context): Its context.
        formatter (HelpFormatter): What collects the text.
    """
    from rich.padding import Padding
    from rich.text import Text

    console = terminal()
    panels: dict[str, list[tuple[Text, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        if not getattr(parameter, "hidden", False):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            title = getattr(parameter, "rich_help_panel", None) or usual
            panels.setdefault(title, []).append((_name(parameter), _explanation(parameter, ctx)))
    if hasattr(command, "list_commands"):
        verbs = [command.get_command(ctx, name) for name in command.list_commands(ctx)]
        panels["Commands"] = [(Text(verb.name, "bold cyan"), _first_paragraph(verb)) for verb in verbs]
    with console.capture() as capture:
        console.print(Padding(Text(command.get_usage(ctx), "bold"), 1))
        if command.help:
            console.print(Padding(Text(command.help), (0, 1, 1, 1)))
        for title, rows in panels.items():
            if rows:
                console.print(_panel(title, rows, console.width))
        if command.epilog:
            console.print(Padding(Text(command.epilog), 1))
    formatter.write(capture.get())


def _panel(title: str, rows: Sequence[tuple[Text, str]], width: int) -> Panel:
    """Names on the left, which wrap beyond a share of the width, and explanations on the right."""
    from rich.panel import Panel
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    longest = max(name.cell_len for name, _ in rows)
    table.add_column(width=min(longest, int(_MAX_SHARE * width)), overflow="fold")
    table.add_column(ratio=1, overflow="fold")
    for name, explanation in rows:
        table.add_row(name, explanation)
    return Panel(table, title=title, title_align="left", border_style="dim")


def _name(parameter: Any) -> Text:
    """``--epochs N``, ``--baseline / --no-baseline`` or ``SOURCE``."""
    from rich.text import Text

    if parameter.param_type_name == "argument":
        return Text(_argument(parameter), "bold cyan")
    names = Text(", ".join(parameter.opts), "bold cyan")
    if parameter.secondary_opts:
        names.append(" / ", "").append(", ".join(parameter.secondary_opts), "bold magenta")
    if not parameter.is_flag:
        names.append(f" {parameter.metavar or 'NAME'}", "bold yellow")
    return names


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.nargs == 1 or name.endswith("...") else f"{name}..."


def _explanation(parameter: Any, ctx: Any) -> str:
    """The help of an option, with its choices, its bounds and its default."""
    remarks = []
    if choices := _choices(parameter):
        remarks.append(f"one of: {_listed(choices)}")
    bounds = getattr(parameter, "type", parameter)  # in newer versions of Typer the parameter has them
    least, most = getattr(bounds, "min", None), getattr(bounds, "max", None)
    if least is not None:
        remarks.append(f"at least {least}" if most is None else f"{least} to {most}")
    default = parameter.get_default(ctx, call=False)
    is_empty = default is None or default is False or default in ("", (), [])
    if parameter.show_default and not is_empty and not callable(default):
        # True is the default of a pair such as --baseline/--no-baseline.
        remarks.append(f"default: {parameter.opts[0] if default is True else _listed(default)}")
    if parameter.required:
        remarks.append("required")
    return " ".join([parameter.help or "", *(f"[{remark}]" for remark in remarks)]).strip()


def _choices(parameter: Any) -> Iterable[Any]:
    if hasattr(parameter, "type"):
        return getattr(parameter.type, "choices", ())
    annotation = parameter.type_descriptor.annotation
    return annotation if isinstance(annotation, EnumMeta) else ()


def _listed(value: Any) -> str:
    values: Iterable[Any] = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    return ", ".join(str(each.value if isinstance(each, Enum) else each) for each in values)


def _first_paragraph(verb: Any) -> str:
    text: str = verb.short_help or verb.help or ""
    return " ".join(text.split("\n\n")[0].split())
