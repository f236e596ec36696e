"""``docs/comparison.md``: all models on the paper's data sets, from the records of ``results/comparison``."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.measure_comparison import RESULTS, SETS, expand_models, read_failures
from benchmarks.measure_model_speed import EPOCHS, measurement_name
from benchmarks.pages.markdown import DASH, fill_template, fixed, join_names, mean_std, p_value, signed, table
from graphcaps.bench import read_measurements
from graphcaps.comparison.comparison import Comparison
from graphcaps.comparison.rank_diagram import rank_diagram
from graphcaps.evaluation import Ledger, ResultsStore
from graphcaps.models.lookup import find_classical_model
from graphcaps.reproduction.paper_systems import PAPER_SYSTEMS, PaperSystem, find_model_system
from graphcaps.reproduction.published import paper_datasets, published, systems

Accuracies = dict[tuple[str, str, str], tuple[float, float | None]]
"""Mean and standard deviation over folds, by data set, model and protocol."""

BASELINE = "hgcn"
ORDER = tuple(name for tier in SETS for name in tier)
GAP = 4.0
"""Points under the quoted value from which the page names a row; differences below it are counted."""
NOTHING = "No records are stored."
ADOPTED = "results/reproduction"
CLASSICAL = "results/classical.csv"
INDEPENDENT = "results/independent.csv"
UNTESTED = "†"
"""Marks accuracies of :data:`CLASSICAL`, which has no single folds and no twins."""
PERFORMANCE = "results/performance.json"
SPEED_DATASET = "NCI1"
AGREEMENT = 1.0
"""Points up to which two programs agree on a classical model."""


@cache
def comparison(root: Path) -> Comparison | None:
    """The comparison of all records; ``None`` without records."""
    results = ResultsStore(root / RESULTS)
    records = results.records()
    if not records:
        return None
    present = {record.key.variant for record in records}
    paper = [system.model for system in reversed(PAPER_SYSTEMS) if system.model in present]
    models = [*paper, *sorted(present - {*paper})]
    known = {record.key.dataset for record in records}
    return Comparison.from_results(results, datasets=[name for name in ORDER if name in known], models=models)


def page(root: Path) -> str:
    """The page; ``root`` is the root of the repository."""
    found = comparison(root)
    failures = read_failures(root / RESULTS)
    values = dict.fromkeys(
        (
            "hgcn_seeds",
            "small",
            "findings",
            "held_out",
            "twin_free",
            "twin_seeds",
            "upper_bounds",
            "training",
            "ranks",
            "cost",
            "speed",
            "quoted",
            "measured",
            "agreement",
        ),
        NOTHING,
    )
    if found is not None:
        classical = read_accuracies(root / CLASSICAL)
        values = {
            "hgcn_seeds": baseline_seeds(found),
            "small": small_differences(found),
            "findings": findings(found, classical),
            "held_out": _matrix(found, held_out_cell, spare=partial(spare_held_out, classical)),
            "twin_free": _matrix(found, twin_free_cell, last=twin_share, last_name="twins"),
            "twin_seeds": twin_seeds(found),
            "upper_bounds": _matrix(found, upper_bound_cell, spare=partial(spare_upper_bound, classical)),
            "training": _matrix(found, training_cell, mark_best=False),
            "ranks": ranks(found),
            "cost": cost(found),
            "speed": speed(root),
            "quoted": quoted(found),
            "measured": measured(found) + adopted(found, root),
            "agreement": agreement(found, root),
        }
    reasons = [f"- {name}: {reason}" for name, reason in sorted(failures.items())]
    values["failures"] = "\n".join(["", "## Failed", "", *reasons, ""]) if reasons else ""
    return fill_template("comparison", values)


def picture(root: Path) -> str:
    """The critical-difference picture of the models that have all data sets; empty without ranks."""
    found = comparison(root)
    ranked = None if found is None else complete(found).ranks
    return '<svg xmlns="http://www.w3.org/2000/svg"/>\n' if ranked is None else rank_diagram(ranked)


def baseline_seeds(found: Comparison) -> str:
    """The seeds of HGCN, the same on all data sets."""
    seeds = {
        tuple(sorted({each.key.seed for each in ledger.of("held-out")}))
        for ledger in found.ledgers
        if ledger.variant == BASELINE and ledger.held_out is not None
    }
    return " or ".join(f"the seeds {join_names(map(str, each))}" for each in sorted(seeds))


def small_differences(found: Comparison) -> str:
    """How many of the tested differences below :data:`GAP` points are significant."""
    tested = [each for dataset in found.datasets for each in found.tests(dataset).values()]
    small = [each for each in tested if abs(each.test.difference) < GAP]
    significant = sum(each.is_significant for each in small)
    return f"Of {len(small)} tested differences below {GAP:.0f} points, {significant} are significant."


def complete(found: Comparison) -> Comparison:
    """The data sets that the baseline has a held-out accuracy on; on others nothing can be compared."""
    datasets = [name for name in found.datasets if found.held_out(name, found.baseline) is not None]
    # Data sets that most models lack would leave few models in the ranks.
    counts = {
        name: sum(found.held_out(name, model) is not None for model in found.models) for name in datasets
    }
    most = max(counts.values(), default=0)
    kept = [name for name in datasets if counts[name] >= 0.5 * most]
    cells = [cell for (dataset, _), cell in found.cells.items() if dataset in kept]
    return Comparison(cells, baseline=found.baseline) if cells else found


def findings(found: Comparison, classical: Accuracies) -> str:
    """What beats HGCN on each data set, significantly or not, and how often."""
    lines, counted = [], complete(found).datasets
    ahead, beaten = 0, 0
    for dataset in found.datasets:
        base = found.held_out(dataset, BASELINE)
        if base is None:
            continue
        tests = found.tests(dataset)
        differences = {name: each.test.difference for name, each in tests.items()}
        untested = {
            f"{model}{UNTESTED}": mean - base
            for (name, model, protocol), (mean, _) in classical.items()
            if (name, protocol) == (dataset, "held-out") and model in found.models and model not in tests
        }
        differences |= untested
        higher = sorted(
            (name for name in differences if differences[name] > 0), key=lambda n: -differences[n]
        )
        sure = [name for name in higher if name in tests and tests[name].is_significant]
        worse = [name for name, each in tests.items() if each.is_significant and each.test.difference < 0]
        shown = [f"{name} {signed(differences[name], 1)}" for name in higher[:6]]
        more = f" and {len(higher) - 6} more" if len(higher) > 6 else ""
        ahead += dataset in counted and not higher
        beaten += dataset in counted and bool(sure)
        lines.append(
            (
                dataset,
                fixed(base, 1),
                str(len(differences)),
                (", ".join(shown) + more) or "none",
                ", ".join(sure) or "none",
                str(len(worse)),
            )
        )
    head = (
        "data set",
        "HGCN",
        "other models",
        "higher held-out accuracy",
        "of these significant",
        "significantly lower",
    )
    summary = (
        f"Most models are measured on {len(counted)} data sets: {join_names(counted)}. HGCN has the highest held-out "
        f"accuracy on {ahead or 'none'} of them. On {len(counted) - ahead} another model is higher, on "
        f"{beaten or 'none'} of them significantly."
    )
    return f"{summary}\n\n{table(head, lines)}"


def held_out_cell(ledger: Ledger, found: Comparison) -> str:
    """Mean ± standard deviation over folds; a star where it differs significantly from the baseline."""
    if ledger.held_out is None:
        return DASH
    tests = found.tests(ledger.dataset) if found.baseline == BASELINE else {}
    tested = tests.get(ledger.variant)
    star = "\\*" if tested is not None and tested.is_significant else ""
    return f"{mean_std(ledger.held_out.mean, ledger.held_out.std_folds, 1)}{star}"


def spare_held_out(classical: Accuracies, dataset: str, model: str) -> str:
    """The accuracy of the table of classical models, marked, for a cell without a record."""
    found = classical.get((dataset, model, "held-out"))
    return DASH if found is None else f"{mean_std(*found, 1)}{UNTESTED}"


def spare_upper_bound(classical: Accuracies, dataset: str, model: str) -> str:
    """As :func:`spare_held_out`, of the fit to nine folds, with the quoted value."""
    found = classical.get((dataset, model, "paper"))
    return DASH if found is None else f"{fixed(found[0], 1)}{UNTESTED}{_in_parentheses(model, dataset)}"


def _in_parentheses(model: str, dataset: str) -> str:
    quote = quoted_value(model, dataset)
    return "" if quote is None else f" ({fixed(quote, 1)})"


def twin_free_cell(ledger: Ledger, found: Comparison) -> str:
    return DASH if ledger.twin_free is None else fixed(ledger.twin_free.mean, 1)


def upper_bound_cell(ledger: Ledger, found: Comparison) -> str:
    """C, and the value that the paper quotes behind it."""
    if ledger.C is None:
        return DASH
    return f"{fixed(ledger.C.mean, 1)}{_in_parentheses(ledger.variant, ledger.dataset)}"


def training_cell(ledger: Ledger, found: Comparison) -> str:
    """Accuracy on the training graphs in the last epoch of the held-out trainings, mean over folds and seeds."""
    records = ledger.of("held-out")
    if not ledger.selects_epochs or not records:
        return DASH
    curves = [record.curves for record in records]
    shares = np.concatenate([each.train_right[:, -1] / each.train_graphs for each in curves])
    return fixed(100 * float(shares.mean()), 1)


def cost(found: Comparison) -> str:
    """Seconds of one seed of one protocol on each data set, the device, and the largest peak memory."""
    rows = []
    for model in found.models:
        ledgers = [found.ledger(dataset, model) for dataset in found.datasets]
        records = [record for each in ledgers if each is not None for record in each.records]
        devices = sorted(
            {"GPU" if "NVIDIA" in record.hardware else "CPU" for record in records}, reverse=True
        )
        peaks = [each.peak_memory for each in ledgers if each is not None and each.peak_memory is not None]
        seconds = [DASH if each is None else _seconds(each) for each in ledgers]
        memory = f"{max(peaks) / 1e9:.1f} GB" if peaks else DASH
        rows.append((_bold(model, model == BASELINE), " and ".join(devices), *seconds, memory))
    return table(("model", "device", *found.datasets, "peak memory"), rows)


def speed(root: Path) -> str:
    """Whole trainings of the networks, each alone on a GPU, from ``results/performance.json``; "" without any."""
    stored = {
        row["what"]: row
        for row in read_measurements(root / PERFORMANCE)
        if (row["dataset"], row["device"]) == (SPEED_DATASET, "cuda")
    }
    parts = {"training and evaluation": 1.0, "before the first epoch": 1.0, "peak memory": 1e-3}  # MB to GB
    rows, used = [], []
    for model in expand_models(["networks"]):
        name = measurement_name(model, EPOCHS, "tf32")
        found = [(stored.get(f"{name}: {part}"), scale) for part, scale in parts.items()]
        if found[0][0] is not None:
            used.append(found[0][0])
            rows.append(
                (model, *(DASH if row is None else f"{row['value'] * scale:.3g}" for row, scale in found))
            )
    if not rows:
        return ""
    hardware, dates, commands = (
        join_names(sorted({row[name] for row in used})) for name in ("hardware", "date", "command")
    )
    commits = join_names(sorted({row["versions"]["commit"][:12] for row in used}))
    head = ("network", "training and evaluation, s", "before the first epoch, s", "peak memory, GB")
    text = (
        f"Ten folds of {SPEED_DATASET} with {EPOCHS} epochs and an evaluation after each, every network alone on the "
        "GPU. The first epochs are timed, and every further one counts as the median of five."
    )
    source = (
        f"{hardware}, {dates}, commit {commits}; command: `{commands}`. [Performance](performance.md#on-one-h200) has "
        "the present times of HGCN."
    )
    return f"\n{text}\n\n{table(head, rows)}\n\n{source}\n"


def _seconds(ledger: Ledger) -> str:
    # Further seeds may have been trained together, which is faster. Of the protocols the faster counts, since other
    # programs on the same machine make a training slower.
    seconds = min(record.seconds for record in ledger.records if record.key.seed == 0)
    return f"{seconds:.0f}" if seconds >= 1 else f"{seconds:.1f}"


def quoted_value(model: str, dataset: str) -> float | None:
    """The accuracy of tables 1 and 2, or 5 and 6 for rows that only these have; ``None`` if there is none."""
    system = find_model_system(model)
    if system is None:
        return None
    for number in (1, 2, 5, 6):
        if system.row in systems(number) and (value := published(number, system.row, dataset)) is not None:
            return value.mean
    return None


@dataclass(frozen=True)
class QuotedGap:
    """A result that is more than :data:`GAP` points under the value that the paper quotes.

    Args:
        system (PaperSystem): The row of the paper.
        ledger (Ledger): Our results.
        ours, quoted (float): Our accuracy by the system's criterion, and the quoted one, in percent.
    """

    system: PaperSystem
    ledger: Ledger
    ours: float
    quoted: float


def quoted_gaps(found: Comparison) -> list[QuotedGap]:
    """The results that stay more than four points under the quoted value, by the selection behind that value."""
    gaps = []
    for model in found.models:
        system = find_model_system(model)
        for dataset in found.datasets:
            ledger, quote = found.ledger(dataset, model), quoted_value(model, dataset)
            if system is None or ledger is None or quote is None or dataset in system.slips:
                continue
            estimate = ledger.estimates.get(system.criterion)
            if estimate is not None and estimate.mean < quote - GAP:
                gaps.append(QuotedGap(system, ledger, estimate.mean, quote))
    return gaps


def quoted(found: Comparison) -> str:
    """The gaps, what was trained, and the disputes about the published values of these systems."""
    gaps = quoted_gaps(found)
    if not gaps:
        return "None."
    head = (
        "model",
        "data set",
        "criterion",
        "here",
        "quoted",
        "selection behind the quoted value",
        "trained",
    )
    rows = [
        (
            gap.system.model,
            gap.ledger.dataset,
            _escape(gap.system.criterion),
            fixed(gap.ours, 1),
            fixed(gap.quoted, 1),
            _escape(gap.system.protocol),
            _trained(gap.ledger),
        )
        for gap in gaps
    ]
    disputes = {gap.system.model: gap.system.disputes or "None known." for gap in gaps}
    listed = "\n".join(f"- **{model}**: {_escape(text)}" for model, text in disputes.items())
    return f"{table(head, rows)}\n\nWhat is known about the published values of these systems:\n\n{listed}"


def _trained(ledger: Ledger) -> str:
    """Settings, epochs and seeds of the records."""
    epochs = max(record.curves.num_epochs for record in ledger.records)
    seeds = len({record.key.seed for record in ledger.records})
    length = f", {epochs:,} epochs" if ledger.selects_epochs else ""
    return f"published settings{length}, {'one seed' if seeds == 1 else f'{seeds} seeds'}"


def _escape(text: str) -> str:
    return text.replace("*", "\\*")


def ranks(found: Comparison) -> str:
    """The ranks in words."""
    ranked = complete(found).ranks
    if ranked is None:
        return "Fewer than two data sets are complete."
    listed = ", ".join(f"{name} {rank:.1f}" for name, rank in zip(ranked.models, ranked.ranks, strict=True))
    left_out = f" Left out, since they lack one of these data sets: {', '.join(ranked.left_out)}." * bool(
        ranked.left_out
    )
    p = p_value(ranked.p)
    return (
        f"Data sets: {join_names(ranked.datasets)}. Mean ranks: {listed}. Critical difference "
        f"{ranked.critical_difference:.2f} (Nemenyi, level 0.05); Friedman p {p if p.startswith('<') else f'= {p}'}."
        f"{left_out}"
    )


def twin_share(found: Comparison, dataset: str) -> str:
    """Percentage of test graphs with a twin."""
    ledgers = [found.ledger(dataset, model) for model in found.models]
    shares = [each.twin_share for each in ledgers if each is not None and each.twin_share is not None]
    return f"{100 * shares[0]:.0f} %" if shares else DASH


def twin_seeds(found: Comparison) -> str:
    """Models whose accuracies without twins are of fewer seeds than their held-out accuracies; "" if there are none."""
    fewer = {}
    for ledger in found.ledgers:
        if ledger.twin_free is not None and ledger.held_out is not None:
            counted = ledger.twin_free.seeds
            if len(counted) < len(ledger.held_out.seeds):
                fewer[ledger.variant] = join_names(str(seed) for seed in counted)
    listed = join_names(f"those of {model} are of seed {seeds} alone" for model, seeds in fewer.items())
    return f" Twins were not counted in all records: {listed}." if fewer else ""


def measured(found: Comparison) -> str:
    """Number of records, seeds and hardware."""
    count = sum(len(ledger.records) for ledger in found.ledgers)
    hardware = "; ".join(sorted({each.hardware for ledger in found.ledgers for each in ledger.records}))
    several = [
        name
        for name in found.models
        if any(len({r.key.seed for r in each.records}) > 1 for each in found.ledgers if each.variant == name)
    ]
    seeds = f" Several seeds: {join_names(several)}; one seed for the others." if several else " One seed."
    missing = len(paper_datasets()) * len(found.models) - len(found.ledgers)
    rest = f" {missing} cells have no record ({DASH} or {UNTESTED})." if missing else ""
    return f"{count} records of {len(found.models)} models.{seeds}{rest} Hardware: {hardware}."


def adopted(found: Comparison, root: Path) -> str:
    """How many records are those of another study, in a sentence; "" if none is."""
    path = root / ADOPTED / "summary.csv"
    if not path.exists():
        return ""
    with path.open(encoding="utf-8", newline="") as file:
        names = ("dataset", "variant", "protocol", "seed", "finished")
        study = {tuple(row[name] for name in names) for row in csv.DictReader(file)}
    records = [record for ledger in found.ledgers for record in ledger.records]
    keys = [(each.key, each.finished) for each in records]
    same = sum((key.dataset, key.variant, key.protocol, str(key.seed), end) in study for key, end in keys)
    if not same:
        return ""
    return (
        f" {same} of the records, of HGCN, are those of the study of five seeds (`{ADOPTED}`): settings, folds and "
        "graphs are the same. Its seeds were trained together, so that a seed has a fifth of the time, and twins were "
        "not counted."
    )


def agreement(found: Comparison, root: Path) -> str:
    """Accuracies of classical models beside those of an independent program on the same folds."""
    here = {key: mean for key, (mean, _) in read_accuracies(root / CLASSICAL).items()}
    for ledger in found.ledgers:
        if ledger.C is not None and not ledger.selects_epochs:
            here.setdefault((ledger.dataset, ledger.variant, "paper"), ledger.C.mean)
    elsewhere = {key: mean for key, (mean, _) in read_accuracies(root / INDEPENDENT).items()}
    names = [name for name in ORDER if any(dataset == name for dataset, *_ in elsewhere)]
    rows = []
    for model in dict.fromkeys(model for _, model, _ in elsewhere):
        protocol = "refitted" if find_classical_model(model).selected_options else "paper"
        cells = []
        for name in names:
            ours, theirs = here.get((name, model, protocol)), elsewhere.get((name, model, ""))
            if ours is None or theirs is None:
                cells.append(DASH)
                continue
            text = f"{fixed(ours, 1)} ({signed(ours - theirs, 1)})"
            cells.append(_bold(text, abs(ours - theirs) > AGREEMENT))
        rows.append((model, *cells))
    if not rows:
        return "None."
    kernels = sorted({model for _, model, protocol in here if protocol == "refitted"})
    changes = {
        (name, model): (here[name, model, "held-out"], here[name, model, "refitted"])
        for model in kernels
        for name in names
        if {(name, model, "held-out"), (name, model, "refitted")} <= {*here}
    }
    largest = max(changes, key=lambda key: abs(changes[key][1] - changes[key][0]), default=None)
    example = ""
    if largest is not None:
        eight, nine = changes[largest]
        example = (
            f" The largest difference: `{largest[1]}` has {fixed(eight, 1)} on {largest[0]} with eight folds and "
            f"{fixed(nine, 1)} with nine."
        )
    return (
        f"{table(('model', *names), rows)}\n\nIn the tables above, kernels are not fitted again after the selection: "
        f"held-out accuracies of all models come from eight training folds.{example}{_seed_sentences(root / CLASSICAL)}"
    )


def read_accuracies(path: Path, seed: int = 0) -> Accuracies:
    """Accuracies with one seed of a table of classical models; the protocol is "" if the table has none."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["dataset"], row["model"], row.get("protocol", "")): (
                float(row["accuracy"]),
                float(row["std_folds"]) if "std_folds" in row else None,
            )
            for row in csv.DictReader(file)
            if int(row.get("seed", 0)) == seed
        }


