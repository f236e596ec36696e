"""Draws the pictures of README and documentation that come from trained models, by the commands printed beside them.

    python -m benchmarks.documentation_images                         # all of them
    python -m benchmarks.documentation_images ether parts --root DIR  # some; DIR holds MUTAG.zip

The pictures ``ether`` and ``tutorial`` need the extra ``chem``, ``report`` needs playwright with Chromium. All of them
together take about ten minutes of processor time. Which capsule holds which node depends on the seed and can depend on
the machine, so check the texts beside the pictures after a change.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES, STATIC = ROOT / "docs" / "images", ROOT / "docs" / "_static"
_REPORT_SIZE = {"width": 1280, "height": 900}


def graphcaps(folder: Path, *words: object) -> None:
    """Runs the command line of this source tree in a folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "graphcaps", *map(str, words)]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def run_blocks(folder: Path, page: Path, stop: str) -> None:
    """Runs the Python blocks of a tutorial up to the heading ``stop``, as one program."""
    text = page.read_text("utf-8").split(stop)[0]
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, check=True)


def draw_ether(folder: Path, root: list[str]) -> None:
    """README: its own commands; the third draws a molecule."""
    (folder / "examples").symlink_to(ROOT / "examples")
    section = (ROOT / "README.md").read_text("utf-8").split("## Your own graphs", 1)[1]
    (block,) = re.findall(r"```\n(graphcaps train examples.*?)```", section, re.S)
    train, _, explain = (shlex.split(line)[1:] for line in block.strip().splitlines())
    graphcaps(folder, *train)
    graphcaps(folder, *(word.replace("why.svg", "why.png") for word in explain))
    shutil.copy(folder / "why.png", IMAGES / "ether.png")


def draw_molecule(folder: Path, root: list[str]) -> None:
    """docs/report.md: a molecule of MUTAG."""
    graphcaps(folder, "train", "MUTAG", *root, "--epochs", 200, "--out", "mutag.safetensors")
    words = ("--graph", 1, "--draw", "molecule.png", "--kind", "molecule")
    graphcaps(folder, "explain", "mutag.safetensors", "MUTAG", *root, *words)
    shutil.copy(folder / "molecule.png", IMAGES / "molecule.png")


def run_demo(folder: Path) -> None:
    if not (folder / "demo").exists():
        graphcaps(folder, "demo", "--out", "demo")


def draw_report(folder: Path, root: list[str]) -> None:
    """README and docs/report.md: the page of ``graphcaps demo``, from the list of graphs down."""
    from playwright.sync_api import sync_playwright

    run_demo(folder)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport=_REPORT_SIZE, color_scheme="light")
        page.goto(f"file://{folder / 'demo' / 'report' / 'index.html'}#graph-107")
        page.wait_for_selector("html[data-ready]")
        page.evaluate("document.getElementById('count').closest('section').scrollIntoView()")
        page.screenshot(path=str(IMAGES / "report.png"))
        browser.close()


def draw_parts(folder: Path, root: list[str]) -> None:
    """docs/index.md: the picture of ``graphcaps demo``."""
    run_demo(folder)
    shutil.copy(folder / "demo" / "parts.png", IMAGES / "parts.png")


def draw_tutorial(folder: Path, root: list[str]) -> None:
    """docs/tutorials/molecules.md: an ether."""
    shutil.copy(ROOT / "examples" / "molecules.csv", folder)
    run_blocks(folder, ROOT / "docs" / "tutorials" / "molecules.md", "## Save and load")
    shutil.copy(folder / "ether.svg", STATIC / "ether.svg")


def draw_decision(folder: Path, root: list[str]) -> None:
    """docs/tutorials/decision.md: capsules and scores of one graph."""
    run_blocks(folder, ROOT / "docs" / "tutorials" / "decision.md", "## Evaluate explanations")
    for name in ("parts", "scores"):
        shutil.copy(folder / f"{name}.svg", STATIC / f"decision-{name}.svg")


PICTURES: dict[str, Callable[[Path, list[str]], None]] = {
    "ether": draw_ether,
    "molecule": draw_molecule,
    "report": draw_report,
    "parts": draw_parts,
    "tutorial": draw_tutorial,
    "decision": draw_decision,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"some of {', '.join(PICTURES)}")
    parser.add_argument("--root", help="folder with MUTAG.zip")
    options = parser.parse_args()
    unknown = [name for name in options.pictures if name not in PICTURES]
    if unknown:
        parser.error(f"unknown picture {unknown[0]!r}; choose from {', '.join(PICTURES)}")
    root = ["--root", str(Path(options.root).resolve())] if options.root else []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.pictures or PICTURES:
            PICTURES[name](Path(folder), root)
            print(f"Drawn: {name}", flush=True)


if __name__ == "__main__":
    main()
