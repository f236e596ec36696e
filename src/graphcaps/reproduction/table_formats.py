"""Published and measured accuracies as tables: lines of text for a terminal, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graphcaps.reproduction.cells import Criterion
from graphcaps.reproduction.measured import CellResult
from graphcaps.reproduction.published import paper_datasets

__all__ = ["REPORTED_ONLY", "SLIP_MARK", "Line", "latex", "lines", "markdown", "system_notes", "titles"]

REPORTED_ONLY = "reported"
"""``Line.what`` of results that only the paper reports."""

SLIP_MARK = "†"
"""Stands behind a published value that is a slip."""

_TITLES = {
    "table1": "Table 1: biological graphs",
    "table2": "Table 2: social graphs",
    "table3": "Table 3: ablation and sensitivity, biological graphs",
    "table4": "Table 4: ablation and sensitivity, social graphs",
    "table5": "Table 5: biological graphs, each fold's own best test epoch",
    "table6": "Table 6: social graphs, each fold's own best test epoch",
}


@dataclass(frozen=True)
class Line:
    """A line of a table: one quantity of a row and a criterion, for each data set.

    Args:
        row (str): Name of the row.
        criterion (str): Rule of epoch selection.
        what (str): ``"paper"``, ``"ours"``, ``"difference"``, ``"reported"``, or ``"± folds"``, ``"± seeds"``.
        cells (tuple): One text per data set.
        selection (str): How the published results of another system were selected; "" on other lines.
    """

    row: str
    criterion: Criterion
    what: str
    cells: tuple[str, ...]
    selection: str = ""

    @property
    def title(self) -> str:
        """``what``, with the selection of published results: ``"paper (SVM)"``."""
        return f"{self.what} ({self.selection})" if self.selection else self.what


def titles(comparisons: Iterable[CellResult]) -> dict[str, str]:
    """Headings of the tables to which the cells belong."""
    return {each.cell.table: _TITLES[each.cell.table] for each in comparisons}


def lines(
    comparisons: Sequence[CellResult], table: str, *, separate_deviations: bool = False
) -> tuple[list[str], list[Line]]:
    """Data sets and lines of a table, in order.

    The first ``±`` is the standard deviation over folds, the second the one over seeds, if there are several.

    Args:
        comparisons (list): Cells of this and other tables.
        table (str): Name of the table.
        separate_deviations (bool): Put our deviations on lines of their own and leave out the paper's, which makes
            the table narrower. (default: ``False``)
    """
    selected = [each for each in comparisons if each.cell.table == table]
    datasets = [name for name in paper_datasets() if any(each.cell.dataset == name for each in selected)]
    rows = list(dict.fromkeys((each.cell.row, each.cell.criterion) for each in selected))
    result = []
    for row, criterion in rows:
        cells = {
            each.cell.dataset: each
            for each in selected
            if (each.cell.row, each.cell.criterion) == (row, criterion)
        }
        columns = [cells.get(name) for name in datasets]
        paper = tuple(_paper(each, separate_deviations) for each in columns)
        system = next((each.cell.system for each in cells.values()), None)
        selection = "" if system is None else system.selection
        if all(each is None or (each.cell.variant is None and each.ours is None) for each in columns):
            result.append(Line(row, criterion, REPORTED_ONLY, paper, selection))
            continue
        if any(text != "–" for text in paper):
            result.append(Line(row, criterion, "paper", paper, selection))
        result.append(
            Line(row, criterion, "ours", tuple(_ours(each, separate_deviations) for each in columns))
        )
        for what in ("folds", "seeds") if separate_deviations else ():
            spreads = tuple(_spread(each, what) for each in columns)
            result += [Line(row, criterion, f"± {what}", spreads)] if set(spreads) != {"–"} else []
        if any(text != "–" for text in paper):
            result.append(Line(row, criterion, "difference", tuple(_difference(each) for each in columns)))
    return datasets, result


def system_notes(comparisons: Sequence[CellResult], table: str) -> list[str]:
    """How the published results of the other systems of a table were selected, and its slips, a sentence each."""
    cells = [each.cell for each in comparisons if each.cell.table == table and each.cell.system is not None]
    rows: dict[str, list[str]] = {}
    slips = {}
    for cell in cells:
        assert cell.system is not None
        if cell.row not in rows.setdefault(cell.system.protocol, []):
            rows[cell.system.protocol].append(cell.row)
        if cell.paper is not None and cell.dataset in cell.system.slips:
            slips[cell.row, cell.dataset] = cell.system.slips[cell.dataset]
    notes = [f"Selection in the paper, {', '.join(names)}: {protocol}." for protocol, names in rows.items()]
    return notes + [f"{SLIP_MARK} {row} on {dataset}: {slip}." for (row, dataset), slip in slips.items()]


def markdown(comparisons: Sequence[CellResult]) -> str:
    """All tables in Markdown, each with a heading."""
    parts = []
    for table, title in titles(comparisons).items():
        datasets, rows = lines(comparisons, table)
        text = f"### {title}\n\n| row | criterion | | {' | '.join(datasets)} |\n"
        text += f"|---|---|---|{'---|' * len(datasets)}\n"
        for line in rows:
            cells = [f"**{cell}**" if line.what == "ours" and cell != "–" else cell for cell in line.cells]
            text += f"| {line.row} | {_escaped(line.criterion)} | {_escaped(line.title)} | {' | '.join(cells)} |\n"
        text += "".join(f"\n{_escaped(note)}\n" for note in system_notes(comparisons, table))
        parts.append(text)
    return "\n".join(parts)


def latex(comparisons: Sequence[CellResult]) -> str:
    """All tables in LaTeX; needs the package ``booktabs``."""
    parts = []
    for table, title in titles(comparisons).items():
        datasets, rows = lines(comparisons, table)
        heads = " & ".join(_tex(name) for name in datasets)
        text = (
            f"\\begin{{table}}\n\\caption{{{_tex(title)}}}\n\\begin{{tabular}}{{lll{'r' * len(datasets)}}}\n"
        )
        text += f"\\toprule\nrow & criterion & & {heads} \\\\\n\\midrule\n"
        for line in rows:
            cells = [_tex(cell) for cell in (line.row, line.criterion, line.title, *line.cells)]
            text += f"{' & '.join(cells)} \\\\\n"
        parts.append(f"{text}\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n")
    return "\n".join(parts)


def _paper(each: CellResult | None, separate_deviations: bool) -> str:
    if each is None or each.cell.paper is None:
        return "–"
    mark = SLIP_MARK if each.cell.system is not None and each.cell.dataset in each.cell.system.slips else ""
    return (f"{each.cell.paper.mean:.2f}" if separate_deviations else str(each.cell.paper)) + mark


def _spread(each: CellResult | None, what: str) -> str:
    value = None if each is None or each.ours is None else getattr(each.ours, f"std_{what}")
    return "–" if value is None else f"{value:.2f}"


def _ours(each: CellResult | None, separate_deviations: bool) -> str:
    if each is None or each.ours is None:
        return "–"
    if separate_deviations:
        return f"{each.ours.mean:.2f}"
    seeds = "" if each.ours.std_seeds is None else f" ± {each.ours.std_seeds:.2f}"
    return f"{each.ours}{seeds}"


def _difference(each: CellResult | None) -> str:
    return "–" if each is None or each.difference is None else f"{round(each.difference, 2) + 0.0:+.2f}"


def _escaped(text: str) -> str:
    return text.replace("*", "\\*")


def _tex(text: str) -> str:
    for plain, written in (
        ("_", "\\_"),
        ("%", "\\%"),
        ("&", "\\&"),
        ("±", "$\\pm$"),
        ("†", "$^\\dagger$"),
        ("–", "--"),
        ("C*", "$C^*$"),
    ):
        text = text.replace(plain, written)
    return text
