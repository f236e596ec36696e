"""``graphcaps explain``: one graph, metrics of all graphs, drawings and the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from typer.testing import CliRunner

from graphcaps.cli.explanation_tables import _decimals, _signed, show_graph
from graphcaps.cli.main import app
from graphcaps.data import from_networkx
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu import read_tu
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.explanation import capsule_cards, counterfactuals, explain_store
from graphcaps.explanation.explanation_metrics import FAST_METHODS, METHODS, METRICS
from graphcaps.explanation.report.report_data import read_block
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.model_file import load
from tests.small_models import planted, small_model, train_small

pytestmark = pytest.mark.usefixtures("isolated_folders")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    small_model().save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_tu(planted_parts(num_graphs=6), tmp_path / "SMALL")
    return tmp_path / "SMALL"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(
        app, ["explain", *map(str, arguments), "--device", "cpu"], env={"COLUMNS": "80"}
    )


def test_without_options_a_summary_is_printed(model: Path, data: Path) -> None:
    result = run(model, data)
    assert result.exit_code == 0, result.output
    assert "6 graphs in" in result.stdout
    explanations = explain_store(load(model), read_tu(data))
    assert explanations.groups is not None
    use, groups = explanations.capsule_use, explanations.groups.unique().numel() / 6
    shown = f"capsules in use  {use.in_use} of 4 over these graphs; a graph has {groups:.1f} groups in "
    assert shown in result.stdout
    content = json.loads(run(model, data, "--json").stdout)
    assert (content["command"], content["graphs"]) == ("explain", 6)


def test_one_graph_as_a_tree(model: Path, data: Path) -> None:
    counts = [one.levels[0].capsule.unique().numel() for one in small_model().explain(planted())]
    number = 1 + counts.index(min(counts))  # a graph with capsules that no node belongs to
    result = run(model, data, "--graph", number)
    assert result.exit_code == 0, result.output
    assert f"graph      {number} of SMALL" in result.stdout
    for word in (
        "capsule",
        " of level 1: length",
        "contribution +",
        "nodes ",
    ):
        assert word in result.stdout
    words = " ".join(result.stdout.replace("│", "").split())
    assert re.search(
        r"capsules? without nodes \([\d, ]+\): contribution [+-]\S+; all nodes contribute to them too", words
    )
    assert (
        "a node contributes to every capsule; it is listed under the one that gets more of its group" in words
    )
    assert re.search(r"capsules? under other classes: contribution [+-]", result.stdout)
    # The lines below a class add up to its length.
    shown = re.split(r"\n(?=\S+  length )", result.stdout)[1:]
    assert len(shown) == 3
    for text in shown:
        (length,) = re.findall(r"^\S+  length ([\d.]+)", text)
        parts = [float(number) for number in re.findall(r"contribution ([+-][\d.]+)", text)]
        assert sum(parts) == pytest.approx(float(length), abs=0.0006 * len(parts))
    explanation = json.loads(run(model, data, "--graph", number, "--json").stdout)["explanation"]
    expected = small_model().explain(planted()[number - 1])
    assert explanation["graph"] == number  # numbered from 1, as in predict
    assert explanation["node_scores"] == pytest.approx(expected.node_scores.tolist(), rel=1e-3, abs=1e-6)
    assert len(explanation["tree"]["classes"]) == 3
    other = json.loads(run(model, data, "--graph", 2, "--target", "ring-clique", "--json").stdout)[
        "explanation"
    ]
    assert other["target"] == "ring-clique"


def test_capsules_as_table_and_json(model: Path, data: Path) -> None:
    result = run(model, data, "--capsules")
    assert result.exit_code == 0, result.output
    cards = capsule_cards(explain_store(load(model), read_tu(data)), read_tu(data))
    used = [card for card in cards.cards if card.nodes]
    assert len(re.findall(r"^\d+ +\d+ %", result.stdout, re.MULTILINE)) == len(used)
    assert "graphs of each true" in result.stdout
    assert "share of the most frequent kind" in result.stdout
    content = json.loads(run(model, data, "--capsules", "--json").stdout)
    assert content["capsule_cards"] == json.loads(json.dumps(cards.as_dict()))
    measured = ("--measure", "--methods", "capsules", "--json")
    metrics = json.loads(run(model, data, *measured).stdout)
    both = json.loads(run(model, data, "--capsules", *measured).stdout)
    assert both["capsule_cards"] == content["capsule_cards"]
    assert both["capsules"] == metrics["capsules"]


def test_counterfactuals_of_one_graph(tmp_path: Path, data: Path) -> None:
    store, model = read_tu(data), tmp_path / "parts.safetensors"
    torch.manual_seed(0)
    arguments = {"capsule_dim": 8, "num_capsules": (5,), "num_factors": 2}
    train_small(planted(), arguments=arguments, epochs=12).save(model)
    fitted = load(model)
    found = [counterfactuals(fitted, store[graph]) for graph in range(len(store))]
    graph = max(range(len(store)), key=lambda number: len(found[number]))
    assert len(found[graph])
    result = run(model, data, "--graph", graph + 1)
    words = " ".join(result.stdout.split())
    assert found[graph].sentence in words
    one = found[graph][0]
    verb = "without" if one.kind == "removal" else "with one node in place of"
    assert f"{one.class_name}, {100 * one.probability:.1f} %: {verb} node" in words
    content = json.loads(run(model, data, "--graph", graph + 1, "--json").stdout)["explanation"]
    assert content["counterfactuals"] == found[graph].as_dict()


def test_metrics_of_a_network_without_capsules(data: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    train_small(planted(), "gin").save(one)
    train_small(planted(), "gin", epochs=3).save(two)
    result = run(one, data, "--measure", "--methods", "gradient,random", "--beside", two)
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "scores AUC nodes AUC edges fidelity+" in words
    assert "known in 6 graphs" in words
    assert "rank correlation of node scores: gradient" in words
    assert "NMI" not in words
    content = json.loads(run(one, data, "--measure", "--methods", "gradient", "--json").stdout)
    assert content["capsules"] is None
    assert 0 <= content["methods"]["gradient"]["auc_nodes"] <= 1
    refused = run(one, data, "--measure", "--methods", "capsules")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "The model has no capsules." in refused.stderr
    refused = run(one, data)
    assert refused.exit_code == 2
    assert "must be an HGCN" in refused.stderr


def test_metrics_as_table_and_json(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.explanation.baselines.GNN_EXPLAINER_EPOCHS", 2)
    monkeypatch.setattr("graphcaps.explanation.baselines.INTEGRATION_STEPS", 2)
    second = tmp_path / "second.safetensors"
    train_small(planted(), epochs=1).save(second)
    result = run(model, data, "--measure", "--methods", "capsules, random")
    assert result.exit_code == 0, result.output
    assert "parts  " in result.stdout
    assert "fidelity+" in result.stdout
    assert "…" not in result.stdout  # nothing is cut in 80 columns
    assert "Evaluating capsules" in result.stderr
    content = json.loads(run(model, data, "--measure", "--sample", 2, "--beside", second, "--json").stdout)
    assert list(content["methods"]) == list(METHODS)
    assert all(tuple(row) == METRICS for row in content["methods"].values())
    assert (
        content["methods"]["kmeans-primary"]["nmi"] is not None
    )  # the files contain the planted part of each node
    assert content["methods"]["gnnexplainer"]["fidelity_plus"] is not None
    assert len(content["sample"]["graphs"]) == 2
    assert 0 < content["stability"]["nmi"] <= 1


def test_the_report_gets_metrics_and_history(
    model: Path, data: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    arguments: dict[str, Any] = {}

    def write(folder: Path, fitted: Any, store: Any, explanations: Any, **named: Any) -> Path:
        arguments.update(named, explanations=explanations, store=store)
        return folder / "index.html"

    monkeypatch.setattr("graphcaps.explanation.report.write_report", write)
    history = tmp_path / "m.safetensors.history.json"
    trained = small_model().training
    rows = [{"epoch": e, "train_loss": trained["train_loss"]} for e in range(1, trained["epochs"] + 1)]
    for written, taken in (
        (rows, rows),
        (rows[1:], None),
        ([row | {"train_loss": 9.0} for row in rows], None),
    ):
        history.write_text(json.dumps(written))  # the other histories do not match the model
        result = run(model, data, "--out", tmp_path / "page")
        assert result.exit_code == 0, result.output
        assert "page" in result.stderr
        assert arguments["history"] == taken
    assert set(arguments["metrics"]["methods"]) == set(FAST_METHODS)
    assert len(arguments["explanations"]) == len(arguments["store"]) == 6
    assert arguments["title"] == "m on SMALL"


def test_the_metrics_of_a_large_report_are_over_a_sample(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.cli.explain._MAX_MEASURED", 4)
    result = run(model, data, "--out", tmp_path / "report")
    assert result.exit_code == 0, result.output
    assert "Metrics of explanations are over 4 of 6 graphs, evenly spaced" in " ".join(result.stderr.split())
    (block,) = re.findall(r'id="data">([^<]*)<', (tmp_path / "report" / "index.html").read_text("utf-8"))
    assert "over 4 graphs" in read_block(block)[0]["metrics"][0]["caption"]


def test_the_report_is_written(model: Path, data: Path, tmp_path: Path) -> None:
    content = json.loads(run(model, data, "--out", tmp_path / "page", "--json").stdout)
    page = Path(content["report"])
    assert page.parent == tmp_path / "page"
    assert "</html>" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--graph", 0), "'--graph' must be a number from 1 to 6, got 0"),
        (("--graph", 7), "'--graph' must be a number from 1 to 6, got 7"),
        (("--measure", "--methods", "lime"), "'--methods' must name some of capsules"),
        (("--methods", "capsules"), "must be used with --measure"),
        (("--target", "nothing"), "'--target' must be one of ring-star"),
        (("--measure", "--graph", 1), "'--graph' must be used without --measure, --capsules and --out"),
        (("--capsules", "--graph", 1), "'--graph' must be used without --measure, --capsules and --out"),
        (("--counterfactuals",), "'--counterfactuals' must be used with --graph or --out"),
    ],
)
def test_invalid_arguments_end_with_2_and_one_sentence(
    model: Path, data: Path, arguments: Any, message: str
) -> None:
    result = run(model, data, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.strip().count("\n") == 0


def test_an_existing_file_and_a_model_without_capsules_are_refused(
    model: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = run(model, data, "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "a folder to write into" in result.stderr
    gin = tmp_path / "gin.safetensors"
    train_small(planted(), "gin", {"hidden": 8}).save(gin)
    result = run(gin, data)
    assert result.exit_code == 2
    assert "FittedModel with one, got GIN. Other models have no capsules to explain." in result.stderr


@pytest.mark.parametrize("kind", [None, "scores", "flow", "assignment", "iterations"])
def test_a_drawing_of_one_graph(model: Path, data: Path, tmp_path: Path, kind: str | None) -> None:
    path = tmp_path / "picture.svg"
    result = run(model, data, "--graph", 2, "--draw", path, *(("--kind", kind) if kind else ()))
    assert result.exit_code == 0, result.output
    assert f"Written: {path}" in result.stderr
    assert "<svg" in path.read_text("utf-8")
    assert json.loads(run(model, data, "--graph", 2, "--draw", path, "--json").stdout)["picture"] == str(path)


def test_a_molecule_is_drawn_with_its_atoms(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="molecules need the extra chem")
    table = tmp_path / "molecules.csv"
    lines = [
        f"{'C' * n}{end},{kind}" for n in range(1, 9) for end, kind in (("O", "alcohol"), ("N", "amine"))
    ]
    table.write_text("\n".join(["smiles,kind", *lines]) + "\n", "utf-8")
    trained = CliRunner().invoke(
        app,
        [
            *("train", str(table), "--label", "kind", "--epochs", "2", "--device", "cpu"),
            *("--out", str(tmp_path / "m.safetensors")),
        ],
    )
    assert trained.exit_code == 0, trained.output
    path = tmp_path / "molecule.svg"
    result = run(tmp_path / "m.safetensors", table, "--label", "kind", "--graph", 3, "--draw", path)
    assert result.exit_code == 0, result.output
    assert re.search(r"atoms .*\bO3 \(", result.stdout)  # the third atom of CCO
    drawn = path.read_text("utf-8")
    assert "<svg" in drawn
    assert "OH" in drawn or ">O<" in drawn or "atom-" in drawn


def test_nodes_with_the_largest_scores_of_both_signs_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    store = planted()[0]
    one = small_model().explain(store)
    n = one.num_nodes
    assert n > 14
    lowest = one.levels[0]
    all_in_one = torch.zeros_like(lowest.assignment)
    all_in_one[:, 0] = 1
    scores = torch.zeros(n)
    scores[3], scores[7] = 0.25, -0.5
    one = replace(one, levels=(replace(lowest, assignment=all_in_one), *one.levels[1:]), node_scores=scores)
    show_graph(one, "1", store)
    output = capsys.readouterr().out
    assert "out of distribution" not in output
    assert re.search(rf"nodes 4 \(\+0\.250\)  .*  8 \(-0\.500\)  … {n - 12} more", output)
    show_graph(one, "1", store, "far too many nodes")
    assert "domain     out of distribution: far too many nodes" in capsys.readouterr().out


def test_an_out_of_distribution_graph_gets_a_warning(model: Path, tmp_path: Path) -> None:
    write_tu(from_networkx([networkx.path_graph(900), networkx.complete_graph(60)]), tmp_path / "LONG")
    replace(small_model(), profile=TrainingProfile.from_store(planted())).save(
        tmp_path / "with_profile.safetensors"
    )
    for path, expected in ((tmp_path / "with_profile.safetensors", True), (model, False)):
        result = run(path, tmp_path / "LONG", "--graph", 1)
        assert result.exit_code == 0, result.output
        assert ("out of distribution" in result.stdout) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--graph", "1", "--draw", "p.svg", "--kind", "molecule"),
            "be another kind for graphs that are not molecules",
        ),
        (("--draw", "p.svg"), "--draw' must be used with --graph"),
        (("--graph", "1", "--kind", "flow"), "be used with --draw"),
        (("--graph", "1", "--draw", "p.svg", "--kind", "pie"), "be one of parts, scores, flow"),
        (("--graph", "1", "--draw", "p.gif"), "end in"),
    ],
)
def test_invalid_drawing_options_are_refused(
    model: Path, data: Path, words: tuple[str, ...], message: str
) -> None:
    result = run(model, data, *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_small_scores_have_two_digits_and_zero_no_sign() -> None:
    assert [_decimals(value) for value in (0.0, 12.0, 0.5, 0.0034, 0.00071)] == [3, 3, 3, 4, 5]
    assert _signed(0.0034, 4) == "+0.0034"
    assert _signed(-0.00001, 4) == "0.0000"
    assert _signed(-0.1234, 3) == "-0.123"


@pytest.mark.parametrize(
    ("average", "words"),
    [(True, "compared with an average node"), (False, "compared with a node whose features are zero")],
)
def test_scores_name_what_they_are_compared_with(
    average: bool, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = planted()[:1]
    show_graph(explain_store(small_model(), store)[0], "1", store, average_reference=average)
    assert words in capsys.readouterr().out


def test_equal_coefficients_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    store = planted()[:1]
    explanation = explain_store(small_model(), store)[0]
    (level, *above) = explanation.levels
    J = level.assignment.size(-1)
    for first, is_named in ((1.1 / J, True), (1.5 / J, False)):
        rows = torch.full_like(level.assignment, (1 - first) / (J - 1))
        rows[:, 0] = first
        rows[0] = 1 / J  # one node unlike the others
        changed = replace(level, assignment=rows)
        assert changed.is_nearly_uniform == is_named
        show_graph(replace(explanation, levels=(changed, *above)), "1", store)
        assert ("all nodes have nearly the same coefficients" in capsys.readouterr().out) == is_named
