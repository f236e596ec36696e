"""Builds all pages from the stored results, or checks that they are current.

    python -m benchmarks.pages              # writes all pages (make pages)
    python -m benchmarks.pages --check      # writes nothing; exit code 1 and a list if a page is not current
    python -m benchmarks.pages performance  # only pages whose path contains the word

Whole pages are templates filled with computed values. Pages that are written by hand have generated sections, and
sentences whose numbers are compared with the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages import (
    companion,
    comparison,
    data_sets,
    defaults,
    estimator,
    explaining,
    forest,
    known_reasons,
    models,
    molecules,
    parts,
    performance,
    planted_parts,
    quality,
    readme,
    report,
    results,
    security,
)
from benchmarks.pages.reproduction import curves
from benchmarks.pages.reproduction import page as reproduction

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Page:
    """A file that shows results.

    Args:
        path (str): Path in the repository.
        build (Callable, optional): Computes the content from the root of the repository; ``None`` for a page whose
            generated values are all inside sentences.
        statements (Callable, optional): Phrases with numbers that the page must contain.
        key (Callable): What is compared of the stored and the computed content. (default: all of it)
    """

    path: str
    build: Callable[[Path], str] | None
    statements: Callable[[Path], Iterable[str]] | None = None
    key: Callable[[str], object] = str


PAGES = (
    Page("README.md", None, readme.statements),
    Page("docs/performance.md", performance.page),
    Page("docs/defaults.md", defaults.page),
    Page("docs/reproduction.md", reproduction.page),
    Page("docs/comparison.md", comparison.page),
    Page("docs/images/comparison-ranks.svg", comparison.picture),
    Page("docs/images/reproduction-curves.svg", curves.picture, key=curves.embedded_digest),
    Page("docs/explaining.md", explaining.page, explaining.statements),
    Page("docs/explaining.md", known_reasons.explaining_page),
    Page("docs/known-reasons.md", known_reasons.reasons_page),
    Page("docs/forest.md", forest.page, forest.statements),
    Page("docs/companion.md", companion.page, companion.statements),
    Page("docs/data-quality.md", quality.page, quality.statements),
    Page("docs/molecules.md", molecules.page, molecules.statements),
    Page("docs/models.md", models.page),
    Page("docs/features.md", data_sets.features_page, data_sets.features_statements),
    Page("docs/data.md", None, data_sets.data_statements),
    Page("docs/report.md", report.page, report.statements),
    Page("docs/estimator.md", estimator.page, estimator.statements),
    Page("docs/parts.md", parts.page, parts.statements),
    Page("docs/planted-parts.md", planted_parts.page, planted_parts.statements),
    Page("docs/security.md", security.page, security.statements),
    Page("results/README.md", results.page),
)


def problems(page: Page, root: Path) -> list[str]:
    """Why a page is not current; empty if it is."""
    path = root / page.path
    if not path.exists():
        return [f"{page.path} does not exist"]
    text, problem_list = path.read_text("utf-8"), []
    if page.build is not None and page.key(page.build(root)) != page.key(text):
        problem_list.append(f"{page.path} is not current; run: make pages")
    if page.statements is not None:
        missing = [phrase for phrase in page.statements(root) if phrase not in text]
        problem_list += [f"{page.path} does not contain, as the results say: {phrase}" for phrase in missing]
    return problem_list


def write(page: Page, root: Path) -> None:
    """Writes a page; a picture only if its numbers changed, because its bytes depend on matplotlib."""
    if page.build is None:
        return
    path, content = root / page.path, page.build(root)
    if not path.exists() or page.key(path.read_text("utf-8")) != page.key(content):
        path.write_text(content, "utf-8")
        print(f"wrote {page.path}")


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="parts of paths; default: all pages")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    arguments = parser.parse_args(argv)
    pages = [p for p in PAGES if not arguments.names or any(name in p.path for name in arguments.names)]
    if not pages:
        parser.error(f"no page's path contains {' or '.join(arguments.names)}")
    if not arguments.check:
        for page in pages:
            write(page, root)
    problem_list = [problem for page in pages for problem in problems(page, root)]
    for problem in problem_list:
        print(problem, file=sys.stderr)
    if problem_list:
        sys.exit(1)
    print(f"{len(pages)} pages are current.")
