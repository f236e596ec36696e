"""Results of cross-validations as a table, for ``graphcaps evaluate``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphcaps.cli.output import columns, print_table, terminal

if TYPE_CHECKING:
    from rich.table import Table

    from graphcaps.evaluation import Ledger
    from graphcaps.evaluation.committee_results import CommitteeResults
    from graphcaps.evaluation.epoch_selection import AccuracyEstimate, MetricEstimate
    from graphcaps.evaluation.mixture_results import MixtureResults

__all__ = ["show_ledgers"]


def show_ledgers(
    ledgers: list[Ledger],
    baselines: dict[str, list[Ledger]],
    committees: dict[str, CommitteeResults],
    mixtures: dict[str, MixtureResults],
    out: Path | None,
) -> None:
    """Prints one line per result, those of committees, companions and simple models below each data set, and rules."""
    from graphcaps.evaluation import RULES

    several_seeds = any(len(figure.seeds) > 1 for ledger in ledgers for figure in ledger.estimates.values())
    spreads = _Spreads(several_seeds, any(len(ledger.divisions) > 1 for ledger in ledgers))
    unit = "splits" if all(ledger.is_repeated_split for ledger in ledgers) else "folds"
    numbers = ("mean", f"± {unit}", *spreads.titles, "seconds")
    table = columns("data set", "model", "result", *numbers, "", right=numbers)
    for ledger in ledgers:
        _add_rows(table, ledger, ledger.dataset, spreads)
        if ledger.dataset in committees:
            _add_committee_rows(table, committees[ledger.dataset], spreads)
        if ledger.dataset in mixtures:
            _add_mixture_rows(table, mixtures[ledger.dataset], spreads)
        for baseline in baselines.get(ledger.dataset, []):
            _add_rows(table, baseline, "", spreads)
    console = terminal()
    print_table(console, table)
    with_metrics = any(ledger.metrics for ledger in ledgers)
    more = " (balanced accuracy too); ROC-AUC, PR-AUC and MCC at the held-out epochs" if with_metrics else ""
    console.print(f"\nAccuracy in percent{more}; ± is a standard deviation.", style="dim", soft_wrap=True)
    if spreads.divisions:
        sentence = "± div.: of the means of the divisions, each with its own folds of all graphs."
        console.print(sentence, style="dim", soft_wrap=True)
    for name in RULES:
        if any(name in _shown(ledger) for ledger in ledgers):
            console.print(
                f"{name}: {_describe_rule(name, ledgers)}.", style="dim", markup=False, soft_wrap=True
            )
    for rule in dict.fromkeys(f"committee of {each.members}: {each.rule}." for each in committees.values()):
        console.print(rule, style="dim", soft_wrap=True)
    for rule in dict.fromkeys(f"{each.mixture.name}: {each.rule}." for each in mixtures.values()):
        console.print(rule, style="dim", markup=False, soft_wrap=True)
    if names := list(dict.fromkeys(each.variant for rows in baselines.values() for each in rows)):
        sentence = f"{', '.join(names)}: simple models on the same {unit}, with one seed."
        console.print(sentence, style="dim", soft_wrap=True)
    for ledger in ledgers:
        for sentence in ledger.cautions:
            name = f"{ledger.dataset}: " if len(ledgers) > 1 else ""
            console.print(f"{name}{sentence}", markup=False, soft_wrap=True)
    for sentence in dict.fromkeys(sentence for ledger in ledgers for sentence in ledger.notes):
        console.print(sentence, markup=False, soft_wrap=True)
    if out is not None:
        console.print(f"Records, configuration and versions: {out}", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class _Spreads:
    """Standard deviations in the table beside that over folds: over seeds and divisions, where there are several."""

    seeds: bool
    divisions: bool

    @property
    def titles(self) -> list[str]:
        return ["± seeds"] * self.seeds + ["± div."] * self.divisions

    def of(self, estimate: AccuracyEstimate | MetricEstimate | None) -> list[float | None]:
        """The deviations of an estimate, in the order of the columns."""
        if estimate is None:
            return [None] * (1 + len(self.titles))
        over_divisions = [estimate.std_divisions] * self.divisions
        return [estimate.std_folds, *[estimate.std_seeds] * self.seeds, *over_divisions]


def _add_rows(table: Table, ledger: Ledger, title: str, spreads: _Spreads) -> None:
    """Adds a row per result of a ledger, and of the held-out accuracy one per metric."""
    head = (title, ledger.variant, f"{ledger.seconds:.1f}")
    for name in _shown(ledger):
        figure = ledger.estimates[name]
        cells = ["–" if spread is None else f"{spread:.2f}" for spread in spreads.of(figure)]
        bound = "upper bound" if ledger.is_upper_bound(name) else ""
        table.add_row(head[0], head[1], name, f"{figure.mean:.2f}", *cells, head[2], bound)
        head = ("", "", "")
        has_metrics = name == "held-out" and ledger.variant != "majority"  # its scores rank nothing
        for cells in _metric_cells(ledger, spreads) if has_metrics else ():
            table.add_row("", "", *cells, "", "")


def _add_committee_rows(table: Table, committee: CommitteeResults, spreads: _Spreads) -> None:
    """Adds the held-out accuracy of the committees, and metrics of all test graphs, each beside its members' mean."""
    from graphcaps.evaluation.committee_results import POOLED_METRICS

    figure, alone = committee.accuracy, committee.member_accuracy
    cells = ["–" if spread is None else f"{100 * spread:.2f}" for spread in spreads.of(figure)]
    remark = f"members {100 * alone.mean:.2f}"
    table.add_row("", "", f"committee of {committee.members}", f"{100 * figure.mean:.2f}", *cells, "", remark)
    for name, title in POOLED_METRICS.items():
        values = (committee.pooled[name], committee.member_pooled[name])
        mean, of_members = ("–" if value is None else f"{value:.3f}" for value in values)
        table.add_row("", "", f"  {title}", mean, *[""] * len(cells), "", f"members {of_members}")


