"""A comparison as tables: cells of text for a terminal or a page, Markdown and LaTeX."""

from __future__ import annotations

import re
from dataclasses import dataclass

from graphcaps.comparison.comparison import Comparison, TestedDifference
from graphcaps.evaluation.ledger import Ledger

__all__ = [
    "ComparisonTable",
    "dataset_table",
    "explanations",
    "format_difference",
    "format_p",
    "latex",
    "learning_warnings",
    "markdown",
    "matrix_tables",
    "rank_sentence",
    "record_notes",
]

DASH = "–"
_MAX_MARKED = 3  # data sets named in the row of a model
_MATRICES = {
    "Held-out accuracy": "held-out",
    "Held-out accuracy without twins": "twin-free",
    "C, an upper bound chosen on test data": "C",
}


@dataclass(frozen=True)
class ComparisonTable:
    """A table of text.

    Args:
        title (str): Heading.
        head (tuple): Name of each column; the first column holds names of models, the others numbers.
        rows (tuple): Cells of each row.
        failures (tuple): Model and reason of each row that has no numbers.
        marks (tuple): Model and a few words for each row whose numbers say little, such as "hardly learned".
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    failures: tuple[tuple[str, str], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()


def dataset_table(comparison: Comparison, dataset: str) -> ComparisonTable:
    """The models on one data set, the highest held-out accuracy (or C) first, those that failed last.

    Args:
        comparison (Comparison): The results.
        dataset (str): One of its data sets.
    """
    ledgers = {
        model: ledger
        for model in comparison.models
        if (ledger := comparison.ledger(dataset, model)) is not None
    }
    has = {
        name: any(name in ledger.estimates for ledger in ledgers.values()) for name in ("held-out", "C", "C*")
    }
    several_seeds = any(
        len(each.seeds) > 1 for ledger in ledgers.values() for each in ledger.estimates.values()
    )
    tests = comparison.tests(dataset)
    unit = "splits" if any(ledger.is_repeated_split for ledger in ledgers.values()) else "folds"
    head = ["model"]
    if has["held-out"]:
        head += ["held-out", f"± {unit}", *(["± seeds"] if several_seeds else []), "twin-free"]
    head += [f"{name}, upper bound" for name in ("C", "C*") if has[name]]
    head += [f"vs {comparison.baseline}", "p"] if tests else []
    head += ["seconds", "memory GB"]
    rows = []
    for model in sorted(ledgers, key=lambda name: -_order(ledgers[name])):
        ledger, row = ledgers[model], [model]
        if has["held-out"]:
            row += _held_out_cells(ledger, several_seeds)
        row += [_mean(ledger, name) for name in ("C", "C*") if has[name]]
        row += [format_difference(tests.get(model)), format_p(tests.get(model))] if tests else []
        row += [_seconds(ledger), _memory(ledger)]
        rows.append(tuple(row))
    failed = [cell for cell in comparison.failures if cell.dataset == dataset]
    failures = tuple((cell.model, cell.failure) for cell in failed)
    warned = (cell for cell in comparison.cells.values() if cell.dataset == dataset and cell.warning)
    marks = tuple((cell.model, "hardly learned") for cell in warned)
    return ComparisonTable(dataset, tuple(head), tuple(rows), failures, marks)


def matrix_tables(comparison: Comparison) -> list[ComparisonTable]:
    """Models by data sets: held-out accuracy with mean ranks, the same without twins, and C, where they are measured.

    Args:
        comparison (Comparison): The results.
    """
    ranks = comparison.ranks
    mean_ranks = {} if ranks is None else dict(zip(ranks.models, ranks.ranks, strict=True))
    order = [*mean_ranks, *(model for model in comparison.models if model not in mean_ranks)]
    tables = []
    for title, name in _MATRICES.items():
        rows = [
            (model, *(_cell(comparison, dataset, model, name) for dataset in comparison.datasets))
            for model in order
        ]
        if not any(_is_number(cell) for _, *cells in rows for cell in cells):
            continue
        head: tuple[str, ...] = ("model", *comparison.datasets)
        if name == "held-out" and mean_ranks:
            head = (*head, "mean rank")
            rows = [(*row, f"{mean_ranks[row[0]]:.2f}" if row[0] in mean_ranks else DASH) for row in rows]
        tables.append(ComparisonTable(title, head, tuple(rows), marks=_matrix_marks(comparison)))
    return tables


def _matrix_marks(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Each model that has hardly learned on some data sets, and these; their number if there are more than three."""
    datasets: dict[str, list[str]] = {}
    for cell in comparison.cells.values():
        if cell.warning:
            datasets.setdefault(cell.model, []).append(cell.dataset)
    where = {
        model: ", ".join(names) if len(names) <= _MAX_MARKED else f"{len(names)} data sets"
        for model, names in datasets.items()
    }
    return tuple((model, f"hardly learned on {words}") for model, words in where.items())


