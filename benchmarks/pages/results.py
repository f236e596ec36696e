"""``results/README.md``: accuracies of HGCN next to the published ones, and the times of whole trainings."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure_training_speed import PAPER
from benchmarks.pages.markdown import DASH, fill_template, join_names, mean_std, table
from graphcaps.evaluation import Ledger, ResultsStore, SeedRecord
from graphcaps.reproduction.published import published_hgcn

ROW = "HGCN row of tables 1 and 2"
WHOLE_TRAINING = rf"{ROW}|HGCN, .*: training and evaluation$|\d+ epochs of"


def page(root: Path) -> str:
    """The page; ``root`` is the root of the repository."""
    results = root / "results"
    ledgers = {ledger.dataset: ledger for ledger in ResultsStore(results / "paper").ledgers()}
    speed = json.loads((results / "performance.json").read_text("utf-8"))
    seeds = sorted({seed for ledger in ledgers.values() for seed in ledger.held_out.seeds})
    # Both protocols of the records ran at one commit; only the row of "paper" was timed again later.
    (commit,) = {e["versions"]["commit"] for e in speed if e["what"].startswith(f"{ROW}, held-out, start-up")}
    reproduction = ResultsStore(results / "reproduction")
    many = {ledger.dataset: ledger for ledger in reproduction.ledgers() if ledger.variant == "hgcn"}
    values = {
        "seeds": "seed 0" if seeds == [0] else f"seeds {seeds[0]} to {seeds[-1]}",
        "hardware": " and ".join(sorted({ledger.hardware for ledger in ledgers.values()})),
        "paper": paper_table([ledgers[name] for name in PAPER]),
        "commit": commit[:12],
        "count": f"{len(reproduction.records())}",
        "five": five_seeds_table([many[name] for name in PAPER]),
        "newer": many["MUTAG"].of("paper")[0].versions["commit"][:12],  # the row was timed again later
        "others": other_commits(reproduction.records()),
        "speed": table(
            ("what", "data set", "device", "value", "date", "commit"),
            [
                (
                    *(
                        e["what"],
                        e["dataset"],
                        e["hardware"],
                        f"{e['value']} {e['unit']}",
                        e.get("date", DASH),
                    ),
                    e["versions"].get("commit", DASH)[:12],
                )
                for e in speed
                if re.match(WHOLE_TRAINING, e["what"])
            ],
        ),
    }
    return fill_template("results", values)


def other_commits(records: Iterable[SeedRecord]) -> str:
    """Commits of the records that are not HGCN's row by C, with the number of records of each."""
    others = [each for each in records if (each.key.variant, each.key.protocol) != ("hgcn", "paper")]
    counts = Counter(each.versions["commit"][:12] for each in others).most_common()
    return join_names(f"{count} at commit {commit}" for commit, count in counts)


def paper_table(ledgers: list[Ledger]) -> str:
    """One seed: mean and standard deviation over folds."""
    rows = []
    for ledger in ledgers:
        shown = {
            name: mean_std(estimate.mean, estimate.std_folds) for name, estimate in ledger.estimates.items()
        }
        paper = [f"{published_hgcn(ledger.dataset, rule).mean:.2f}" for rule in ("C", "C*")]
        cells = (f"**{shown['held-out']}**", f"{ledger.estimates['optimism'].mean:.2f}")
        rows.append(
            (ledger.dataset, *cells, shown["C"], paper[0], shown["C*"], paper[1], f"{ledger.seconds:.0f}")
        )
    head = ("data set", "held-out", "optimism", "C", "C of the paper", "C\\*", "C\\* of the paper", "seconds")
    return table(head, rows)


def five_seeds_table(ledgers: list[Ledger]) -> str:
    """Several seeds: mean and standard deviation over seeds."""
    rows = []
    for ledger in ledgers:
        held_out, optimism = ledger.estimates["held-out"], ledger.estimates["optimism"]
        cells = [ledger.dataset, f"**{mean_std(held_out.mean, held_out.std_seeds)}**", f"{optimism.mean:.2f}"]
        for rule in ("C", "C*"):
            ours, paper = ledger.estimates[rule], published_hgcn(ledger.dataset, rule).mean
            cells += [mean_std(ours.mean, ours.std_seeds), f"{paper:.2f}", f"{ours.mean - paper:+.2f}"]
        rows.append(cells)
    upper = ("C", "C of the paper", "difference", "C\\*", "C\\* of the paper", "difference")
    return table(("data set", "held-out", "optimism", *upper), rows)
