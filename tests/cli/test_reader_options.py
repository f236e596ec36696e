"""Options of a user's file that every reading command has."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from graphcaps.chemistry.featurizers import FEATURIZERS
from graphcaps.cli.main import verb_function
from graphcaps.cli.reader_options import AtomFeaturizer, SplitColumn, takes_reader_options
from graphcaps.data.datasets.loading import open_dataset

ALL = {"smiles", "label", "id", "node_label", "edge_label", "bad", "fragments", "duplicates", "featurizer"}


def run(decorator: Any, *words: str) -> tuple[int, list[tuple[str, int, dict[str, Any]]]]:
    """Exit code and calls of a command with an argument and an option of its own."""
    calls, app = [], typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    @decorator
    def read(source: str, folds: int = 10, *, reader: dict[str, Any]) -> None:
        calls.append((source, folds, reader))

    return CliRunner().invoke(app, list(words)).exit_code, calls


def test_the_choices_of_atoms_are_the_featurizers() -> None:
    assert [choice.value for choice in AtomFeaturizer] == list(FEATURIZERS)


def test_a_command_gets_the_options_that_were_given_as_arguments_of_the_reader() -> None:
    words = (
        "own.csv",
        "--atoms",
        "elements",
        "--folds",
        "3",
        "--label",
        "y",
        "--bad",
        "skip",
        "--edge-label",
        "e",
    )
    expected = {"featurizer": "elements", "label": "y", "bad": "skip", "edge_label": "e"}
    assert run(takes_reader_options(), *words) == (0, [("own.csv", 3, expected)])
    assert run(takes_reader_options(), "own.csv") == (0, [("own.csv", 10, {})])


def test_options_can_be_left_out_and_added() -> None:
    decorator = takes_reader_options(without=("id",), split=SplitColumn)
    assert run(decorator, "own.csv", "--split", "part") == (0, [("own.csv", 10, {"split": "part"})])
    assert run(decorator, "own.csv", "--id", "name") == (2, [])


@pytest.mark.parametrize("verb", ["train", "evaluate", "compare", "tune", "predict", "explain"])
def test_commands_that_read_have_the_options(verb: str) -> None:
    names = {*inspect.signature(verb_function(verb)).parameters}
    left_out = {"duplicates", "featurizer"} if verb in ("predict", "explain") else set()
    assert names & ALL == ALL - left_out
    assert "reader" not in names


def test_every_option_is_one_of_the_readers(tmp_path: Any) -> None:
    """A table refuses the options of networks, and every other one is known."""
    table = tmp_path / "m.csv"
    table.write_text("smiles,y,name\nCC,0,a\nCO,1,b\n")
    given = {"smiles": "smiles", "label": "y", "id": "name", "bad": "skip", "fragments": "all"}
    given |= {"duplicates": "keep", "featurizer": "elements"}
    assert {*given} == ALL - {"node_label", "edge_label"}
    assert len(open_dataset(table, **given).store) == 2