def _add_mixture_rows(table: Table, results: MixtureResults, spreads: _Spreads) -> None:
    """Adds the held-out results of each part and of the mixture: accuracy, then log loss and ECE of all test graphs."""
    from graphcaps.evaluation.committee_results import POOLED_METRICS

    weights = [f"weight {weight:.2f}" for weight in results.mean_weights]
    committee = f"committee of {results.members} alone" if results.members > 1 else ""
    for part, remark in zip((*results.parts, results.mixture), (*weights, ""), strict=True):
        figure = part.accuracy
        cells = ["–" if spread is None else f"{100 * spread:.2f}" for spread in spreads.of(figure)]
        is_mixture = part is results.mixture
        seconds = f"{results.seconds:.1f}" if is_mixture else ""
        title = part.name if is_mixture else f"{part.name} alone"
        title = committee if committee and part is results.parts[0] else title
        table.add_row("", "", title, f"{100 * figure.mean:.2f}", *cells, seconds, remark)
        for name, heading in POOLED_METRICS.items():
            value = part.pooled[name]
            shown = "–" if value is None else f"{value:.3f}"
            table.add_row("", "", f"  {heading}", shown, *[""] * len(cells), "", "")


def _metric_cells(ledger: Ledger, spreads: _Spreads) -> Iterator[list[str]]:
    """Name, mean and deviations of each metric at the held-out epochs; a dash where it is not defined."""
    from graphcaps.evaluation.fold_metrics import FOLD_METRICS

    for name, estimate in ledger.metrics.items():
        # Accuracies are in percent, as those above them.
        scale, digits = (100, 2) if name == "balanced_accuracy" else (1, 3)
        values = [None if estimate is None else estimate.mean, *spreads.of(estimate)]
        cells = ["–" if value is None else f"{scale * value:.{digits}f}" for value in values]
        yield [f"  {FOLD_METRICS[name]}", *cells]


def _shown(ledger: Ledger) -> list[str]:
    """Names of the results in the table; where there is one epoch, C* and optimism say nothing more than the others."""
    names = [*ledger.estimates]
    return names if ledger.selects_epochs else [name for name in names if name not in ("C*", "optimism")]


def _describe_rule(name: str, ledgers: list[Ledger]) -> str:
    """The rule of a result, as the shortest training applied it."""
    rule = min(ledgers, key=lambda ledger: ledger.records[0].curves.num_epochs).rule(name)
    if name == "optimism" and not any("C" in ledger.estimates for ledger in ledgers):
        return rule.replace("C minus", "C, the best of one epoch for all folds by mean test accuracy, minus")
    return rule
