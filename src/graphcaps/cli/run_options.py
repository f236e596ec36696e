"""From options to a configuration: a preset, found or named, and what is changed of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphcaps.config import RunConfig

__all__ = ["configure"]


def configure(
    dataset: str,
    *,
    preset: str | None = None,
    model: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    max_nodes: int | None = None,
    precision: str | None = None,
    parts: str | None = None,
) -> RunConfig:
    """The configuration of a run; its ``source`` says which preset it is.

    Without a preset it is that of the data set: "paper" for the eleven of the paper, "planted-parts" for the
    embedded ones, and else "default". Another model than the preset's starts from its own defaults, but
    for GIN's width, which is the length of the preset's capsules.

    Args:
        dataset (str): Name of the graphs.
        preset (str, optional): Name of a preset, or path to a TOML file.
        model (str, optional): Name in the registry.
        epochs, batch_size, learning_rate (optional): In place of the preset's.
        max_nodes (int, optional): In place of the preset's; 0 keeps all nodes.
        precision (str, optional): Of products on a GPU.
        parts (str, optional): HGCN's option of that name, ``"blocks"``.
    """
    from graphcaps.data.datasets.catalogue import find_entry
    from graphcaps.errors import ArgumentError
    from graphcaps.presets import list_presets, load_preset
    from graphcaps.registry import MODELS

    if preset is not None:
        config = load_preset(preset, dataset)
    else:
        entry = find_entry(dataset)
        if entry is not None and entry.embedded:
            config = load_preset("planted-parts")
        elif entry is not None and f"paper/{entry.name}" in list_presets():
            config = load_preset("paper", entry.name)
        else:
            config = replace(load_preset("default"), dataset=dataset)  # graphs that no preset was made for
    if model is not None and model != config.model:
        import graphcaps.models
        import graphcaps.nn  # noqa: F401  (both enter their models into the registry)

        MODELS[model]  # an unknown name is refused here
        # GIN is as wide as the capsules are long: the nearest thing to an equal size.
        width = config.model_arguments.get("capsule_dim") if model == "gin" else None
        arguments = {"hidden": width} if width else {}
        config = replace(config, model=model, model_arguments=arguments)
    if parts is not None:
        if parts != "blocks" or config.model != "hgcn":
            got = repr(parts) if config.model == "hgcn" else f"the model '{config.model}'"
            raise ArgumentError("options", "--parts", "be 'blocks', with the model hgcn", got)
        config = config.with_model(parts=parts)
    if max_nodes is not None:
        if max_nodes < 0:
            raise ArgumentError("options", "--max-nodes", "be at least 0, which keeps all nodes", max_nodes)
        config = replace(config, features=replace(config.features, max_nodes=max_nodes or None))
    return config.with_training(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, precision=precision
    )
