"""The figures of ``graphcaps evaluate``, as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphcaps.cli.output import columns, terminal

if TYPE_CHECKING:
    from graphcaps.evaluation import Ledger

__all__ = ["show_ledgers"]


def show_ledgers(ledgers: list[Ledger], out: Path | None) -> None:
    """A line per figure, and under them what each is."""
    from graphcaps.evaluation import RULES
    from graphcaps.evaluation.ledger import UPPER_BOUNDS

    several = any(len(figure.seeds) > 1 for ledger in ledgers for figure in ledger.figures.values())
    numbers = ("mean", "± folds", *(("± seeds",) if several else ()), "seconds")
    table = columns("data set", "model", "figure", *numbers, "", right=numbers)
    for ledger in ledgers:
        head = (ledger.dataset, ledger.variant, f"{ledger.seconds:.1f}")
        for name, figure in ledger.figures.items():
            spreads = (figure.std_folds, figure.std_seeds)[: len(numbers) - 2]
            shown = ["–" if spread is None else f"{spread:.2f}" for spread in spreads]
            bound = "upper bound" if name in UPPER_BOUNDS else ""
            table.add_row(head[0], head[1], name, f"{figure.mean:.2f}", *shown, head[2], bound)
            head = ("", "", "")
    console = terminal()
    console.print(table)
    console.print("\nAccuracy in percent; ± is a standard deviation.", style="dim")
    for name in RULES:
        if any(name in ledger.figures for ledger in ledgers):
            console.print(f"{name}: {_rule(name, ledgers)}.", style="dim", markup=False, soft_wrap=True)
    for told in dict.fromkeys(told for ledger in ledgers for told in ledger.notes):
        console.print(told, markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"Records, configuration and versions: {out}", markup=False, soft_wrap=True)


def _rule(name: str, ledgers: list[Ledger]) -> str:
    """What a figure is, where these trainings differ from the usual ones."""
    # Of the shortest trainings, where several are shown.
    rule = min(ledgers, key=lambda ledger: ledger.records[0].curves.num_epochs).rule(name)
    if name == "optimism" and not any("C" in ledger.figures for ledger in ledgers):
        return rule.replace("C minus", "C, the best of one epoch for all folds by mean test accuracy, minus")
    return rule
