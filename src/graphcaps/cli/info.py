"""``graphcaps info``: model, training set and expected input of a model file; and the lists of models and presets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphcaps.cli.data_options import Json
from graphcaps.cli.output import (
    columns,
    describe_restarts,
    format_size,
    option,
    pairs,
    print_json,
    terminal,
)
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["info"]

_OWN_ROWS = (
    *("dataset", "graphs", "nodes_mean", "nodes_max", "class_counts", "capsule_use", "estimator"),
    "members",
    "restarts",
    "companion",
)
_ACCURACIES = {  # entry of the training record, and what the graphs were used for
    "test": "that training did not use",
    "validation": "that selected the epoch, calibrated the probabilities or chose weights: not a test",
    "train": "that trained the model: says nothing about new graphs",
}
_EPOCH_ROWS = ("epochs", "epochs_run", "epoch")


def info(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="A model file (.safetensors).")
    ] = None,
    models: Annotated[bool, option("--models", help="List the models that can be trained.")] = False,
    presets: Annotated[bool, option("--presets", help="List the presets and their models.")] = False,
    as_json: Json = False,
) -> None:
    """Describe a model file: the model, its training set, and the graphs that it expects.

    With --models, list the models that graphcaps and installed packages provide; with --presets, the presets.
    """
    from graphcaps.errors import UsageError

    if (model is not None) + models + presets != 1:
        raise UsageError(
            "Name one model file, or use --models or --presets alone. See: graphcaps info --help"
        )
    if model is not None:
        _describe_file(model, as_json)
    elif models:
        _list_models(as_json)
    else:
        _list_presets(as_json)


def _list_models(as_json: bool) -> None:
    from graphcaps.models.lookup import list_models

    listed = list_models()
    if as_json:
        print_json([asdict(model) for model in listed])
    else:
        table = columns("model", "package", "description")
        for each in listed:
            table.add_row(each.name, each.package, _plain(each.problem or each.summary))
        terminal().print(table)


def _list_presets(as_json: bool) -> None:
    from graphcaps.presets import describe_presets

    listed = describe_presets()
    if as_json:
        print_json([asdict(preset) for preset in listed])
    else:
        table = columns("preset", "model", "data sets")
        for each in listed:
            graphs = each.dataset or "any"
            if each.by_dataset:
                graphs += f"; other values for {', '.join(each.by_dataset)}"
            committee = each.committee
            model = f"{each.model} × {committee.members}" if committee.members > 1 else each.model
            model += "" if committee.companion is None else f" with {committee.companion}"
            table.add_row(each.name, model, graphs)
        terminal().print(table)


def _describe_file(model: Path, as_json: bool) -> None:
    from graphcaps._io.file_hash import sha256_of
    from graphcaps.inference.model_file import FORMAT_VERSION, load

    described = load(model).info()
    file = {"path": str(model), "bytes": model.stat().st_size, "sha256": sha256_of(model)}
    if as_json:
        print_json({"file": file | {"format_version": FORMAT_VERSION}} | described)
    else:
        _show(terminal(), file, described)


def _show(console: Console, file: dict[str, Any], described: dict[str, Any]) -> None:
    """Prints four short tables."""
    from rich.text import Text

    sections = {
        "Model": _model(file, described),
        "Expects": _expects(described),
        "Trained on": _trained(described),
        "Made with": [(name, str(value)) for name, value in described["versions"].items()],
    }
    for number, (heading, rows) in enumerate(sections.items()):
        if number:
            console.print()
        console.print(Text(heading, style="bold cyan"))
        console.print(pairs((f"  {name}", _plain(value)) for name, value in rows))


def _model(file: dict[str, Any], described: dict[str, Any]) -> list[tuple[str, str]]:
    model = described["model"]
    names = described["class_names"]
    formulation = f", {model['formulation']} formulation" if model["formulation"] else ""
    score_names = {
        "lengths": "lengths of class capsules",
        "logits": "logits",
        "probabilities": "probabilities",
    }
    unit = "weights" if described["expects"]["reads"] is None else "fitted values"
    arguments = {key: value for key, value in model["arguments"].items() if key != "formulation"}
    committee = []
    if "members" in model:
        limit = described.get("disagreement_profile")
        known = "" if limit is None else f"; usual disagreement up to {limit['high']:.2g} nats"
        committee = [("committee", f"{model['members']} members with different seeds{known}")]
    return [
        ("file", f"{file['path']} ({format_size(file['bytes'])})"),
        *committee,
        *_companion(model.get("companion")),
        ("model", f"{model['name']}{formulation}, {model['parameters']:,} {unit} ({model['dtype']})"),
        ("classes", f"{len(names)}: {_some(names)}"),
        ("scores", score_names.get(model["scores"], model["scores"])),
        ("probabilities", _calibrated(described["calibration"])),
        ("arguments", ", ".join(f"{key} {_value(value)}" for key, value in arguments.items()) or "defaults"),
    ]


def _companion(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Companions, and the weights of the network and of each of them; nothing for a model alone."""
    if found is None:
        return []
    weights = [f"network {found['network_weight']:.2f}"]
    weights += [f"{each['name']} {each['weight']:.2f}" for each in found["models"]]
    where = "out-of-fold predictions" if found["stacked"] else "validation graphs"
    reads = {name for each in found["models"] for name in each["reads"]}
    read = ", ".join(sorted(name.replace("_", " ") for name in reads))
    values = sum(each["parameters"] for each in found["models"])
    names = ", ".join(each["name"] for each in found["models"])
    return [
        ("companion", f"{names}, {values:,} fitted values; reads {read}"),
        ("weights", f"{', '.join(weights)}; chosen on {found['graphs']:,} {where}"),
    ]


