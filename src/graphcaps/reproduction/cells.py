"""What the paper's tables ask for: cells to show, and the trainings that they are made from."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from graphcaps.config import RunConfig
from graphcaps.data.datasets.catalogue import find_entry
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.record import Protocol
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import (
    PublishedResult,
    paper_datasets,
    published,
    published_hgcn,
    statistics,
    systems,
)

__all__ = [
    "ABLATIONS",
    "CRITERIA",
    "EQUATIONS",
    "TABLES",
    "VARIANTS",
    "Cell",
    "Criterion",
    "Training",
    "Variant",
    "choose_cells",
    "find_variant",
    "trainings",
]


@dataclass(frozen=True)
class Variant:
    """A row of tables 1 to 6 that is a change of the paper's presets.

    Args:
        row (str): Its name in tables, ``"HGCN"``.
        name (str): Its name in records, ``"hgcn"``.
        published (str, optional): Its name in the published tables, ``"Ours"``; ``None`` where they have none.
        what (str): What it is, in words.
        changes (dict): Arguments of the model in place of the preset's.
    """

    row: str
    name: str
    published: str | None
    what: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def formulation(self) -> str:
        return str(self.changes.get("formulation", "released"))

    def config(self, dataset: str, *, epochs: int | None = None, precision: str | None = None) -> RunConfig:
        """The preset of a data set with this variant's changes."""
        preset = load_preset("paper", dataset)
        changed = replace(preset, model_arguments=preset.model_arguments | self.changes)
        return changed.with_training(epochs=epochs, precision=precision)


EQUATIONS = "HGCN (equations)"

VARIANTS: tuple[Variant, ...] = (
    Variant("A1", "A1", "A1", "no disentangling: features as capsules", {"disentangle": False}),
    Variant("A2", "A2", "A2", "no residual", {"residual": False}),
    Variant("A3", "A3", "A3", "no reconstruction", {"reconstruction": False}),
    Variant("HGCN", "hgcn", "Ours", "as released: K = 4 factors, R = 3 rounds"),
    *(Variant(f"K={K}", f"K={K}", f"K={K}", f"{K} factors", {"num_factors": K}) for K in (2, 8)),
    *(
        Variant(
            f"R={R}", f"R={R}", f"R={R}", f"{R} round{'s' * (R > 1)} of routing", {"routing_iterations": R}
        )
        for R in (1, 2, 4, 5)
    ),
    Variant(
        EQUATIONS,
        "equations",
        None,
        "the text's equations, not the released program",
        {"formulation": "paper"},
    ),
)
"""In the order of the paper's tables 3 and 4."""

ABLATIONS = ("A1", "A2", "A3")


def find_variant(row: str) -> Variant | None:
    """The variant of that row; case does not matter."""
    return next((variant for variant in VARIANTS if variant.row.lower() == row.lower()), None)


