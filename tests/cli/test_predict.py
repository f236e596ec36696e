"""``graphcaps predict``: a row for every graph; an invalid graph does not affect the others."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.data import GraphStore, read_tu
from tests.small_models import labelled, labelled_model, small_model, train_small

pytestmark = pytest.mark.usefixtures("isolated_folders")


@pytest.fixture
def model(tmp_path) -> Path:
    """A model of labelled graphs with two attributes."""
    path = tmp_path / "m.safetensors"
    labelled_model().save(path)
    return path


@pytest.fixture
def plain(tmp_path) -> Path:
    """A model of the embedded set."""
    path = tmp_path / "plain.safetensors"
    small_model().save(path)
    return path


def write_tu(store: GraphStore, folder: Path, graphs: int = 6) -> Path:
    """The first graphs of a store as a TU folder; classes are called 10, 20, 30."""
    folder.mkdir()
    one = store[torch.arange(graphs)]
    base = folder / folder.name
    source = torch.arange(one.num_nodes).repeat_interleave(one.degree)
    target = one.neighbours + one.node_ptr[one.node_graph[source]]
    pairs = zip(source.tolist(), target.tolist(), strict=True)
    write = {
        "A": [f"{a + 1}, {b + 1}" for a, b in pairs],
        "graph_indicator": [str(graph + 1) for graph in one.node_graph.tolist()],
        "graph_labels": [str(10 * label + 10) for label in one.y.tolist()],
        "node_labels": [str(label) for label in one.node_labels[:, 0].tolist()],
        "node_attributes": [", ".join(map(repr, row)) for row in one.node_attributes.double().tolist()],
    }
    for name, lines in write.items():
        Path(f"{base}_{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def with_labels(changes: dict[int, int]) -> GraphStore:
    """The labelled graphs, the first two nodes of some with another label."""
    labels = labelled().node_labels.clone()
    for graph, label in changes.items():
        labels[labelled().node_ptr[graph] : labelled().node_ptr[graph] + 2] = label
    return replace(labelled(), node_labels=labels)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["predict", *map(str, arguments)], env={"COLUMNS": "160"})


OTHER_LABELS = (  # of the folders that write_tu writes
    "6 graphs have labels that are no class of the model and not counted in any figure: '20' (2), '30' (2), '10' (2). "
    "The model has 'ring-star', 'ring-clique', 'ring-ladder'.\n"
)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


# ---------------------------------------------------------------------- valid sources
def test_csv_has_a_row_for_every_graph(plain, tmp_path):
    out = tmp_path / "new.csv"
    result = run(plain, "planted-parts", "--out", out)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = rows_of(out)
    assert [row["graph"] for row in rows] == [str(number) for number in range(1, 361)]
    names = small_model().class_names
    assert list(rows[0]) == [
        *("graph", "class", "probability"),
        *(f"probability[{name}]" for name in names),
        *(f"length[{name}]" for name in names),
        *("abstained", "out_of_distribution", "used_in", "true_class", "error"),
    ]
    from graphcaps import load_dataset

    store = load_dataset("planted-parts")
    assert [row["class"] for row in rows] == small_model().predict(store).tolist()
    probabilities, lengths = small_model().predict_proba(store), small_model().scores(store)
    for number in (0, 200, 359):
        row = rows[number]
        assert float(row["probability"]) == pytest.approx(probabilities[number].max(), rel=1e-6)
        assert float(row["probability[ring-clique]"]) == pytest.approx(probabilities[number, 1], rel=1e-6)
        assert float(row["length[ring-clique]"]) == pytest.approx(float(lengths[number, 1]), rel=1e-6)
        assert row["true_class"] == store.class_names[int(store.y[number])]
        assert row["error"] == ""
    right = sum(row["class"] == row["true_class"] for row in rows)
    assert f"{100 * right / 360:.2f} % of 360 graphs with a predicted class" in result.stdout
    assert "does not record its training graphs" in " ".join(result.stdout.split())


def test_a_config_file_is_written_next_to_the_predictions(plain, tmp_path):
    out = tmp_path / "new.csv"
    run(plain, "planted-parts", "--out", out, "--device", "cpu")
    config = json.loads((tmp_path / "new.csv.config.json").read_text("utf-8"))
    assert config["model"]["sha256"] == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert config["source"] == {"name": "planted-parts", "path": None}
    assert (config["unseen"], config["device"], config["command"]) == ("refuse", "cpu", "predict")
    assert config["config"]["model"]["capsule_dim"] == 8
    assert {"graphcaps", "torch", "python"} <= set(config["versions"])
    assert config["summary"]["predicted"] == 360
    assert not list(tmp_path.glob(".*part"))


def test_json_out_and_json_on_the_terminal_hold_the_same_rows(model, tmp_path):
    source = write_tu(labelled(), tmp_path / "NEW")
    out = tmp_path / "new.json"
    assert run(model, source, "--out", out, "--device", "cpu").exit_code == 0
    written = json.loads(out.read_text("utf-8"))
    content = json.loads(run(model, source, "--json", "--device", "cpu").stdout)
    assert content["predictions"] == written["predictions"]
    assert content["summary"] == written["summary"]
    row = written["predictions"][0]
    assert set(row) == {
        *("graph", "class", "probability", "probabilities", "lengths"),
        *("abstained", "out_of_distribution", "used_in", "true_class", "error"),
    }
    assert row["error"] is None
    assert row["probability"] == row["probabilities"][row["class"]] == max(row["probabilities"].values())
    both = json.loads(run(model, source, "--json", "--out", out).stdout)
    assert both["out"] == str(out)
    assert "predictions" not in both


def test_text_has_the_first_rows_and_a_summary(plain):
    result = run(plain, "planted-parts")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["graph", "class", "probability", "true", "class"]
    assert lines[10][0] == "10"
    assert "… and 350 more; --out FILE.csv writes them all." in result.stdout
    assert "360 of 360 graphs" in result.stdout


def test_a_source_is_looked_up_under_root(model, tmp_path):
    write_tu(labelled(), tmp_path / "NEW")
    result = run(model, "NEW", "--root", tmp_path, "--json")
    assert json.loads(result.stdout)["source"] == {"name": "NEW", "path": str(tmp_path / "NEW")}


def test_a_model_without_capsules_gives_scores(tmp_path):
    train_small(labelled(), "gin").save(tmp_path / "gin.safetensors")
    out = tmp_path / "new.csv"
    source = write_tu(labelled(), tmp_path / "NEW")
    assert run(tmp_path / "gin.safetensors", source, "--out", out).exit_code == 0
    assert "score[ring-star]" in rows_of(out)[0]
    content = json.loads(run(tmp_path / "gin.safetensors", source, "--json").stdout)
    assert set(content["predictions"][0]["scores"]) == set(labelled().class_names)


def test_names_of_classes_are_quoted(tmp_path):
    names = ('a, "b"', "line\nbreak", "[red]c")
    replace(labelled_model(), class_names=names).save(tmp_path / "m.safetensors")
    source, out = write_tu(labelled(), tmp_path / "NEW"), tmp_path / "new.csv"
    assert run(tmp_path / "m.safetensors", source, "--out", out).exit_code == 0
    assert {f"probability[{name}]" for name in names} < set(rows_of(out)[0])
    assert {row["class"] for row in rows_of(out)} <= set(names)
    result = run(tmp_path / "m.safetensors", source)
    assert result.exit_code == 0, result.output


# ---------------------------------------------------------------------- invalid graphs
def test_an_invalid_graph_is_reported_and_the_others_are_predicted(model, tmp_path):
    good = rows_of_run(model, write_tu(labelled(), tmp_path / "GOOD"), tmp_path / "good.csv")
    source = write_tu(with_labels({1: 9, 4: 77}), tmp_path / "BAD")
    result = run(model, source, "--out", tmp_path / "bad.csv")
    assert result.exit_code == 0
    assert result.stderr == (
        "graphcaps: warning: 2 of 6 graphs could not be predicted. "
        "Graph 2: node label 9, on 2 nodes, not seen in training.\n" + OTHER_LABELS
    )
    rows = rows_of(tmp_path / "bad.csv")
    assert rows[1]["error"] == "node label 9, on 2 nodes, not seen in training"
    assert rows[4]["error"] == "node label 77, on 2 nodes, not seen in training"
    for number in (1, 4):
        filled = {key for key, value in rows[number].items() if value}
        assert filled == {"graph", "true_class", "error"}
    for number in (0, 2, 3, 5):
        assert rows[number]["class"] == good[number]["class"]
        assert float(rows[number]["probability"]) == pytest.approx(
            float(good[number]["probability"]), rel=1e-5
        )
    assert "4 of 6 graphs" in result.stdout
    assert "node label 9, on 2 nodes" in run(model, source).stdout
    summary = json.loads(run(model, source, "--json").stdout)["summary"]
    assert (summary["graphs"], summary["predicted"], summary["failed"]) == (6, 4, 2)
    assert sum(summary["class_counts"].values()) == 4


def rows_of_run(model: Path, source: Path, out: Path) -> list[dict[str, str]]:
    assert run(model, source, "--out", out).exit_code == 0
    return rows_of(out)


def test_unknown_labels_can_be_read_as_zeros(model, tmp_path):
    source, out = write_tu(with_labels({1: 9}), tmp_path / "BAD"), tmp_path / "new.csv"
    result = run(model, source, "--unseen", "ignore", "--out", out)
    assert result.exit_code == 0
    assert result.stderr == (
        "graphcaps: warning: 1 of 6 graphs had unknown labels encoded as zeros. "
        "Graph 2: node label 9, on 2 nodes, not seen in training.\n" + OTHER_LABELS
    )
    assert all(row["class"] and not row["error"] for row in rows_of(out))
    assert json.loads((tmp_path / "new.csv.config.json").read_text("utf-8"))["unseen"] == "ignore"


def test_attributes_too_large_to_compute_with_are_reported(model, tmp_path, monkeypatch):
    attributes = labelled().node_attributes.double()
    attributes[labelled().node_ptr[2], 1] = 1e300  # not finite in float32
    attributes[labelled().node_ptr[3], 0] = 3e38  # finite, and its square is not
    source = write_tu(replace(labelled(), node_attributes=attributes), tmp_path / "BIG")
    assert read_tu(source).node_attributes is not None
    result = run(model, source, "--out", tmp_path / "new.csv", "--unseen", "ignore")
    assert result.exit_code == 0, result.output
    errors = [row["error"] for row in rows_of(tmp_path / "new.csv")]
    assert errors[2].startswith("attribute 1 of node 0 is ")
    assert errors[3] == "attribute 0 of node 0 is 3e+38, too large to compute with"
    assert [bool(error) for error in errors] == [False, False, True, True, False, False]
    monkeypatch.setattr("graphcaps.data.features.compatibility._MAX_FLOAT32", torch.inf)  # whatever the cause
    run(model, source, "--out", tmp_path / "other.csv", "--unseen", "ignore")
    assert "its scores are not finite" in rows_of(tmp_path / "other.csv")[3]["error"]


def test_no_valid_graph_ends_with_2_and_writes_nothing(model, tmp_path):
    source, out = write_tu(with_labels(dict.fromkeys(range(6), 9)), tmp_path / "BAD"), tmp_path / "new.csv"
    result = run(model, source, "--out", out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"graphcaps: {source}: expected graphs that the model can read, found none "
        "(graph 1: node label 9, on 2 nodes, not seen in training). "
        "Use --unseen ignore to encode unknown labels as zeros.\n"
    )
    assert not out.exists()


# ---------------------------------------------------------------------- invalid input
def test_invalid_input_ends_with_2_and_one_sentence(model, plain, tmp_path):
    source = write_tu(labelled(), tmp_path / "NEW")
    broken = tmp_path / "BROKEN"
    broken.mkdir()
    (broken / "BROKEN_A.txt").write_text("1, 2\n")
    cases = [
        ((plain, source), "predict: 'graphs' must have no node label columns, as the graphs"),
        ((model, "planted-parts"), "predict: 'graphs' must have 1 node label column, as the graphs"),
        ((tmp_path / "none.safetensors", source), "none.safetensors: file not found."),
        ((model, broken), "BROKEN"),
        ((model, tmp_path / "away"), "file or folder not found."),
        (
            (model, source, "--out", tmp_path / "new.txt"),
            f"'--out' must end in .csv, .json or .jsonl, got '{tmp_path / 'new.txt'}'.",
        ),
        ((model, source, "--out", tmp_path / "away" / "new.csv"), "expected a folder to write into"),
        (
            (model, source, "--device", "abacus"),
            "predict: '--device' must be cpu, cuda or auto, got 'abacus'.",
        ),
    ]
    for arguments, message in cases:
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert result.stderr.startswith("graphcaps: ")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_help_has_an_example():
    help_text = " ".join(run("--help").stdout.split())
    assert "graphcaps predict mutag.safetensors new.zip --out new.csv" in help_text


# ---------------------------------------------------------------------- abstaining, applicability domain, user files
def test_abstained_and_out_of_distribution_graphs(tmp_path):
    from graphcaps.inference.applicability import TrainingProfile

    path, out = tmp_path / "m.safetensors", tmp_path / "p.csv"
    replace(labelled_model(), profile=TrainingProfile.from_store(labelled())).save(path)
    far = replace(labelled(), node_attributes=labelled().node_attributes + 99)
    source = write_tu(far, tmp_path / "FAR")
    result = CliRunner().invoke(
        app, ["predict", str(path), str(source), "--out", str(out), "--abstain-below", "0.99"]
    )
    assert result.exit_code == 0, result.output
    assert "6 of 6 graphs are out of distribution. Graph 1: mean of attribute" in result.stderr
    assert "6 graphs with a probability below 0.99" in result.stdout
    rows = rows_of(out)
    assert {row["class"] for row in rows} == {""}
    assert {row["abstained"] for row in rows} == {"yes"}
    assert all(row["out_of_distribution"].startswith("mean of attribute") for row in rows)
    config = json.loads((tmp_path / "p.csv.config.json").read_text())
    assert config["abstain_below"] == 0.99
    assert config["summary"]["abstained"] == config["summary"]["out_of_distribution"] == 6
    wrong = CliRunner().invoke(app, ["predict", str(path), str(source), "--abstain-below", "7"])
    assert wrong.exit_code != 0


def test_predictions_of_a_table_have_its_ids(tmp_path):
    pytest.importorskip("rdkit")
    table, path, out = tmp_path / "d.csv", tmp_path / "m.safetensors", tmp_path / "p.csv"
    smiles = ["CCO", "c1ccccc1", "CCN", "c1ccccc1O", "CCC", "c1ccccc1N"] * 2
    lines = [f"m{i},{text},{'yes' if 'c1' in text else 'no'}" for i, text in enumerate(smiles)]
    table.write_text("name,smiles,active\n" + "\n".join(lines) + "\n")
    trained = CliRunner().invoke(
        app,
        ["train", str(table), "--label", "active", "--out", str(path), "--epochs", "1", "--device", "cpu"],
    )
    assert trained.exit_code == 0, trained.output
    assert "preset: molecules" in trained.stderr
    assert "balanced accuracy" in trained.stdout
    done = CliRunner().invoke(
        app, ["predict", str(path), str(table), "--id", "name", "--label", "active", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    rows = rows_of(out)
    assert [row["id"] for row in rows] == [f"m{i}" for i in range(12)]
    assert {row["true_class"] for row in rows} == {"yes", "no"}


def test_rows_that_trained_the_model_are_marked_and_counted_apart(tmp_path):
    """The accuracy on top is that of graphs that did not train the model; a note counts the training graphs."""
    store = read_tu(write_tu(labelled(), tmp_path / "OLD", 24))
    write_tu(labelled(), tmp_path / "ALL", 30)
    result = CliRunner().invoke(
        app,
        [
            *("train", str(tmp_path / "OLD"), "--epochs", "2", "--validation", "0.25", "--device", "cpu"),
            *("--out", str(tmp_path / "m.safetensors")),
        ],
    )
    assert result.exit_code == 0, result.stderr
    out = tmp_path / "new.csv"
    result = run(tmp_path / "m.safetensors", tmp_path / "ALL", "--out", out, "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    rows = rows_of(out)
    parts = [row["used_in"] for row in rows]
    assert parts[24:] == [""] * 6
    assert sorted(set(parts[: len(store)])) == ["training", "validation"]
    count = parts.count("training")
    assert f"{count} of 30 graphs trained this model; their accuracy says nothing about new graphs." in (
        result.stderr
    )
    write_tu(store[parts.index("training")], tmp_path / "ONE", 1)
    alone = run(tmp_path / "m.safetensors", tmp_path / "ONE", "--device", "cpu")
    assert "This graph trained this model; its prediction says nothing about new graphs." in alone.stderr

    def accuracy(part: str) -> float:
        chosen = [row for row in rows if row["used_in"] == part]
        return 100 * sum(row["class"] == row["true_class"] for row in chosen) / len(chosen)

    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    first = next(line for line in lines if line.startswith("accuracy"))
    assert first == f"accuracy {accuracy(''):.2f} % of 6 graphs that are not in the training data"
    named = f"training graphs {accuracy('training'):.2f} % of {count} graphs that trained the model"
    assert lines.index(first) < lines.index(named)
    # Without graphs that are new to the model there is no figure to report.
    result = run(tmp_path / "m.safetensors", tmp_path / "OLD", "--device", "cpu")
    assert "accuracy no figure: none of the graphs is new to this model" in " ".join(result.stdout.split())
    heading = next(line for line in result.stdout.splitlines() if "true class" in line)
    assert heading.split()[-2:] == ["used", "in"]


def test_formulas_in_a_table_are_escaped_unless_raw_text_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table, out = tmp_path / "m.csv", tmp_path / "p.csv"
    smiles = ("CCO", "CCC", "CCN", "CCCl", "CCCO", "CCCC")
    rows = [f"=cmd{row},{text},{'=yes' if row % 2 else '-1'}" for row, text in enumerate(smiles)]
    table.write_text("name,smiles,label\n" + "\n".join(rows) + "\n")
    columns = ("--id", "name", "--smiles", "smiles", "--label", "label")
    model = tmp_path / "majority.safetensors"
    trained = CliRunner().invoke(
        app, ["train", str(table), "--model", "majority", "--out", str(model), *columns]
    )
    assert trained.exit_code == 0, trained.output
    assert run(model, table, "--out", out, *columns).exit_code == 0
    assert [(row["id"], row["true_class"]) for row in rows_of(out)[:2]] == [
        ("'=cmd0", "-1"),
        ("'=cmd1", "'=yes"),
    ]
    assert run(model, table, "--out", out, "--raw-text", *columns).exit_code == 0
    assert [(row["id"], row["true_class"]) for row in rows_of(out)[:2]] == [
        ("=cmd0", "-1"),
        ("=cmd1", "=yes"),
    ]
