"""The configuration that a model gets for a data set if the user names no preset."""

from __future__ import annotations

from dataclasses import replace

from graphcaps.config import DATA_SETTINGS, RunConfig
from graphcaps.data.datasets.catalogue import CATALOGUE
from graphcaps.data.store import GraphStore
from graphcaps.models.lookup import find_model, is_classical
from graphcaps.presets import list_presets, load_preset, published_models

__all__ = ["best_preset", "comparison_config", "preset_of_graphs", "replace_model"]


def preset_of_graphs(store: GraphStore) -> RunConfig:
    """The preset of HGCN for some graphs.

    "paper" for a data set that was loaded by its name in the catalogue, "planted-parts" for its levels,
    "molecules" for molecules from SMILES, and "default" for all others, whatever their name.
    """
    entry = None if store.catalogue_name is None else CATALOGUE[store.catalogue_name]
    if entry is not None and entry.level is not None:
        return load_preset("planted-parts")
    if entry is not None and f"paper/{entry.name}" in list_presets():
        return load_preset("paper", entry.name)
    own = "default" if store.featurizer is None else "molecules"
    return replace(load_preset(own), dataset=store.name)


def best_preset(store: GraphStore) -> RunConfig:
    """The preset "best" for some graphs: "best-molecules" for molecules from SMILES."""
    name = "best" if store.featurizer is None else "best-molecules"
    return replace(load_preset(name), dataset=store.name)


def replace_model(config: RunConfig, model: str) -> RunConfig:
    """A configuration for another network: its own defaults, with the width of the model that is replaced.

    Args:
        config (RunConfig): Configuration of a network.
        model (str): Name of a network.
    """
    before, after = find_model(config.model), find_model(model)
    width = None if before.width_option is None else config.model_arguments.get(before.width_option)
    # Models of the same width are about equally large.
    arguments = {} if width is None or after.width_option is None else {after.width_option: width}
    by_data = tuple(name for name in config.by_data if name in {*DATA_SETTINGS, *after.data_options})
    return replace(config, model=model, model_arguments=arguments, by_data=by_data)


def comparison_config(store: GraphStore, model: str) -> RunConfig:
    """The configuration of a model in a comparison.

    HGCN takes the preset of the graphs. Other models take their published settings, with those for one data set if it
    was loaded by its name in the catalogue. Without published settings, a network trains as HGCN does, and a classical
    model takes its own defaults.

    Args:
        store (GraphStore): The data set.
        model (str): Name of a model.

    Raises:
        ArgumentError: If there is no such model.
    """
    find_model(model)  # an unknown name is refused with similar names
    of_graphs = preset_of_graphs(store)
    if model == of_graphs.model:
        return of_graphs
    if model in published_models():
        return replace(load_preset("published", store.catalogue_name, model), dataset=store.name)
    if is_classical(model):
        return RunConfig(dataset=store.name, model=model)
    return replace_model(of_graphs, model)