def _calibrated(calibration: dict[str, Any] | None) -> str:
    if calibration is None:
        return "not calibrated"
    how = (
        f"temperature {calibration['temperature']:.3g}"
        if "temperature" in calibration
        else calibration["method"]
    )
    return f"calibrated on {calibration['graphs']:,} graphs ({how})"


def _expects(described: dict[str, Any]) -> list[tuple[str, str]]:
    from graphcaps.chemistry.featurizers import find_featurizer

    expects, recipe = described["expects"], described["expects"]["recipe"]
    blocks, attributes = expects["node_labels"], expects["node_attributes"]
    labels = [f"{len(block)} values: {_ranges(block)}" for block in blocks] or ["none"]
    if recipe["featurizer"] is not None:
        columns = find_featurizer(recipe["featurizer"]).atoms
        labels = [
            f"{column.name}: {', '.join(block)}" for column, block in zip(columns, blocks, strict=False)
        ]
    if not recipe["labels"]:
        labels = ["not used"]
    rows = [("" if number else "node labels", text) for number, text in enumerate(labels)]
    if recipe["featurizer"] is not None:
        rows.insert(0, ("molecules", f"SMILES, read with the featurizer {recipe['featurizer']}"))
    rows += _edge_labels(recipe)
    rows.append(("node attributes", str(attributes or "none") if recipe["attributes"] else "not used"))
    if recipe["fragments"] is not None:
        kept = "the largest of each molecule" if recipe["fragments"] == "largest" else "all of each molecule"
        rows.append(("fragments", kept))
    features = [name for name, used in (("attributes", attributes), ("labels", blocks)) if used] or ["ones"]
    features += ["degree"] if recipe["degree"] else []
    features += [] if recipe["degree_onehot"] is None else [f"one-hot degree up to {recipe['degree_onehot']}"]
    features += [f"propagated {recipe['propagation']} times"] if recipe["propagation"] else []
    if expects["reads"] is not None:  # a classical model reads the graphs themselves
        reads = [name.replace("_", " ") for name in expects["reads"]]
        return [*rows, ("reads", ", ".join(reads) or "nothing of a graph")]
    rows.append(("input columns", f"{described['model']['in_channels']} ({', '.join(features)})"))
    limit = expects["max_nodes"]
    cut = "no limit" if limit is None else f"{limit:,}; of larger graphs the nodes of highest degree are used"
    return [*rows, ("max. nodes", cut)]


def _edge_labels(recipe: dict[str, Any]) -> list[tuple[str, str]]:
    """How many values each edge label column has, and where the model reads them; nothing if it does not."""
    from graphcaps.chemistry.featurizers import find_featurizer

    blocks = recipe["edge_label_values"]
    if not blocks:
        return []
    use = {
        "counts": "counted at each node",
        "messages": "in the messages",
        "both": "counted and in the messages",
    }
    counts = [f"{len(block)} value{'' if len(block) == 1 else 's'}" for block in blocks]
    if recipe["featurizer"] is not None:
        bonds = find_featurizer(recipe["featurizer"]).bonds
        counts = [f"{bond.name}: {count}" for bond, count in zip(bonds, counts, strict=False)]
    return [("edge labels", f"{', '.join(counts)}; {use[recipe['edge_labels']]}")]


