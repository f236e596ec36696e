"""Options of a training run, and the configuration that they give: a preset with some values replaced."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, get_args

from graphcaps._io.close_names import close_names
from graphcaps.cli.output import option
from graphcaps.errors import count_noun

if TYPE_CHECKING:
    from graphcaps.config import CommitteeConfig, RunConfig
    from graphcaps.data.store import GraphStore
    from graphcaps.metrics import SelectionMetric

__all__ = [
    "BatchSize",
    "ClassWeight",
    "Companion",
    "Device",
    "Ensemble",
    "Epochs",
    "LearningRate",
    "MaxNodes",
    "Metric",
    "ModelName",
    "Precision",
    "Preset",
    "Restarts",
    "Settings",
    "check_committee",
    "check_restarts",
    "configure",
    "describe_classes",
    "describe_preset",
    "selection_metric",
]

_MAX_CLASSES_LISTED = 6

Preset = Annotated[str | None, option("--preset", metavar="NAME", help="A preset, or your own FILE.toml.")]
ModelName = Annotated[
    str | None,
    option("--model", metavar="NAME", help="A model; graphcaps info --models lists them."),
]
Epochs = Annotated[int | None, option("--epochs", metavar="N", help="Number of training epochs.")]
BatchSize = Annotated[int | None, option("--batch-size", metavar="N", help="Graphs per training step.")]
LearningRate = Annotated[
    float | None, option("--learning-rate", metavar="RATE", help="Initial learning rate of Adam.")
]
MaxNodes = Annotated[
    int | None,
    option(
        "--max-nodes",
        metavar="N",
        help="Use only the N nodes of highest degree of a graph; 0: all. Default: all of your own graphs.",
    ),
]
Precision = Annotated[
    str | None, option("--precision", metavar="NAME", help="On a GPU: float32, tf32 or bf16.")
]
Metric = Annotated[
    str | None,
    option(
        "--metric",
        metavar="NAME",
        help="Validation metric that selects the epoch: loss (default), accuracy, balanced-accuracy, roc-auc, pr-auc "
        "or mcc.",
    ),
]
ClassWeight = Annotated[
    str | None,
    option("--class-weight", metavar="balanced", help="Weight classes inversely to their frequency."),
]
Settings = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="NAME=VALUE",
        help="A value of the preset: an option of the model, such as context=gin, or one of features.NAME and "
        "training.NAME. Can be repeated.",
    ),
]
Device = Annotated[str, option("--device", metavar="NAME", help="cpu, cuda or auto.")]

Ensemble = Annotated[
    int | None,
    option(
        "--ensemble",
        metavar="M",
        min=1,
        max=1000,
        help="Train a committee of M models with different seeds (docs/committees.md). Default: that of the preset, "
        "else 1.",
    ),
]

Restarts = Annotated[
    int,
    option(
        "--restarts",
        metavar="N",
        min=1,
        max=1000,
        help="Train N models with different seeds, and keep the one with the lowest validation loss, or best --metric; "
        "with --parts blocks, that with the lowest loss of parts (docs/parts.md).",
    ),
]

Companion = Annotated[
    str | None,
    option(
        "--companion",
        metavar="NAME",
        help="Also fit a classical model, such as wl-forest, and mix its probabilities with the network's "
        "(docs/companion.md). Several: NAME,NAME. none: not even that of the preset.",
    ),
]


def configure(
    store: GraphStore,
    *,
    preset: str | None = None,
    model: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    max_nodes: int | None = None,
    precision: str | None = None,
    parts: str | None = None,
    settings: Sequence[str] | None = None,
    ensemble: int | None = None,
    companion: str | None = None,
) -> RunConfig:
    """The configuration of a run; its ``source`` names the preset.

    The preset "published" is that of the model. Its values for one data set are used if the data set was loaded by its
    name in the catalogue. The preset "best" is "best-molecules" for molecules from SMILES.

    Without a preset a data set that was loaded by a name of the catalogue decides: "paper" for the eleven data sets of
    the paper, "planted-parts" for the levels of that one. Molecules from SMILES take "molecules". All other
    graphs take "default", whatever the name of their file: the values of a paper preset hold for its data set only.

    A model other than the preset's starts from its own defaults, except that it takes over the width of the preset's
    model. A classical model takes no preset of another model, since features and training do not apply to it.

    Args:
        store (GraphStore): The data set; its ``catalogue_name`` and its ``featurizer`` decide.
        preset (str, optional): Name of a preset, or path of a TOML file.
        model (str, optional): Name in the registry.
        epochs, batch_size, learning_rate (optional): Replace the values of the preset.
        max_nodes (int, optional): Replaces the value of the preset; 0 keeps all nodes.
        precision (str, optional): Precision of matrix products on a GPU.
        parts (str, optional): HGCN's option of that name, ``"blocks"``.
        settings (sequence of str, optional): Further values as ``NAME=VALUE``, see :func:`change_settings`.
        ensemble (int, optional): Number of members of a committee.
        companion (str, optional): Names of companions; "none" for none.
    """
    from graphcaps.config import RunConfig
    from graphcaps.errors import ArgumentError
    from graphcaps.models import MODELS, find_model, is_classical
    from graphcaps.nn.part_loss import Parts
    from graphcaps.presets import is_published, load_preset
    from graphcaps.presets.model_presets import best_preset, preset_of_graphs, replace_model
    from graphcaps.training.auto_config import check_network_options

    if model is not None and preset is None and is_classical(model):
        config = RunConfig(dataset=store.name, model=model)
    elif preset is not None and is_published(preset):
        if model is not None:
            find_model(model)  # an unknown name is refused with similar names
        chosen = model if preset.lower() == "published" else None
        config = load_preset(preset, store.catalogue_name, chosen)
        config = replace(config, dataset=store.name)
    elif preset == "best":
        config = best_preset(store)
    elif preset is not None:
        config = load_preset(preset, store.name)
    else:
        config = preset_of_graphs(store)
    if model is not None and model != config.model:
        if is_classical(model):
            expected, got = f"be of the model '{model}', or be left out", f"a preset of '{config.model}'"
            raise ArgumentError("options", "--preset", expected, got)
        config = replace_model(config, model)
    config = change_settings(config, settings or ())
    if is_classical(config.model):
        given = {
            "--epochs": epochs,
            "--batch-size": batch_size,
            "--learning-rate": learning_rate,
            "--max-nodes": max_nodes,
            "--precision": precision,
            "--parts": parts,
        }
        check_network_options(config, given, "options")
        for section, values in (("features", config.features), ("training", config.training)):
            if values != type(values)():
                expected = f"have no [{section}] for the model '{config.model}', which does not read it"
                raise ArgumentError("options", "--preset", expected, f"'{config.source}' with it")
    if parts is not None:
        has_parts = "parts" in find_model(config.model).options()
        if parts not in get_args(Parts) or not has_parts:
            models = ", ".join(name for name in MODELS if "parts" in MODELS[name].options())
            got = repr(parts) if has_parts else f"the model '{config.model}'"
            expected = f"be {' or '.join(get_args(Parts))}, with the model {models}"
            raise ArgumentError("options", "--parts", expected, got)
        config = config.with_model(parts=parts)
        names = {text.partition("=")[0] for text in settings or ()}
        if "context" in config.model_arguments and "context" not in names:
            config = config.with_model(context="none")  # blocks have message passing layers of their own
    if max_nodes is not None:
        if max_nodes < 0:
            raise ArgumentError("options", "--max-nodes", "be at least 0, which keeps all nodes", max_nodes)
        config = config.with_features(max_nodes=max_nodes or None)
    config = config.with_training(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, precision=precision
    )
    return config.with_committee(members=ensemble, companion=companion)


def check_committee(
    config: RunConfig, store: GraphStore, ensemble: int | None, companion: str | None
) -> CommitteeConfig:
    """The members and companions of a run, checked.

    Args:
        config (RunConfig): The result of :func:`configure`.
        store (GraphStore): The data set.
        ensemble, companion (optional): The values of the options; messages name the preset for a value of its own.

    Raises:
        ArgumentError: If the members would be equal, or a companion cannot be fitted to the graphs.
    """
    from graphcaps.training.classical_training import check_members
    from graphcaps.training.companion_weights import companion_configs

    committee, preset = config.committee, config.source
    members_by = (preset, "[committee] members") if ensemble is None else ("options", "--ensemble")
    companion_by = (preset, "[committee] companion") if companion is None else ("options", "--companion")
    check_members(config, committee.members, *members_by)
    companion_configs(committee.companion, config.model, store, *companion_by)
    return committee


def check_restarts(config: RunConfig, restarts: int, ensemble: int | None) -> None:
    """Refuses ``--restarts`` for a committee.

    Args:
        config (RunConfig): The result of :func:`configure`.
        restarts (int): The value of the option.
        ensemble (int, optional): That of ``--ensemble``; without it, the message names the preset.

    Raises:
        ArgumentError: If the model is a committee.
    """
    from graphcaps.training import restarts as several

    origin = f" of the preset '{config.source}'" if ensemble is None else ""
    several.check_restarts(
        restarts,
        config.committee.members,
        owner="options",
        name="--restarts",
        single="--ensemble 1",
        members_of=origin,
    )


def change_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """The configuration with values of ``--set``.

    Args:
        config (RunConfig): Any configuration.
        settings (sequence of str): Values as ``NAME=VALUE``. NAME is an option of the model, ``features.NAME`` or
            ``training.NAME``, as in a preset. VALUE is written as in TOML; a word needs no quotation marks.

    Raises:
        ArgumentError: If a text has no ``=``, or its name is unknown.
        DataError: If a value of features or training has the wrong type.
    """
    from graphcaps.config import RunConfig
    from graphcaps.errors import ArgumentError
    from graphcaps.models import find_model, is_classical

    for text in settings:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise ArgumentError("options", "--set", "be NAME=VALUE, such as context=gin", repr(text))
        section, _, key = name.rpartition(".")
        sections = ("", "model") if is_classical(config.model) else ("", "model", "features", "training")
        if section not in sections:
            expected = f"name an option of the model '{config.model}'"
            expected += ", features.NAME or training.NAME" if len(sections) > 2 else ""
            raise ArgumentError("options", "--set", expected, repr(name))
        known = find_model(config.model).options()
        if section in ("", "model") and key not in known:
            near = close_names(key, known) or tuple(known)
            expected = f"name an option of the model '{config.model}', such as {', '.join(near)}"
            raise ArgumentError("options", "--set", expected, repr(name))
        values = config.as_dict()
        values[section or "model"][key] = _parse_value(value)
        values["by_data"] = [each for each in values["by_data"] if each != key]
        config = RunConfig.from_dict(values, "--set")
    return config


def _parse_value(text: str) -> Any:
    """A value in TOML notation; any other text is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return text