def rank_sentence(comparison: Comparison) -> str:
    """The mean ranks in words; "" without ranks."""
    ranks = comparison.ranks
    if ranks is None:
        return ""
    p = "p < 0.001" if ranks.p < 0.001 else f"p = {ranks.p:.3f}"
    listed = ", ".join(f"{model} {rank:.2f}" for model, rank in zip(ranks.models, ranks.ranks, strict=True))
    left_out = (
        f" Left out, since they lack a data set: {', '.join(ranks.left_out)}." if ranks.left_out else ""
    )
    return (
        f"Mean ranks over {len(ranks.datasets)} data sets: {listed}. Two models differ significantly if their mean "
        f"ranks are at least {ranks.critical_difference:.2f} apart (Nemenyi, level 0.05; Friedman {p}).{left_out}"
    )


def explanations(comparison: Comparison) -> list[str]:
    """What the columns mean, a sentence each, for what the comparison has."""
    ledgers = comparison.ledgers
    unit = "splits" if any(ledger.is_repeated_split for ledger in ledgers) else "folds"
    sentences = ["Accuracy in percent; ± is a standard deviation."]
    if any("held-out" in ledger.estimates for ledger in ledgers):
        sentences.append("held-out: the epoch is chosen on validation data, never on test data.")
        shares = [share for ledger in ledgers if (share := ledger.twin_share) is not None]
        largest = (
            f" (up to {100 * max(shares):.0f} % here)" if shares and len(comparison.datasets) > 1 else ""
        )
        if len(comparison.datasets) == 1 and shares:
            largest = f" ({100 * max(shares):.0f} % here)"
        sentences.append(
            "twin-free: held-out accuracy without the test graphs that a Weisfeiler-Lehman test cannot tell apart "
            f"from a training or validation graph{largest}; over all {unit} together, since one may have few such "
            f"graphs, where held-out is the mean over {unit}."
        )
    if any("C" in ledger.estimates for ledger in ledgers):
        sentences.append(
            "C and C* choose the epoch on test data and are upper bounds; for models without epochs nothing is chosen."
        )
    if any(comparison.tests(dataset) for dataset in comparison.datasets):
        sentences.append(
            f"vs {comparison.baseline}: difference of held-out accuracies, * if the model differs at the level 0.05; "
            f"p: corrected paired t-test over {unit} (Nadeau and Bengio), adjusted by Holm's method over the models of "
            "a data set."
        )
    sentences.append(
        f"seconds and memory: training and evaluation of all {unit} and seeds; memory is the peak."
    )
    return sentences


def learning_warnings(comparison: Comparison) -> list[str]:
    """A sentence for each model that has hardly learned, so that its row says little about it.

    Args:
        comparison (Comparison): The results.
    """
    return [cell.warning for cell in comparison.cells.values() if cell.warning]


def record_notes(comparison: Comparison) -> list[str]:
    """Notes of the records, each once; those that differ in the name of the model only are one, with all names.

    Args:
        comparison (Comparison): The results.
    """
    models: dict[str, list[str]] = {}
    for ledger in comparison.ledgers:
        name = re.compile(rf"(?<![\w-]){re.escape(ledger.variant)}(?![\w-])")
        for note in ledger.notes:
            names = models.setdefault(name.sub("\0", note), [])
            names += [ledger.variant] if ledger.variant not in names else []
    return [note.replace("\0", ", ".join(names)) for note, names in models.items()]


def markdown(comparison: Comparison) -> str:
    """All tables in Markdown, below the warnings."""
    parts = [f"**Caution.** {_escaped(warning)}\n" for warning in learning_warnings(comparison)]
    for table in _tables(comparison):
        lines = [f"| {' | '.join(row)} |" for row in (table.head, *_marked_rows(table))]
        lines.insert(1, f"|---|{'---:|' * (len(table.head) - 1)}")
        text = f"### {table.title}\n\n" + _escaped("\n".join(lines)) + "\n"
        text += "".join(f"\n{model}: {reason}\n" for model, reason in table.failures)
        parts.append(text)
    sentences = [*explanations(comparison), rank_sentence(comparison), *record_notes(comparison)]
    return "\n".join([*parts, _escaped(" ".join(filter(None, sentences))) + "\n"])