def _seed_sentences(path: Path) -> str:
    """Accuracies of models that were measured with three seeds."""
    seeds = [read_accuracies(path, seed) for seed in range(3)]
    sentences = []
    for key in seeds[0]:
        if all(key in each for each in seeds):
            values = [fixed(each[key][0], 1) for each in seeds]
            sentences.append(f" With the seeds 0, 1 and 2, `{key[1]}` has {join_names(values)} on {key[0]}.")
    return "".join(sentences)


def _matrix(
    found: Comparison,
    cell: Callable[[Ledger, Comparison], str],
    *,
    last: Callable[[Comparison, str], str] | None = None,
    last_name: str = "",
    mark_best: bool = True,
    spare: Callable[[str, str], str] | None = None,
) -> str:
    """Models by data sets, a table for biological and one for social graphs, as in the paper; the best in bold.

    Args:
        found (Comparison): The results.
        cell (callable): Text of a model on a data set, from its ledger.
        last (callable, optional): Text of a last row, by data set. (default: no such row)
        last_name (str): Name of that row.
        mark_best (bool): Whether the cell with the largest number of a data set is bold. (default: ``True``)
        spare (callable, optional): Text of a cell by data set and model, where ``cell`` has none. (default: a dash)
    """
    parts = []
    for title, names in _kinds(found).items():
        columns = {name: _column(found, name, cell, mark_best, spare) for name in names}
        # A model without a number in this table has no row in it.
        models = [model for model in found.models if any(columns[name][model] != DASH for name in names)]
        rows = [
            (_bold(model, model == BASELINE), *(columns[name][model] for name in names)) for model in models
        ]
        if not rows:
            continue
        if last is not None:
            rows.append((f"*{last_name}*", *(last(found, name) for name in names)))
        parts.append(f"{title}:\n\n{table(('model', *names), rows)}")
    return "\n\n".join(parts)


def _kinds(found: Comparison) -> dict[str, list[str]]:
    """The data sets of table 1 and of table 2 of the paper, where there are results."""
    kinds = {"Biological graphs": 1, "Social graphs": 2}
    listed = {
        title: [name for name in found.datasets if published(number, "Ours", name) is not None]
        for title, number in kinds.items()
    }
    return {title: names for title, names in listed.items() if names}


def _column(
    found: Comparison,
    dataset: str,
    cell: Callable[[Ledger, Comparison], str],
    mark_best: bool,
    spare: Callable[[str, str], str] | None,
) -> dict[str, str]:
    texts = {}
    for model in found.models:
        ledger = found.ledger(dataset, model)
        text = DASH if ledger is None else cell(ledger, found)
        texts[model] = spare(dataset, model) if text == DASH and spare is not None else text
    numbers = {
        model: float(text.split()[0].rstrip(f"\\*{UNTESTED}"))
        for model, text in texts.items()
        if text != DASH
    }
    best = max(numbers.values(), default=None) if mark_best and len(numbers) > 1 else None
    return {model: _bold(text, numbers.get(model) == best is not None) for model, text in texts.items()}


def _bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold else text