def _trained(described: dict[str, Any]) -> list[tuple[str, str]]:
    training, planned = described["training"], described["config"]["training"]
    is_classical = described["expects"]["reads"] is not None
    skipped = (*_OWN_ROWS, *(_EPOCH_ROWS if is_classical else ()))
    skipped += tuple(f"{part}_{entry}" for part in _ACCURACIES for entry in ("accuracy", "graphs"))
    rows = _accuracies(training, is_classical)
    if "dataset" in training:
        rows.append(("data set", _value(training["dataset"])))
    if "graphs" in training:
        mean, most = training.get("nodes_mean"), training.get("nodes_max")
        sizes = "" if mean is None or most is None else f", {_count(mean)} nodes each, at most {_count(most)}"
        rows.append(("graphs", f"{_count(training['graphs'])}{sizes}"))
    if isinstance(training.get("class_counts"), dict):
        counts = [f"{name} ({_count(count)})" for name, count in training["class_counts"].items()]
        rows.append(("classes", _some(counts)))
    if isinstance(use := training.get("capsule_use"), dict):
        rows.append(("capsules in use", f"{_value(use.get('in_use'))} of {_value(use.get('capsules'))}"))
    if isinstance(members := training.get("members"), list):
        kept = [f"seed {_value(each.get('seed'))}, epoch {_value(each.get('epoch'))}" for each in members]
        rows.append(("members", _some(kept).replace(", seed", "; seed")))
    if isinstance(restarts := training.get("restarts"), dict):
        rows.append(("restarts", describe_restarts(restarts)))
    for name, value in training.items():
        if name not in skipped and value not in (None, [], {}):
            rows.append((name.replace("_", " "), _value(value)))
    recorded = described["recorded_graphs"]
    if recorded is not None:
        parts = ", ".join(
            f"{count:,} {name}" for name, count in recorded.items() if count or name != "left-out"
        )
        rows.append(("recorded graphs", f"{parts}; equal graphs count once"))
    if "estimator" in training:  # its arguments and history are shown by --json only
        rows.append(("made by", "HGCNClassifier; HGCNClassifier.load restores its arguments"))
    if is_classical:
        return [*rows, ("set-up", described["config"]["source"])]
    settings = [f"batches of {planned['batch_size']}", f"learning rate {planned['learning_rate']:g}"]
    if planned["halve_every"] < planned["epochs"]:
        settings.append(f"halved every {planned['halve_every']} epochs")
    if planned.get("average_epochs", 1) > 1:
        settings.append(f"weights averaged over {planned['average_epochs']} epochs")
    rows.append(("set-up", f"{', '.join(settings)} ({described['config']['source']})"))
    return rows


def _accuracies(training: dict[str, Any], is_classical: bool) -> list[tuple[str, str]]:
    """Accuracy of each part, first that of test graphs."""
    rows = []
    for part, use in _ACCURACIES.items():
        if part == "validation" and is_classical:
            selected = " selected on " in str(training.get("rule"))
            use = (
                "that selected options" if selected else "that the fit did not use; the calibration may have"
            )
        accuracy, graphs = training.get(f"{part}_accuracy"), training.get(f"{part}_graphs")
        name = f"{'training' if part == 'train' else part} accuracy"
        if isinstance(accuracy, int | float) and isinstance(graphs, int):
            rows.append((name, f"{100 * accuracy:.1f} % of {count_noun(graphs, 'graph')} {use}"))
        elif isinstance(graphs, int) and graphs:
            rows.append((name, f"not finite on {graphs:,} graphs {use}"))
        elif part == "test" and "train_graphs" in training:
            rows.append((name, "none: no test graphs were held out"))
    return rows


def _count(value: Any) -> str:
    """A number with separators; any other value unchanged."""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else _value(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        sentences = any(isinstance(item, str) for item in value)
        shown = [_value(item) for item in value]
        return " ".join(shown) if sentences else f"({', '.join(shown)})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items() if item is not None)
    return "none" if value is None else str(value)


def _some(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _ranges(values: list[int | str]) -> str:
    """Sorted integers as ranges, and text as it is: ``0 to 6, 9, red``."""
    runs: list[list[int]] = []
    for value in values:
        if isinstance(value, str):
            continue
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    texts = [_plain(value) for value in values if isinstance(value, str)]
    return _some([*(str(a) if a == b else f"{a} to {b}" for a, b in runs), *texts], 8)


def _plain(text: str) -> str:
    """One line: names from files may contain line breaks."""
    return " ".join(text.split())