def latex(comparison: Comparison) -> str:
    """All tables in LaTeX; needs the package ``booktabs``."""
    parts = []
    for table in _tables(comparison):
        lines = [" & ".join(map(_tex, row)) + r" \\" for row in _marked_rows(table)]
        lines += [
            rf"{_tex(model)} & \multicolumn{{{len(table.head) - 1}}}{{l}}{{failed}} \\"
            for model, _ in table.failures
        ]
        columns = "l" + "r" * (len(table.head) - 1)
        parts.append(
            f"\\begin{{table}}\n\\caption{{{_tex(table.title)}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
            f"{' & '.join(map(_tex, table.head))} \\\\\n\\midrule\n" + "\n".join(lines) + "\n"
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
        )
    return "\n".join(parts)


def format_difference(tested: TestedDifference | None) -> str:
    """A difference to the baseline in points, with a star if it is significant."""
    if tested is None:
        return DASH
    return f"{round(tested.test.difference, 2) + 0.0:+.2f}{'*' if tested.is_significant else ''}"


def format_p(tested: TestedDifference | None) -> str:
    """An adjusted p-value in three digits."""
    if tested is None:
        return DASH
    return "<0.001" if tested.adjusted_p < 0.001 else f"{tested.adjusted_p:.3f}"


def _tables(comparison: Comparison) -> list[ComparisonTable]:
    overview = matrix_tables(comparison) if len(comparison.datasets) > 1 else []
    return [*overview, *(dataset_table(comparison, dataset) for dataset in comparison.datasets)]


def _escaped(text: str) -> str:
    """Text without emphasis by accident in Markdown."""
    return text.replace("*", "\\*")


def _marked_rows(table: ComparisonTable) -> list[tuple[str, ...]]:
    """The rows, with the mark of a model behind its name."""
    marks = dict(table.marks)
    return [(f"{row[0]} ({marks[row[0]]})" if row[0] in marks else row[0], *row[1:]) for row in table.rows]


def _order(ledger: Ledger) -> float:
    """Accuracy by which rows are sorted."""
    estimate = ledger.held_out or ledger.C
    return -1.0 if estimate is None else estimate.mean


def _held_out_cells(ledger: Ledger, several_seeds: bool) -> list[str]:
    estimate, twin_free = ledger.held_out, ledger.twin_free
    if estimate is None:
        return [DASH] * (4 if several_seeds else 3)
    spreads = [estimate.std_folds, *([estimate.std_seeds] if several_seeds else [])]
    cells = [f"{estimate.mean:.2f}", *(DASH if each is None else f"{each:.2f}" for each in spreads)]
    return [*cells, DASH if twin_free is None else f"{twin_free.mean:.2f}"]


def _mean(ledger: Ledger, name: str) -> str:
    return f"{ledger.estimates[name].mean:.2f}" if name in ledger.estimates else DASH


def _cell(comparison: Comparison, dataset: str, model: str, name: str) -> str:
    cell = comparison.cells.get((dataset, model))
    if cell is not None and cell.failure:
        return "failed"
    if cell is None or cell.ledger is None:
        return DASH
    if name == "twin-free":
        return DASH if cell.ledger.twin_free is None else f"{cell.ledger.twin_free.mean:.2f}"
    return _mean(cell.ledger, name)


def _is_number(text: str) -> bool:
    return text not in (DASH, "failed")


def _seconds(ledger: Ledger) -> str:
    return f"{ledger.seconds:.1f}"


def _memory(ledger: Ledger) -> str:
    return DASH if ledger.peak_memory is None else f"{ledger.peak_memory / 1e9:.2f}"


def _tex(text: str) -> str:
    for plain, written in (
        ("\\", "\\textbackslash{}"),
        ("_", "\\_"),
        ("%", "\\%"),
        ("&", "\\&"),
        ("#", "\\#"),
        ("±", "$\\pm$"),
        ("<", "$<$"),
        ("–", "--"),
        ("C*", "$C^*$"),
        ("*", "$^*$"),
    ):
        text = text.replace(plain, written) if plain != "*" or "C^*" not in text else text
    return text
