"""The command line program: help without torch, exit codes, and errors of one sentence without traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphcaps import __version__
from graphcaps.cli import data
from graphcaps.cli import main as program
from graphcaps.data import load_dataset
from graphcaps.errors import DataError
from tests.small_models import small_model

RUNNER = CliRunner()


def fail(error: BaseException) -> int:
    """Result of a command that raises ``error``."""
    app = program.typer.Typer(cls=program._Group, pretty_exceptions_enable=False)

    @app.callback()
    def options() -> None:
        pass

    @app.command()
    def verb() -> None:
        raise error

    return RUNNER.invoke(app, ["verb"])


def test_version():
    result = RUNNER.invoke(program.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"graphcaps {__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["data", "--help"], ["data", "info", "-h"]])
def test_help_has_an_example(arguments):
    result = RUNNER.invoke(program.app, arguments)
    assert result.exit_code == 0
    assert "Usage: graphcaps" in result.output.replace("root", "graphcaps")
    assert arguments == ["data", "--help"] or "Example: graphcaps" in result.output


def test_every_verb_has_an_example():
    for command in data.app.registered_commands:
        assert (command.epilog or "").startswith("Example: graphcaps data"), command.name
    for name, example in program.VERBS.items():
        assert example.startswith(f"graphcaps {name}")
    assert {command.name for command in program.app.registered_commands} == {*program.VERBS}


# One process runs them one after the other: what a command may import is more than what those before it may.
IMPORTS = """
import gc, sys
from graphcaps.cli.main import app

model, out = sys.argv[1:]
large = {"torch_geometric", "sklearn", "pandas", "networkx", "matplotlib", "sympy", "fastapi"}
train = ["train", "planted-parts", "--epochs", "1", "--no-baseline", "--device", "cpu", "--out", out]
for arguments, unused in (
    (["data", "info", "--help"], large | {"torch", "numpy", "graphcaps.ops"}),
    (["data", "info", "planted-parts"], large | {"scipy", "graphcaps.nn", "graphcaps.data.coercion"}),
    (["predict", model, "planted-parts"], large | {"scipy.stats", "graphcaps.models.gin", "graphcaps.training.step"}),
    (train, large | {"torch._dynamo", "graphcaps.models.gin"}),
):
    try:
        app(arguments)
    except SystemExit as end:
        assert not end.code, arguments
    if imported := unused & set(sys.modules):
        sys.exit(f"{arguments} imported {imported}")
    searches = gc.get_stats()[2]["collections"]
    if searches > 1 and arguments is not train:
        sys.exit(f"{arguments} searched all objects for garbage {searches} times")
"""


def test_a_command_imports_only_what_it_needs(tmp_path: Path) -> None:
    model, out = tmp_path / "m.safetensors", tmp_path / "new.safetensors"
    small_model().save(model)
    command = [sys.executable, "-c", IMPORTS, str(model), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_program_imports_the_verb_that_it_is_called_with() -> None:
    unused = {
        "graphcaps.cli.explain",
        "graphcaps.cli.train",
        "graphcaps.data.readers.networks",
        "graphcaps.ops.propagation.modulated_hop",
        "graphcaps.ops.routing",
    }
    code = (
        "import sys; from graphcaps.cli.main import main; sys.argv = ['graphcaps', 'data', 'info', 'planted-parts']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"imported = {unused} & set(sys.modules)\n"
        "if imported: sys.exit(f'imported {imported}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", [*program.VERBS, "data"])
def test_a_verb_alone_has_the_help_that_it_has_among_the_others(verb: str) -> None:
    alone = RUNNER.invoke(program.make_app((verb,)), [verb, "--help"])
    assert alone.exit_code == 0
    assert alone.output == RUNNER.invoke(program.app, [verb, "--help"]).output


def test_the_package_is_imported_without_a_library():
    code = "import sys, graphcaps; sys.exit(len({'torch', 'numpy', 'typer'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["data", "info"], ["data", "info", "--x"]]
)
def test_unknown_commands_and_options_end_with_2(arguments):
    result = RUNNER.invoke(program.app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_data_error_is_one_sentence():
    result = fail(DataError("A.txt", "two\nnumbers", "three", line=4))
    assert result.exit_code == 2
    assert result.stderr == "graphcaps: A.txt, line 4: expected two numbers, found three.\n"
    assert result.stdout == ""


def test_an_os_error_with_a_file_is_one_sentence():
    result = fail(PermissionError(13, "Permission denied", "MUTAG.zip"))
    assert (result.exit_code, result.stderr) == (2, "graphcaps: MUTAG.zip: Permission denied.\n")


def test_an_os_error_without_a_file_is_one_sentence():
    result = fail(OSError(28, "No space left on device"))
    assert (result.exit_code, result.stderr) == (2, "graphcaps: No space left on device.\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], pytest.param(["data", "list", "--json"], marks=pytest.mark.slow)],
)
def test_a_full_output_device_is_one_sentence(arguments):
    command = [sys.executable, "-m", "graphcaps", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "graphcaps: No space left on device.\n")


def test_characters_outside_the_encoding_are_escaped():
    code = (
        "import sys; from graphcaps.cli import main as m; m.app = lambda **_: print('\\xb1'); m.main()\n"
        "print('\\xb1', file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\xb1\n", "\\xb1\n")


def test_ctrl_c_ends_with_130_and_one_line():
    result = fail(KeyboardInterrupt())
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Stopped.\n")


def test_other_exceptions_are_raised():
    result = fail(ZeroDivisionError("a defect"))
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize("arguments", [["--help"], pytest.param(["data", "list"], marks=pytest.mark.slow)])
def test_a_closed_pipe_gives_no_message(arguments):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "graphcaps", *arguments]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == ""
    if "--help" not in arguments:  # which typer prints, and ends with 1
        assert done.returncode == 0


def test_python_m_graphcaps():
    command = [sys.executable, "-m", "graphcaps", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"graphcaps {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "graphcaps: Missing argument 'SOURCE'. See: graphcaps train --help\n"),
        (["nonsense"], "graphcaps: No such command 'nonsense'. See: graphcaps --help\n"),
        (["data", "info"], "graphcaps: Missing argument 'SOURCE'. See: graphcaps data info --help\n"),
    ],
)
def test_a_usage_error_names_the_help_command(arguments, message):
    done = subprocess.run(
        [sys.executable, "-m", "graphcaps", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_advice_is_an_option_on_the_command_line(tmp_path):
    pytest.importorskip("rdkit")
    table = tmp_path / "own.csv"
    table.write_text("smiles,label\nCCO,a\nC1CC,b\n")
    result = CliRunner().invoke(program.app, ["data", "info", str(table)])
    assert result.exit_code == 2
    assert result.stderr.strip().endswith("Correct the row, or skip such rows with --bad skip.")
    with pytest.raises(DataError, match="skip such rows with bad='skip'"):
        load_dataset(table)