Criterion = Literal["C", "C*", "held-out"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
TABLES = ("table1", "table2", "table3", "table4", "table5", "table6")
_PROTOCOL: dict[Criterion, Protocol] = {"C": "paper", "C*": "paper", "held-out": "held-out"}


@dataclass(frozen=True)
class Cell:
    """One figure of one table.

    Args:
        table (str): ``"table1"`` to ``"table6"``.
        row (str): A variant of this project, or a system that the paper compares with.
        dataset (str): Name of the data set.
        criterion (str): How the epoch is chosen.
        paper (PublishedResult, optional): The published figure, where there is one.
        variant (Variant, optional): What is trained for it; ``None``: reported by the paper alone.
    """

    table: str
    row: str
    dataset: str
    criterion: Criterion
    paper: PublishedResult | None
    variant: Variant | None

    @property
    def protocol(self) -> Protocol:
        """The training that gives this figure."""
        return _PROTOCOL[self.criterion]


@dataclass(frozen=True)
class Training:
    """Seeds of one variant on one data set under one protocol; what several cells may share."""

    dataset: str
    variant: Variant
    protocol: Protocol

    @property
    def work(self) -> float:
        """By what the longest is known: nodes of all graphs times epochs."""
        counts = statistics(self.dataset)
        return counts.graphs * counts.avg_nodes * self.variant.config(self.dataset).training.epochs


def choose_cells(
    wanted: Sequence[str] = ("all",),
    *,
    rows: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    criteria: Iterable[str] | None = None,
) -> list[Cell]:
    """The cells of some tables, in the paper's order.

    Args:
        wanted (list): Names of :data:`TABLES`, or ``"all"``.
        rows, datasets, criteria (optional): Only these; case and punctuation may differ. (default: all)

    Raises:
        ArgumentError: If a name is unknown, or nothing is left.
    """
    for table in wanted:
        if table not in (*TABLES, "all"):
            raise ArgumentError("reproduce", "table", f"be one of {', '.join(TABLES)}, all", repr(table))
    cells = [cell for table in TABLES if table in wanted or "all" in wanted for cell in _cells(table)]
    known = list(dict.fromkeys(cell.row for cell in cells))
    chosen_rows = None if rows is None else {_known("rows", row, known) for row in rows}
    chosen_sets = None if datasets is None else {_dataset(name) for name in datasets}
    chosen_rules = None if criteria is None else {_known("criteria", rule, CRITERIA) for rule in criteria}
    left = [
        cell
        for cell in cells
        if (chosen_rows is None or cell.row in chosen_rows)
        and (chosen_sets is None or cell.dataset in chosen_sets)
        and (chosen_rules is None or cell.criterion in chosen_rules)
    ]
    if not left:
        what = "name a row, a data set and a criterion that the table has"
        raise ArgumentError("reproduce", ", ".join(wanted), what, "none of its cells")
    return left


def trainings(cells: Iterable[Cell]) -> list[Training]:
    """What must be trained for these cells, each once, the longest first."""
    needed = {
        (cell.dataset, cell.variant.name, cell.protocol): Training(cell.dataset, cell.variant, cell.protocol)
        for cell in cells
        if cell.variant is not None
    }
    return sorted(needed.values(), key=lambda training: -training.work)


def _cells(table: str) -> list[Cell]:
    """All cells of a table, row by row."""
    number = int(table[-1])
    biological, social = (tuple(_columns(n)) for n in (1, 2))
    columns = biological if number % 2 else social
    reported = [row for row in systems(number) if all(row != each.published for each in VARIANTS)]
    cells = []
    for row in reported:
        rule: Criterion = "C*" if number > 4 else "C"
        figures = [(name, published(number, row, name)) for name in columns]
        cells += [
            Cell(table, row, name, rule, figure, None) for name, figure in figures if figure is not None
        ]
    for variant, rule in _own_rows(number):
        for name in columns:
            cells.append(
                Cell(table, variant.row, name, rule, _published(number, variant, name, rule), variant)
            )
    return cells


def _own_rows(number: int) -> list[tuple[Variant, Criterion]]:
    """Rows of a table that this project trains, and how their epoch is chosen."""
    hgcn, equations = find_variant("HGCN"), find_variant(EQUATIONS)
    assert hgcn is not None
    assert equations is not None
    if number > 4:
        return [(hgcn, "C*")]
    if number < 3:
        return [(variant, rule) for variant in (hgcn, equations) for rule in ("C", "held-out")]
    rows: list[tuple[Variant, Criterion]] = [(each, "C") for each in VARIANTS if each.published is not None]
    return rows + [(each, "held-out") for each in VARIANTS if each.row in (*ABLATIONS, "HGCN")]


def _columns(number: int) -> list[str]:
    return [name for name in paper_datasets() if published(number, "Ours", name) is not None]


def _published(number: int, variant: Variant, dataset: str, rule: Criterion) -> PublishedResult | None:
    if rule == "held-out" or variant.published is None:
        return None
    if variant.row == "HGCN":  # the run log has C* of all data sets, the tables of some
        return published_hgcn(dataset, rule)
    return published(number, variant.published, dataset)


def _known(what: str, name: str, known: Sequence[str]) -> str:
    for each in known:
        if each.lower() == name.lower():
            return each
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
    raise ArgumentError("reproduce", f"--{what}", f"be among {', '.join(near)}", repr(name))


def _dataset(name: str) -> str:
    entry = find_entry(name)
    if entry is None or entry.name not in paper_datasets():
        near = difflib.get_close_matches(name.upper(), paper_datasets(), n=3, cutoff=0.4) or paper_datasets()
        raise ArgumentError("reproduce", "--datasets", f"be among {', '.join(near)}", repr(name))
    return entry.name
