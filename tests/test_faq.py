"""Error messages in docs/faq.md are those of the program."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import graphcaps
from graphcaps.cli.main import app
from graphcaps.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "faq.md"
NEED_RDKIT = (
    "A node label did not occur in training",
    "A row is not a valid molecule",
    "The graphs have other columns than the training graphs",
    "The data have no labels",
)


def _command(*words: str) -> str:
    """The last line of the error stream; notes may precede it."""
    done = CliRunner().invoke(app, [*words], env={"COLUMNS": "80"})
    assert done.exit_code == 2, done.output
    return str(done.stderr).strip().splitlines()[-1]


def _raised(work: Callable[[], Any]) -> str:
    with pytest.raises(graphcaps.GraphcapsError) as caught:
        work()
    return str(caught.value)


def _one_model() -> None:
    from graphcaps.presets import load_preset
    from graphcaps.training.final_training import train_final

    config = load_preset("planted-parts").with_training(epochs=1)
    train_final(graphcaps.load_dataset("planted-parts")[:30], config).model.save("one.safetensors")


def _unseen() -> str:
    import networkx as nx

    graphs = [nx.path_graph(2) for _ in range(3)]
    for graph, colour in zip(graphs, ("red", "blue", "green"), strict=True):
        nx.set_node_attributes(graph, colour, "label")
    recipe = graphcaps.FeatureRecipe().fit(graphcaps.data.coerce(graphs[:2]).store)
    return _raised(lambda: recipe.apply(graphcaps.data.coerce(graphs[2:]).store))


def _memory() -> str:
    from graphcaps.config import RunConfig
    from graphcaps.training.memory import explain_out_of_memory

    def work() -> None:
        with explain_out_of_memory(RunConfig()):
            raise MemoryError

    return _raised(work)


def _no_number() -> str:
    """The text in the trainer, with an epoch and a term filled in."""
    source = (ROOT / "src" / "graphcaps" / "training" / "trainer.py").read_text("utf-8")
    first, second = (
        "Training stopped in epoch {self.epoch + 1}: the {worst} loss is not a number. ",
        ("Lower the learning rate, or check the data for extreme values."),
    )
    assert first in source
    assert second in source
    return first.replace("{self.epoch + 1}", "3").replace("{worst}", "classification") + second


def _classifier(X: Any, y: Any) -> str:
    return _raised(lambda: graphcaps.HGCNClassifier(epochs=1).fit(X, y))


def _table(name: str, text: str) -> str:
    Path(name).write_text(text, "utf-8")
    return name


PRODUCED: dict[str, Callable[[], str]] = {
    "A data set cannot be downloaded": lambda: _command("data", "info", "MUTAG"),
    "A row is not a valid molecule": lambda: _command(
        "data", "info", _table("bad.csv", "smiles,y\nCCO,1\nC1CC,0\n")
    ),
    "The column has another name": lambda: _command(
        "data", "info", _table("table.csv", "structure,active\nCCO,1\n")
    ),
    "The data have no labels": lambda: _command("train", "molecules.csv", "--out", "m.safetensors"),
    "A package is missing": lambda: str(MissingExtraError("rdkit", "chem", "Reading SMILES")),
    "There is no GPU": lambda: _command(
        "train", "planted-parts", "--device", "cuda", "--out", "m.safetensors"
    ),
    "The output file exists": lambda: (
        _one_model(),
        _command("train", "planted-parts", "--out", "one.safetensors"),
    )[1],
    "Out of memory": _memory,
    "The loss is not a number": _no_number,
    "Only one class in the training set": lambda: _classifier(
        graphcaps.load_dataset("planted-parts")[:3], ["yes"] * 3
    ),
    "An array is not accepted": lambda: _classifier(np.zeros((10, 3)), [0, 1] * 5),
    "A node label did not occur in training": _unseen,
    "The graphs have other columns than the training graphs": lambda: (
        _one_model(),
        _command("predict", "one.safetensors", "molecules.csv", "--out", "p.csv"),
    )[1],
    "The model file does not exist": lambda: _command("info", "nothing.safetensors"),
}


def messages() -> dict[str, str]:
    """Title and message of every entry of the page that shows one."""
    text = PAGE.read_text("utf-8")
    return {
        title: message.strip()
        for title, message in re.findall(r"^### (.*?)\n```text\n(.*?)```", text, re.S | re.M)
    }


def test_every_message_of_the_page_is_tested() -> None:
    assert set(messages()) == set(PRODUCED)


@pytest.mark.parametrize("title", sorted(PRODUCED))
def test_message_equals_that_of_the_program(
    title: str, isolated_folders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if title in NEED_RDKIT:
        pytest.importorskip("rdkit", reason="molecules need RDKit: pip install 'graphcaps[chem]'")
    if title == "There is no GPU" and torch.cuda.is_available():
        pytest.skip("a GPU is available")
    shutil.copy(ROOT / "examples" / "molecules.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    pattern = ".*".join(re.escape(part) for part in messages()[title].split("…"))
    assert re.fullmatch(pattern, PRODUCED[title](), re.S)