def selection_metric(name: str | None, owner: str) -> SelectionMetric:
    """The value of ``--metric``; the loss without one.

    Raises:
        ArgumentError: If there is no metric of that name.
    """
    from graphcaps.errors import ArgumentError
    from graphcaps.metrics import METRIC_TITLES

    for metric in METRIC_TITLES:
        if metric == (name or "loss"):
            return metric
    raise ArgumentError(owner, "--metric", f"be one of {', '.join(METRIC_TITLES)}", repr(name))


def describe_classes(store: GraphStore) -> str:
    """Number of classes, and the graphs of each; for many classes, the fewest and the most graphs of one."""
    if store.y is None:
        return "no classes"
    counts = store.y.bincount(minlength=store.num_classes).tolist()
    if len(counts) > _MAX_CLASSES_LISTED:
        if min(counts) == max(counts):
            return f"{len(counts)} classes of {count_noun(min(counts), 'graph')} each"
        return f"{len(counts)} classes of {min(counts):,} to {count_noun(max(counts), 'graph')}"
    listed = ", ".join(f"{name}: {count:,}" for name, count in zip(store.class_names, counts, strict=True))
    return f"{len(counts)} {'class' if len(counts) == 1 else 'classes'} ({listed})"


def describe_preset(store: GraphStore, config: RunConfig, preset: str | None = None) -> str:
    """The preset of a run and why it was taken, such as "preset: default (for your own graphs)".

    Args:
        store (GraphStore): The data set.
        config (RunConfig): The result of :func:`configure`.
        preset (str, optional): The value of ``--preset``.
    """
    from graphcaps.data.datasets.catalogue import find_entry
    from graphcaps.models import is_classical

    if preset is None and is_classical(config.model):
        return "no preset: its own defaults"
    if preset is not None:
        reason = "--preset"
    elif store.catalogue_name is not None:
        reason = f"{store.catalogue_name} of the catalogue"
    elif config.source == "molecules":
        reason = "read from SMILES"
    else:
        entry = find_entry(store.name)
        reason = "for your own graphs"
        if entry is not None and (entry.level is not None or not entry.embedded):
            family = "planted-parts" if entry.embedded else "paper"
            reason = f"not loaded from the catalogue; --preset {family} takes that of {entry.name}"
    return f"preset: {config.source} ({reason})"
