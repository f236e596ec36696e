"""The search: resumed as unbroken, results that other commands take, test graphs that are not read, bad input."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import graphcaps
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, GraphcapsError
from graphcaps.evaluation import training_cells
from graphcaps.evaluation.ledger import held_out_accuracies as cross_validated
from graphcaps.evaluation.replica_groups import ReplicaGroup
from graphcaps.presets import load_preset
from graphcaps.search import Search, SearchProgress, SearchResult, Trial, TuneRun, nested_search
from graphcaps.search.nested_search import held_out_accuracies
from graphcaps.search.search_pictures import option_importances, search_pictures
from graphcaps.search.trial import best_trial
from tests.search.searches import CONFIG, OPTIONS, graphs


def _search(**changes: Any) -> Search:
    return Search(graphs(), CONFIG, **(OPTIONS | changes))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchResult, Path]:
    """A search with Optuna, and its folder."""
    out = tmp_path_factory.mktemp("search") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphcaps.search.successive_halving.MIN_RUNG", 1)
        result = graphcaps.tune(graphs(), CONFIG, **(OPTIONS | {"sampler": "tpe"}), out=out)
    return result.search, out


def _facts(trials: Any) -> list[dict[str, Any]]:
    return [{**trial.as_dict(), "seconds": 0} for trial in trials]


def test_all_trials_end_and_the_best_is_chosen_by_validation_loss(
    unbroken: tuple[SearchResult, Path],
) -> None:
    result, _ = unbroken
    assert result.complete
    assert [trial.number for trial in result.trials] == list(range(8))
    assert [trial.batch for trial in result.trials] == [0] * 4 + [1] * 4
    assert result.rungs == (1, 2, 4)
    finished = [trial for trial in result.trials if trial.state == "finished"]
    assert len(finished) == 2
    assert result.best == min(finished, key=lambda trial: trial.loss)
    # Two shapes in each batch at most, each of two trials.
    for batch in (result.trials[:4], result.trials[4:]):
        assert batch[0].values["model.num_capsules"] == batch[1].values["model.num_capsules"]


def test_the_folder_holds_what_other_programs_read(unbroken: tuple[SearchResult, Path]) -> None:
    result, out = unbroken
    names = {path.name for path in out.iterdir()}
    assert names == {
        "best.toml", "trials.csv", "search.json", "study.db", "history.svg", "parallel.svg", "importance.svg"
    }  # fmt: skip
    assert replace(load_preset(out / "best.toml"), source="") == replace(result.best_config, source="")
    rows = (out / "trials.csv").read_text().splitlines()
    assert len(rows) == 9
    assert rows[0].endswith("training.learning_rate,model.dropout,model.num_capsules")
    optuna = pytest.importorskip("optuna")
    [name] = optuna.get_all_study_names(f"sqlite:///{out / 'study.db'}")
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{out / 'study.db'}")
    assert result.best is not None
    assert study.best_trial.number == result.best.number
    assert study.best_value == pytest.approx(result.best.loss)
    assert json.loads((out / "search.json").read_text())["settings"]["sampler"] == "tpe"


@pytest.mark.parametrize(
    "stop", [1, 9, *(pytest.param(stop, marks=pytest.mark.exhaustive) for stop in (5, 13))]
)
def test_a_resumed_search_equals_an_unbroken_one(
    unbroken: tuple[SearchResult, Path], tmp_path: Path, stop: int
) -> None:
    events: list[SearchProgress] = []

    def interrupt(event: SearchProgress) -> None:
        events.append(event)
        if len(events) == stop:
            raise KeyboardInterrupt

    broken = _search(sampler="tpe", out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        broken.run(interrupt)
    # What was written is valid: the best so far, if a rung has ended.
    best = best_trial(broken.history)
    assert (tmp_path / "best.toml").is_file() == (best is not None)
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 1 + len(broken.history)
    resumed = _search(sampler="tpe", out=tmp_path, resume=True).run()
    assert _facts(resumed.trials) == _facts(unbroken[0].trials)
    assert not (tmp_path / "unfinished").exists()
    assert (tmp_path / "best.toml").read_text() == (unbroken[1] / "best.toml").read_text()
    optuna = pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.load_study(study_name=optuna.get_all_study_names(storage)[0], storage=storage)
    assert [trial.params["model.dropout"] for trial in study.trials] == [
        trial.values["model.dropout"] for trial in resumed.trials
    ]
    # A complete search is left as it is.
    again: list[SearchProgress] = []
    assert _facts(_search(sampler="tpe", out=tmp_path, resume=True).run(again.append).trials) == _facts(
        resumed.trials
    )
    assert not again


def test_a_stopped_search_leaves_pictures_and_goes_on_without_damaged_checkpoints(tmp_path: Path) -> None:
    events: list[SearchProgress] = []

    def interrupt(event: SearchProgress) -> None:
        events.append(event)
        if len(events) == 4:  # after the first rung of both groups, in the second one
            raise KeyboardInterrupt

    options = OPTIONS | {"trials": 4}
    with pytest.raises(KeyboardInterrupt):
        TuneRun(graphs(), CONFIG, out=tmp_path, **options).run(interrupt)
    assert (tmp_path / "history.svg").is_file()
    checkpoints = list((tmp_path / "unfinished").glob("*.checkpoint"))
    assert checkpoints
    for path in checkpoints:
        path.write_bytes(b"damaged")
    with pytest.warns(
        UserWarning, match=r"tune: .*\.checkpoint.* The file was removed, and its trials go on"
    ):
        resumed = TuneRun(graphs(), CONFIG, out=tmp_path, resume=True, **options).run()
    assert _facts(resumed.search.trials) == _facts(_search(trials=4).run().trials)


def test_a_time_limit_ends_the_search_with_a_result(tmp_path: Path) -> None:
    result = _search(out=tmp_path).run(minutes=1e-9)
    assert not result.complete
    assert len(result.trials) == 4  # proposed; the first epoch has ended
    assert _search(out=tmp_path, resume=True).run().complete


def test_the_labels_of_test_graphs_are_not_read() -> None:
    store = graphs()
    assert store.y is not None
    by_class = torch.stack([torch.where(store.y == c)[0][:4] for c in range(3)])  # [3, 4]
    split = Split(*(part.flatten().sort().values for part in by_class.split([2, 1, 1], 1)))
    y = store.y.clone()
    y[split.test] = y[split.test].roll(1)
    assert not torch.equal(y, store.y)
    trials = [
        Search(each, CONFIG, **(OPTIONS | {"trials": 4}), split=split).run().trials
        for each in (store, replace(store, y=y))
    ]
    assert _facts(trials[0]) == _facts(trials[1])
    assert split.validation is not None
    y = store.y.clone()
    y[split.validation] = y[split.validation].roll(1)
    other = Search(replace(store, y=y), CONFIG, **(OPTIONS | {"trials": 4}), split=split).run().trials
    assert _facts(other) != _facts(trials[0])


@pytest.mark.slow
def test_a_nested_search_scores_test_folds_that_it_has_not_seen(tmp_path: Path) -> None:
    store = graphs()
    assert store.y is not None
    options = OPTIONS | {"trials": 2, "batch": 2, "space": {"model": {"dropout": [0.0, 0.5]}}}
    run = TuneRun(store, CONFIG, nested=True, out=tmp_path, **options)
    result = run.run()
    nested = result.nested
    assert nested is not None
    assert len(nested.searches) == len(nested.nested) == len(nested.unnested) == 3
    assert nested.difference == pytest.approx(nested.unnested_accuracy - nested.accuracy)
    assert result.as_dict()["nested"]["difference"] == pytest.approx(nested.difference, abs=1e-4)
    assert (tmp_path / "nested" / "fold3" / "best.toml").is_file()
    assert json.loads((tmp_path / "nested.json").read_text()) == nested.as_dict()
    # Other labels of the graphs of the second test fold leave the search inside that fold as it is.
    y = store.y.clone()
    test = run.search.folds.held_out(1).test
    y[test] = (y[test] + 1) % 3
    changed = replace(store, y=y)
    part = changed[run.search.folds.paper(1).train]
    inner = Search(part, CONFIG, **options).run()
    assert _facts(inner.trials) == _facts(nested.searches[1].trials)


def test_outer_folds_are_scored_as_a_cross_validation_scores_them() -> None:
    store = graphs()
    folds = _search().folds
    device = torch.device("cpu")
    events: list[SearchProgress] = []
    configs = [CONFIG, CONFIG, CONFIG.with_training(epochs=5)]
    accuracies = held_out_accuracies(
        store, configs, folds, seed=0, device=device, part="nested", on_event=events.append
    )
    assert {(event.total, event.trials, event.part) for event in events} == {(13, 3, "nested")}
    assert all(event.is_scoring for event in events)
    assert sorted({event.work for event in events}) == [0, 2, 4, 6, 8, 9, 10, 11, 12, 13]
    assert [event.ended for event in events if event.work == 8][-1] == 2
    assert events[-1].ended == 3
    accuracies = held_out_accuracies(store, [CONFIG] * 3, folds, seed=0, device=device)
    result = graphcaps.cross_validate(store, CONFIG, folds=3, seeds=1, protocol="held-out", device="cpu")
    assert accuracies == pytest.approx(cross_validated(result).ravel())


def test_each_outer_fold_derives_its_settings_from_its_own_training_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, folds = graphs(), _search().folds
    trained: dict[int, int] = {}
    train_group = training_cells.train_group

    def resolve(config: RunConfig, part: GraphStore) -> RunConfig:
        return config.with_training(batch_size=part.num_nodes, epochs=1)

    def train(group: ReplicaGroup, inputs: Any, config: RunConfig, *rest: Any, **options: Any) -> Any:
        trained.update({replica.fold: config.training.batch_size for replica in group.replicas})
        return train_group(group, inputs, config, *rest, **options)

    monkeypatch.setattr(nested_search, "resolve_config", resolve)
    monkeypatch.setattr(training_cells, "train_group", train)
    held_out_accuracies(store, [CONFIG] * 3, folds, seed=0, device=torch.device("cpu"))
    assert trained == {fold: store[folds.paper(fold).train].num_nodes for fold in range(3)}
    assert len(set(trained.values())) > 1


def test_a_search_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = graphcaps.tune(graphs(), CONFIG, **(OPTIONS | {"trials": 2}))
    assert result.best_config.training.epochs == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trials": 0}, "'trials' must be a whole number from 1 to 100,000, got 0"),
        ({"batch": 0}, "'batch' must be a whole number from 1"),
        ({"reduction": 0}, "'reduction' must be a whole number from 1"),
        ({"seed": -1}, "'seed' must be a whole number from 0 on, got -1"),
        ({"folds": 2}, "'folds' must be at least 3"),
        ({"sampler": "grid"}, "'sampler' must be one of tpe, random"),
        ({"space": 3}, "'space' must be a SearchSpace"),
        ({"space": {"model": {"dropot": [0.1]}}}, "Did you mean 'dropout'"),
        ({"resume": True}, "--resume needs --out DIR"),
    ],
)
def test_bad_input(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphcapsError, match=words):
        _search(**changes)


def test_more_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="'minutes' must be above 0, got 0"):
        TuneRun(graphs(), CONFIG, minutes=0, **OPTIONS)
    with pytest.raises(ArgumentError, match="'model' must be a network"):
        Search(graphs(), replace(CONFIG, model="majority", model_arguments={}), **OPTIONS)
    split = Split(torch.arange(6), torch.arange(6, 9), torch.arange(9, 12))
    with pytest.raises(ArgumentError, match="'nested' must be left out with a split"):
        TuneRun(graphs(), CONFIG, nested=True, split=split, **OPTIONS)


def test_a_folder_of_another_search_is_refused(unbroken: tuple[SearchResult, Path]) -> None:
    _, out = unbroken
    with pytest.raises(DataError, match=r"this folder holds a search\. Add --resume"):
        _search(sampler="tpe", out=out)
    with pytest.raises(DataError, match=r"another one: seed 0 \(here 1\)"):
        _search(sampler="tpe", out=out, resume=True, seed=1)
    with pytest.raises(DataError, match="another one: sampler tpe"):
        _search(out=out, resume=True)
    with pytest.raises(DataError, match="another one: other graphs"):
        Search(graphs()[:11], CONFIG, **(OPTIONS | {"sampler": "tpe"}), out=out, resume=True)
    with pytest.raises(DataError, match=r"config\.training\.epochs 4 \(here 5\)"):
        Search(
            graphs(), CONFIG.with_training(epochs=5), **(OPTIONS | {"sampler": "tpe"}), out=out, resume=True
        )


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    for content in ("", "{}", '{"format": 1, "settings": 3, "trials": []}', "[1]"):
        (tmp_path / "search.json").write_text(content)
        with pytest.raises(DataError, match=r"search\.json: expected a search of format 1"):
            _search(out=tmp_path, resume=True)


def test_pictures(unbroken: tuple[SearchResult, Path]) -> None:
    result, out = unbroken
    pictures = search_pictures(result)
    for name, picture in pictures.items():
        assert picture == (out / name).read_bytes()
        assert b"planted-parts" in picture
    importances = option_importances(result)
    assert importances is not None
    assert sum(importances.values()) == pytest.approx(1)
    assert list(importances.values()) == sorted(importances.values(), reverse=True)
    few = replace(result, trials=result.trials[:3])
    assert option_importances(few) is None
    assert "importance.svg" not in search_pictures(few)


def test_an_option_with_one_value_has_no_importance(unbroken: tuple[SearchResult, Path]) -> None:
    result, _ = unbroken
    shared, *others = result.space.options
    value = result.trials[0].values[shared]
    trials = tuple(replace(trial, values=trial.values | {shared: value}) for trial in result.trials)
    importances = option_importances(replace(result, trials=trials))
    assert importances is not None
    assert set(importances) <= set(others)
    alike = tuple(replace(trial, values=result.trials[0].values) for trial in result.trials)
    assert option_importances(replace(result, trials=alike)) is None


def test_the_best_of_unfinished_trials_is_one_of_those_that_were_trained_longest() -> None:
    trials = [
        Trial(0, 0, {}, "dropped", {1: 0.1}),
        Trial(1, 0, {}, "running", {1: 0.3, 2: 0.3}),
        Trial(2, 0, {}, "running", {1: 0.2, 2: 0.25}),
        Trial(3, 0, {}),
    ]
    best = best_trial(trials)
    assert best is not None
    assert best.number == 2
    assert best_trial(trials[3:]) is None
