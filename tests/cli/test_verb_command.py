"""Help on terminals of any width, and messages that name the option that the user has given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from graphcaps.cli.main import VERBS, app
from tests.cli.training import refusal, write_inputs

DATA = ("list", "info", "check", "convert", "cache")


def shown(words: tuple[str, ...], width: int) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.stdout


def unwrapped(text: str) -> str:
    """The text of all panels, without their borders and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize(
    "words", [(), ("data",), *((verb,) for verb in VERBS), *(("data", verb) for verb in DATA)]
)
def test_help_is_not_cut_at_80_columns(words: tuple[str, ...]) -> None:
    narrow = shown(words, 80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "<bool>" not in narrow
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    for parameter in command.params:
        if parameter.param_type_name == "option":
            for name in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"(?<![\w-]){name}(?![\w-])", narrow), name
        for word in (parameter.help or "").split():
            assert word in narrow, word  # not divided between two lines
    assert unwrapped(narrow) == unwrapped(shown(words, 140))


def test_help_shows_choices_bounds_and_defaults() -> None:
    text = unwrapped(shown(("train",), 300))
    assert "SOURCE A data set, a TU folder or zip, or your own file (docs/inputs.md). [required]" in text
    assert "or keep the first. Default: keep. [one of: keep, drop-contradicting, first]" in text
    assert "--seed N Random seed, also of --split scaffold or random. [default: 0]" in text
    assert "[1 to 1000] [default: 1]" in text
    assert "[default: --baseline]" in text
    assert "Continue from the checkpoint, if there is one. --overwrite" in text


def test_messages_name_the_options_of_the_verb(tmp_path: Path) -> None:
    train = [*write_inputs(tmp_path, epochs=1), "--out", tmp_path / "m.safetensors"]
    for options, message in (
        (("--validation", "2"), "train: '--validation' must be at least 0 and below 1, got 2."),
        (("--validation", "1.5"), "train: '--validation' must be at least 0 and below 1, got 1.5."),
        (("--preset", "nope"), "train: '--preset' must be one of "),
        (("--epochs", "0"), "train: '--epochs' must be at least 1, got 0."),
        (("--learning-rate", "-1"), "train: '--learning-rate' must be above 0 and finite, got -1."),
        (
            ("--set", "training.batch_size=0"),
            "training: 'batch_size' must be at least 1, got 0.",
        ),  # no option of it
        (("--restarts", "2", "--validation", "0"), "Set --validation above 0."),
    ):
        assert message in refusal(*train, *options)


def test_messages_name_the_data_set_and_its_label(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "one.csv"
    table.write_text("smiles,kind\n" + "".join(f"{'C' * length}O,a\n" for length in range(1, 12)))
    named = f"{table} (--label kind) must hold"
    for verb, options in (("train", ("--out", tmp_path / "m.safetensors")), ("evaluate", ()), ("tune", ())):
        message = refusal(verb, table, "--label", "kind", *options)
        assert message.startswith(f"{verb}: {named}"), message
        assert "at least two classes" in message


def test_pictures_and_suggestions(tmp_path: Path) -> None:
    from tests.small_models import small_model

    model = tmp_path / "m.safetensors"
    small_model().save(model)
    words = ("explain", model, "planted-parts", "--graph", "1", "--draw", "w.xyz")
    assert refusal(*words) == "explain: '--draw' must end in .png, .svg or .pdf, got 'w.xyz'."
    words = ("predict", model, "planted-parts", "--abstain-below", "7")
    assert refusal(*words) == "predict: '--abstain-below' must be from 0 to 1, got 7."
    assert refusal("trani") == "No such command 'trani'. Did you mean 'train'? See: graphcaps --help"


def test_one_graph_is_singular(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "single.csv"
    table.write_text("smiles,kind\nCCO,a\n")
    checked = CliRunner().invoke(app, ["data", "check", str(table), "--label", "kind"])
    assert "single can be read: 1 graph; " in checked.stdout
    words = ["train", str(table), "--label", "kind", "--out", str(tmp_path / "m.safetensors")]
    assert CliRunner().invoke(app, words).stderr.startswith("1 graph of single, 1 class (a: 1), hgcn, ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "planted-parts", "--out="), "train: '--out' must not be empty."),
        (("evaluate", "planted-parts", "--out", ""), "evaluate: '--out' must not be empty."),
        (("evaluate", "planted-parts", "--out", "FILE/runs"), "expected a folder to write into, found a file at "),
        (("train", "planted-parts", "--out", "FILE/m.safetensors"), "found a file at "),
        (("train", "planted-parts", "--epochs", "1e3", "--out", "m"), "must be a whole number, got '1e3'. See"),
        (("train", "planted-parts", "--learning-rate", "a", "--out", "m"), "must be a number, got 'a'. See"),
        (("train", "planted-parts", "--atoms", "foo", "--out", "m"), "--atoms': 'foo' is not one of"),
    ],
    ids=["empty", "empty-word", "folder-in-file", "file-in-file", "whole", "number", "choice"],
)  # fmt: skip
def test_values_of_options_are_refused_in_our_own_words(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    result = CliRunner().invoke(app, [word.replace("FILE", str(file)) for word in words])
    assert result.exit_code == 2
    assert message in result.stderr
