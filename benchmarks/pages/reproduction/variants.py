"""Ablations, sensitivity to K and R, and the formulation of the equations, compared with HGCN."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from benchmarks.pages.markdown import NOT_MEASURED, join_names, p_value, table
from benchmarks.pages.reproduction.hgcn_tables import Results, further, shown
from graphcaps.evaluation.epoch_selection import AccuracyEstimate
from graphcaps.evaluation.statistics import PairedTest, corrected_t_test, fold_ratio, holm
from graphcaps.reproduction.cells import ABLATIONS, VARIANTS
from graphcaps.reproduction.published import PublishedResult, paper_datasets, published

LEVEL = 0.05
SENSITIVITY = tuple(v.row for v in VARIANTS if v.row[:2] in ("K=", "R="))
TOLERANCE = 0.005
"""Points up to which two ranges count as equal: both are sums of rounded accuracies, shown with two decimals."""


@dataclass(frozen=True)
class AblationTest:
    """The full model compared with one ablation on a data set, held out.

    Args:
        dataset (str): Name of the data set.
        full, other (ndarray): Accuracy in percent of the seeds that both have, ``[S, F]``.
        test (PairedTest): Test of full minus other.
        adjusted (float): Holm's p among the data sets of this ablation.
        stuck (tuple): Stuck trainings of the full model and of the other, and the number of trainings.
    """

    dataset: str
    full: np.ndarray
    other: np.ndarray
    test: PairedTest
    adjusted: float
    stuck: tuple[int, int, int]

    @property
    def significant(self) -> bool:
        return self.adjusted < LEVEL


def of_tables_3_and_4(row: str, dataset: str) -> PublishedResult | None:
    """The published result in the table that holds the data set."""
    return published(3, row, dataset) or published(4, row, dataset)


def ablation_tests(results: Results, row: str) -> list[AblationTest]:
    """Tests on every data set where both were trained held out."""
    pairs = []
    for name in paper_datasets():
        full, other = (results.folds(name, variant, "held-out") for variant in ("hgcn", row))
        S = min(len(full), len(other))
        if S:
            pairs.append((name, full[:S], other[:S]))
    tests = [corrected_t_test(full / 100, other / 100, fold_ratio(full.shape[1])) for _, full, other in pairs]
    compared = []
    for (name, full, other), test, adjusted in zip(pairs, tests, holm([t.p for t in tests]), strict=True):
        (a, total), (b, _) = (results.stuck(name, v, "held-out", len(full)) for v in ("hgcn", row))
        compared.append(AblationTest(name, full, other, test, adjusted, (a, b, total)))
    return compared


def ablations(results: Results) -> str:
    """A table for each ablation, and a summary of it."""
    what = {variant.row: variant.what for variant in VARIANTS}
    parts = []
    for row in ABLATIONS:
        tests = ablation_tests(results, row)
        head = (
            *("data set", "seeds", "full model", row, "difference", "95 % interval", "p", "p, Holm"),
            "stuck",
        )
        rows = [
            (
                *(e.dataset, f"{len(e.full)}", f"{e.full.mean():.2f}", f"{e.other.mean():.2f}"),
                *(f"**{e.test.difference:+.2f}**", "{:+.2f} to {:+.2f}".format(*e.test.interval)),
                *(p_value(e.test.p), p_value(e.adjusted), f"{e.stuck[0]} and {e.stuck[1]} of {e.stuck[2]}"),
            )
            for e in tests
        ]
        shows = table(head, rows) if rows else f"*{NOT_MEASURED.capitalize()}.*"
        parts.append(f"### {row}: {what[row]}\n\n{shows}\n\n{_summary(row, tests)}")
    return "\n\n".join(parts)


def _summary(row: str, tests: list[AblationTest]) -> str:
    """The result of the tests, and the published difference."""
    pairs = [(of_tables_3_and_4("Ours", name), of_tables_3_and_4(row, name)) for name in paper_datasets()]
    gaps = [full.mean - other.mean for full, other in pairs if full is not None and other is not None]
    ahead = sum(gap > 0 for gap in gaps)
    paper = (
        f"In the paper, by C and with one run each, the full model is ahead on {ahead} of {len(gaps)}, "
        f"by {np.mean(gaps):.2f} points in the mean."
    )
    if not tests:
        return paper
    better = [e for e in tests if e.significant and e.test.difference > 0]
    worse = [e for e in tests if e.significant and e.test.difference < 0]
    left = [e for e in tests if not e.significant]
    sentences = []
    if better:
        named = join_names(f"{e.dataset} ({e.test.difference:+.2f})" for e in better)
        sentences.append(
            f"Held out, the full model is better on {len(better)} of {len(tests)} sets: {named}."
        )
    if worse:
        named = join_names(f"{e.dataset} ({e.test.difference:+.2f})" for e in worse)
        sentences.append(f"Held out, the full model is worse on {len(worse)} of {len(tests)} sets: {named}.")
    if left:
        where = (
            f"any of the {len(tests)} sets"
            if len(left) == len(tests)
            else join_names(e.dataset for e in left)
        )
        low, high = min(e.test.interval[0] for e in left), max(e.test.interval[1] for e in left)
        signs = sum(e.test.difference > 0 for e in left)
        sentences.append(
            f"Held out, the difference is not significant on {where}: the full model is ahead on {signs} of these "
            f"{len(left)}, and the intervals reach from {low:+.1f} to {high:+.1f} points, so neither equality nor a "
            "difference of such a size is shown."
        )
        alone = [e.dataset for e in left if e.test.p < LEVEL]
        if alone:
            sentences.append(f"Without Holm's correction, p is below 5 % on {join_names(alone)}.")
    needed = (
        f"is shown here on {join_names(e.dataset for e in better)} only" if better else "is not shown here"
    )
    return " ".join([*sentences, paper, f"That the component removed in {row} is needed {needed}."])


def sensitivity(results: Results) -> str:
    """K and R by C, each minus HGCN's mean over seeds; the paper's difference in parentheses."""
    names = [n for n in paper_datasets() if any(len(results.seeds(n, row, "C")) for row in SENSITIVITY)]
    if not names:
        return f"*{NOT_MEASURED.capitalize()}.*"
    rows = []
    for row in SENSITIVITY:
        cells = []
        for name in names:
            variant_seeds, full = results.seeds(name, row, "C"), results.seeds(name, "hgcn", "C")
            paper, ours = (of_tables_3_and_4(each, name) for each in (row, "Ours"))
            assert paper is not None
            assert ours is not None
            gap = f"({paper.mean - ours.mean:+.2f})"
            if not len(variant_seeds) or len(full) < 2:
                cells.append(f"{NOT_MEASURED} {gap}")
                continue
            far = abs(variant_seeds[0] - full.mean()) > further(full)
            text = f"{variant_seeds[0] - full.mean():+.2f}"
            cells.append(f"{f'**{text}**' if far else text} {gap}")
        rows.append((row, *cells))
    yard = [results.seeds(name, "hgcn", "C") for name in names]
    rows.append(("one more seed, 95 %", *(f"± {further(s):.2f}" if len(s) > 1 else "–" for s in yard)))
    return table(("row", *names), rows)


def expected_range(values: np.ndarray, count: int) -> float:
    """Mean range (largest minus smallest) over all subsets of ``count`` values."""
    return float(np.mean([max(part) - min(part) for part in combinations(values.tolist(), count)]))


def spread_over(results: Results, letter: str) -> str:
    """Range over the values of K (or R), over as many seeds of the full model, and in the paper."""
    rows = [row for row in SENSITIVITY if row.startswith(letter)]
    ours, seeds, names, counts = [], [], [], set[int]()
    for name in paper_datasets():
        full = results.seeds(name, "hgcn", "C")
        others = [results.seeds(name, row, "C") for row in rows]
        if len(full) > len(rows) and all(len(each) for each in others):
            counts.add(len(full))
            values = [full[0], *(each[0] for each in others)]
            ours.append(max(values) - min(values))
            seeds.append(expected_range(full, len(values)))
            names.append(name)
    published_ranges = []
    for name in paper_datasets():
        cells = [of_tables_3_and_4(row, name) for row in ("Ours", *rows)]
        means = [cell.mean for cell in cells if cell is not None]
        published_ranges.append(max(means) - min(means))
    paper = (
        f"in the paper's tables 3 and 4, over all {len(published_ranges)}, {np.mean(published_ranges):.2f}"
    )
    count = len(rows) + 1
    if not names:
        return f"The {count} values of {letter} are not all measured on any data set; {paper}."
    wider = [name for name, own, seed in zip(names, ours, seeds, strict=True) if own > seed + TOLERANCE]
    most = int(np.argmax(ours))
    named = f" ({join_names(wider)})" if wider else ""
    return (
        f"The range over the {count} values of {letter} (seed 0 each) is {np.mean(ours):.2f} points in the mean over "
        f"the {len(names)} data sets that have them all (at most {ours[most]:.2f}, {names[most]}); "
        f"{_of_seeds(count, counts)} is {np.mean(seeds):.2f} on the same data sets; {paper}. The range over {letter} "
        f"is wider than that over seeds on {len(wider)} of {len(names)}{named}."
    )


def _of_seeds(count: int, seeds: set[int]) -> str:
    """What the range over as many seeds is a mean of."""
    stored = join_names(f"{each}" for each in sorted(seeds))
    if seeds == {count}:
        return f"the range over the {stored} seeds of one model"
    return f"the range over {count} of the {stored} seeds of one model, averaged over all choices of them,"


def formulations(results: Results) -> str:
    """The released formulation and that of the equations, on the seeds that both have."""
    rows = []
    for name in paper_datasets():
        for rule in ("C", "held-out"):
            full, other = (results.folds(name, variant, rule) for variant in ("hgcn", "equations"))
            S = min(len(full), len(other))
            if not S:
                continue
            texts = [shown(_figure(each[:S])) for each in (full, other)]
            ratio = fold_ratio(full.shape[1], "paper" if rule == "C" else "held-out")
            test = corrected_t_test(other[:S] / 100, full[:S] / 100, ratio)
            judged = (
                ("{:+.2f} to {:+.2f}".format(*test.interval), p_value(test.p))
                if rule == "held-out"
                else ("–", "–")
            )
            rows.append((name, rule, f"{S}", *texts, f"**{test.difference:+.2f}**", *judged))
    head = ("data set", "criterion", "seeds", "released", "equations", "difference", "95 % interval", "p")
    return table(head, rows) if rows else f"*{NOT_MEASURED.capitalize()}.*"


def _figure(folds: np.ndarray) -> AccuracyEstimate:
    """Mean and standard deviations of ``[S, F]`` accuracies in percent."""
    means = folds.mean(1)
    spread = float(means.std(ddof=1)) if len(means) > 1 else None
    return AccuracyEstimate(
        float(means.mean()), float(folds.std(1, ddof=1).mean()), spread, tuple(range(len(means)))
    )
