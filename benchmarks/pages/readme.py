"""Numbers of ``README.md``, from ``reproduction``, ``comparison``, ``reach``, ``parts.json``, ``performance.json``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure_training_speed import measurement_names
from benchmarks.pages import forest, parts
from benchmarks.pages.markdown import fixed
from graphcaps.bench import read_measurements
from graphcaps.evaluation import ResultsStore
from graphcaps.reproduction.published import published_hgcn

SHORT = {"IMDB-BINARY": "IMDB-B", "IMDB-MULTI": "IMDB-M", "REDDIT-BINARY": "REDDIT-B"}


def statements(root: Path) -> list[str]:
    """Rows of the table of results, in the order of its head, the time of the paper's row, and where a forest leads."""
    ledgers = ResultsStore(root / "results" / "reproduction").ledgers()
    hgcn = {ledger.dataset: ledger for ledger in ledgers if ledger.variant == "hgcn"}
    text = (root / "README.md").read_text("utf-8")
    heads = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| | ")
    ]
    full = {short: name for name, short in SHORT.items()}
    names = next(
        columns for head in heads if {*(columns := [full.get(cell, cell) for cell in head[1:]])} == {*hgcn}
    )
    rows = [[fixed(hgcn[name].estimates[rule].mean, 1) for name in names] for rule in ("held-out", "C")]
    rows.append([fixed(published_hgcn(name, "C").mean, 1) for name in names])
    accuracies = forest.forest_accuracies(root)
    rows.append([fixed(accuracies[name], 1) for name in names])
    best = forest.best_cells(root)
    for part in (forest.FOREST, "mixture"):  # on the same divisions
        rows.append([fixed(forest.mean_accuracy(best[name], part), 1) for name in names])
    row_name = measurement_names("paper", 1, "tf32")[1]
    (row,) = [
        each for each in read_measurements(root / "results/performance.json") if each["what"] == row_name
    ]
    phrases = [f" | {' | '.join(cells)} |" for cells in rows]
    agreement = parts.read(root)
    models = ("HGCN", "parts='blocks'", "parts='blocks', best of 8")
    means = [agreement[name]["mean"] for name in models]
    (plain, blocks, best_of), everywhere = ([mean[name] for mean in means] for name in ("nmi", "nmi_all"))
    return [
        *phrases,
        f"{row['value']:.0f} s",
        forest.summary(forest.differences(root)),
        forest.best_summary(best),
        forest.forest_significance(best),
        f"normalised mutual information is {plain:.2f} of 1 within a graph and {everywhere[0]:.2f} over all graphs",
        f"({agreement[parts.GROUPS]['mean']['nmi']:.2f} without any model)",
        f"raises it to {blocks:.2f}, and the best of eight restarts (`--restarts 8`) to {best_of:.2f}, "
        f"over all graphs to {everywhere[1]:.2f} and {everywhere[2]:.2f}",
    ]
