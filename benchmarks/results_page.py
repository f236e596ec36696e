"""Writes results/README.md: the ledger of the paper's data sets beside the published figures.

    python benchmarks/results_page.py

Every figure is computed from the records in results/paper; nothing is typed in.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from graphcaps.evaluation import Ledger, ResultsStore
from graphcaps.reproduction.published import published_hgcn

RESULTS = Path(__file__).resolve().parents[1] / "results"
ORDER = (
    *("MUTAG", "PTC_MR", "ENZYMES", "PROTEINS", "NCI1", "NCI109", "DD"),
    *("COLLAB", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY"),
)
ROW = "HGCN row of tables 1 and 2"
WHOLE = rf"{ROW}|HGCN, .*: training and evaluation$|\d+ epochs of"
HEAD = """# Results

What was measured, kept as records that `graphcaps` reads back. This page is written by
`python benchmarks/results_page.py` from the records; a test holds it to them.

## The paper's data sets (`results/paper`)
HGCN with the presets of the paper, ten folds, {seeds}. Accuracy in percent, ± a standard deviation over folds.
**held-out** is the honest figure: its epoch is chosen on a fold that neither trains nor tests. **C** and **C\\***
choose the epoch on the test folds, as the published figures do: upper bounds. **optimism** is what choosing on
the test folds is worth on the same training. Seconds are those of the training and evaluation of both protocols
on one {hardware}.

| data set | held-out | optimism | C | C of the paper | C\\* | C\\* of the paper | seconds |
|---|---|---|---|---|---|---|---|
"""
TAIL = """
Taken with `graphcaps evaluate {names} --preset paper --protocol {protocol} --device cuda --out results/paper` for
`paper` and for `held-out`. The records name the commit that the machine's checkout started from, with `+changes`;
the code that ran is commit {commit}.

## Five seeds, and the paper's other rows (`results/reproduction`)
HGCN under seeds 0 to 4, ten folds, both protocols, products in TF32. ± the standard deviation over seeds;
*difference* is ours less the paper's. {rows} records in all: ablations and sensitivity lie beside them, and
[docs/reproduction.md](../docs/reproduction.md) reads them. `graphcaps reproduce all --report` shows all tables.

| data set | held-out | optimism | C | C of the paper | difference | C\\* | C\\* of the paper | difference |
|---|---|---|---|---|---|---|---|---|
{five}
Seeds of C and C\\* were taken with `{command}`, commit {newer}; the rest with what is now
`graphcaps reproduce all --device cuda`, commit {newest}.

## Candidates for the defaults (`results/choosing`)
Trainings that `python benchmarks/choose_defaults.py` compared by their validation losses, one to three seeds each;
`summary.json` holds what it read, and [docs/defaults.md](../docs/defaults.md) what was chosen.
The commit in these records and in those below is the one whose package ran, written in afterwards: the machine had no
checkout of its own. The list of candidates was newer.

## The defaults, and edge labels (`results/defaults.json`, `results/edge-labels`)
What the preset `default` reaches in the ten held-out folds, five seeds, with its probabilities before and after
calibration (`defaults-first.json`: the default before it, three seeds; `defaults-beyond*.json`: both on the planted
parts); and the paper's preset with the labels of edges. [docs/defaults.md](../docs/defaults.md) reads all of them.

## Speed (`results/performance.json`)
One entry per figure, each with its command, hardware and versions. Whole trainings stand here, all of it in
[docs/performance.md](../docs/performance.md).

| what | data set | device | value |
|---|---|---|---|
"""


def row(ledger: Ledger) -> str:
    """One data set."""
    shown = {name: f"{figure.mean:.2f} ± {figure.std_folds:.2f}" for name, figure in ledger.figures.items()}
    paper = [f"{published_hgcn(ledger.dataset, rule).mean:.2f}" for rule in ("C", "C*")]
    cells = (
        *(ledger.dataset, f"**{shown['held-out']}**", f"{ledger.figures['optimism'].mean:.2f}"),
        *(shown["C"], paper[0], shown["C*"], paper[1], f"{ledger.seconds:.0f}"),
    )
    return f"| {' | '.join(cells)} |\n"


def upper_bounds(ledger: Ledger) -> str:
    """Figures of one data set over several seeds."""
    honest, worth = ledger.figures["held-out"], ledger.figures["optimism"]
    cells = [ledger.dataset, f"**{honest.mean:.2f} ± {honest.std_seeds:.2f}**", f"{worth.mean:.2f}"]
    for rule in ("C", "C*"):
        own, paper = ledger.figures[rule], published_hgcn(ledger.dataset, rule).mean
        cells += [f"{own.mean:.2f} ± {own.std_seeds:.2f}", f"{paper:.2f}", f"{own.mean - paper:+.2f}"]
    return f"| {' | '.join(cells)} |\n"


def page() -> str:
    """The whole page."""
    ledgers = {ledger.dataset: ledger for ledger in ResultsStore(RESULTS / "paper").ledgers()}
    speed = json.loads((RESULTS / "performance.json").read_text("utf-8"))
    seeds = sorted({seed for ledger in ledgers.values() for seed in ledger.held_out.seeds})
    counted = "seed 0" if seeds == [0] else f"seeds {seeds[0]} to {seeds[-1]}"
    hardware = " and ".join(sorted({ledger.hardware for ledger in ledgers.values()}))
    # Both protocols of the records ran at one commit; only the row of "paper" has been timed again since.
    (commit,) = {e["versions"]["commit"] for e in speed if e["what"].startswith(f"{ROW}, held-out, start-up")}
    text = HEAD.format(seeds=counted, hardware=hardware)
    text += "".join(row(ledgers[name]) for name in ORDER)
    whole = next(e for e in speed if e["what"].startswith(f"{ROW}, paper, 5 seeds, tf32"))
    kept = ResultsStore(RESULTS / "reproduction")
    many = {ledger.dataset: ledger for ledger in kept.ledgers() if ledger.variant == "hgcn"}
    newest = many["MUTAG"].of("held-out")[0].versions["commit"]
    text += TAIL.format(
        names="NAME…", protocol="…", commit=commit[:12],
        five="".join(upper_bounds(many[name]) for name in ORDER),
        command=whole["command"], newer=whole["versions"]["commit"][:12], newest=newest[:12],
        rows=len(kept.records()),
    )  # fmt: skip
    for entry in speed:
        if not re.match(WHOLE, entry["what"]):
            continue
        value = f"{entry['value']} {entry['unit']}"
        text += f"| {entry['what']} | {entry['dataset']} | {entry['hardware']} | {value} |\n"
    return text


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), "utf-8")
