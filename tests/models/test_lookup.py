"""Models by name: of graphcaps, of the program, and of installed packages, which may be broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models import find_graph_model, find_model, model_names
from graphcaps.models.gin import GIN
from graphcaps.models.lookup import _plugins, list_models
from graphcaps.nn import HGCN
from graphcaps.registry import MODELS

Install = Callable[..., None]

VALID = """
from graphcaps.models import MODELS
from graphcaps.models.gin import GIN

@MODELS.register("{name}")
class Other(GIN):
    \"\"\"A GIN of another package.\"\"\"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one module with the entry point ``model = module``; all are removed after the test."""
    modules, models = set(sys.modules), dict(MODELS._models)

    def install_one(package: str, model: str, source: str, value: str | None = None) -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[graphcaps.models]\n{model} = {value or module}\n")
        _plugins.cache_clear()

    model_names()  # imports all models; those that were imported later would be lost with the copy
    models = dict(MODELS._models)
    monkeypatch.syspath_prepend(tmp_path)
    yield install_one
    for name in set(sys.modules) - modules:
        if name.startswith("plugin_"):
            del sys.modules[name]
    MODELS._models.clear()
    MODELS._models.update(models)
    monkeypatch.undo()
    _plugins.cache_clear()


def problem(name: str) -> str:
    """The problem of a model in the list; all models of graphcaps have none."""
    listed = {model.name: model for model in list_models()}
    assert not any(model.problem for model in listed.values() if model.package == "graphcaps")
    assert find_model("hgcn") is HGCN
    return listed[name].problem


def test_models_of_graphcaps_are_found_without_a_list_of_them() -> None:
    assert {"gin", "hgcn", "majority", "wl-forest"} <= set(model_names())
    assert find_graph_model("gin") is GIN
    assert find_model("hgcn") is HGCN
    assert all(model.package == "graphcaps" and not model.problem for model in list_models())


def test_the_lookup_of_a_model_imports_no_other_model() -> None:
    code = (
        "import sys; from graphcaps.models.lookup import find_model, is_model; find_model('hgcn'); find_model('gcn')\n"
        "assert is_model('gcn') and 'graphcaps.models.gin' not in sys.modules\n"
        "assert 'scipy' not in sys.modules\n"
        "assert not is_model('none') and 'graphcaps.models.gin' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_refused_with_similar_names() -> None:
    with pytest.raises(
        ArgumentError, match=r"^config: 'model' must name a model, got 'ginn'\. Did you mean gin.*\?$"
    ):
        find_model("ginn")
    with pytest.raises(ArgumentError, match=f"got '42'. Names are {', '.join(model_names())}"):
        find_model("42")


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(ArgumentError, match="model 'majority': 'kind' must be trained by gradient descent"):
        find_graph_model("majority")


@pytest.mark.parametrize("value", ["plugin_one", "plugin_one:Other"])
def test_a_model_of_an_installed_package_is_imported_when_it_is_asked_for(
    install: Install, value: str
) -> None:
    install("plugin-one", "other", VALID.format(name="other"), value)
    assert "other" in model_names()
    assert find_model("hgcn") is HGCN
    assert "plugin_one" not in sys.modules
    assert find_graph_model("other").__name__ == "Other"
    assert find_model("other") is find_model("other")
    (listed,) = (model for model in list_models() if model.name == "other")
    assert (listed.package, listed.summary) == ("plugin-one", "A GIN of another package.")


def test_a_program_can_register_a_model_itself(install: Install) -> None:
    exec(VALID.format(name="local"), {"__name__": "plugin_script"})
    assert find_graph_model("local").__name__ == "Other"
    assert "local" in model_names()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('two\\nlines.')", "ValueError: two lines"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        (
            VALID.format(name="other").replace("A GIN of another package.", ""),
            "ArgumentError: model Other: 'docstring' must describe the model in its first line, got none",
        ),
    ],
)
def test_a_package_that_cannot_be_imported_affects_its_own_model_only(
    install: Install, source: str, message: str
) -> None:
    install("plugin-bad", "other", source)
    install("plugin-good", "good", VALID.format(name="good"))
    expected = (
        "The model 'other' cannot be loaded from the package 'plugin-bad', "
        f"entry point 'other = plugin_bad' ({message}"
    )
    with pytest.raises(UsageError) as raised:
        find_model("other")
    assert str(raised.value).startswith(expected)
    assert str(raised.value).endswith("; repair or uninstall the package.")
    assert "\n" not in str(raised.value)
    assert problem("other").startswith(expected)
    assert find_graph_model("good").__name__ == "Other"


def test_an_entry_point_that_registers_another_name_is_refused(install: Install) -> None:
    install("plugin-one", "other", VALID.format(name="another"))
    with pytest.raises(UsageError) as raised:
        find_model("other")
    assert str(raised.value) == (
        "The model 'other' is not registered by the package 'plugin-one', entry point 'other = plugin_one'; "
        'its module must register it with @MODELS.register("other").'
    )


def test_a_name_of_graphcaps_is_ambiguous(install: Install) -> None:
    install("plugin-one", "gin", VALID.format(name="gin"))
    message = (
        "The model name 'gin' is ambiguous: graphcaps and the package 'plugin-one' have a model of this name; "
        "uninstall all but one of them."
    )
    with pytest.raises(UsageError) as raised:
        find_model("gin")
    assert str(raised.value) == message
    assert problem("gin") == message


def test_a_name_of_two_packages_is_ambiguous(install: Install) -> None:
    for package in ("plugin-one", "plugin-two"):
        install(package, "other", VALID.format(name="other"))
    message = r"the package 'plugin-(one|two)' and the package 'plugin-(one|two)' have a model of this name"
    with pytest.raises(UsageError, match=f"The model name 'other' is ambiguous: {message}"):
        find_model("other")
