"""Committees: members are the models of their seeds, calibrated together; resuming gives the same bits."""

import multiprocessing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.config import CommitteeConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.inference.disagreement import mutual_information
from graphcaps.inference.model_file import load
from graphcaps.inference.probabilities import probabilities
from graphcaps.models.classical import ClassicalModel
from graphcaps.models.lookup import find_model
from graphcaps.training import multiprocess, training_inputs
from graphcaps.training.calibration import PRIOR_STD, calibrate_probabilities
from graphcaps.training.final_training import FinalTraining, train_final
from graphcaps.training.single_training import FinalResult

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2, "dropout": 0.2},
    training=TrainConfig(epochs=5, batch_size=8, learning_rate=0.01),
)
FOREST = RunConfig(model="wl-forest", model_arguments={"trees": 5})
pytestmark = pytest.mark.filterwarnings("ignore::graphcaps.nn.capsule_use.CapsuleCollapseWarning")


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=30)


@pytest.fixture(scope="module")
def committee(store: GraphStore) -> FinalResult:
    return train_final(store, CONFIG, validation=0.2, device="cpu", members=3)


def same_bits(one: FinalResult, two: FinalResult) -> bool:
    pairs = zip(one.model.members, two.model.members, strict=True)
    states = [(a.state_dict(), b.state_dict()) for a, b in pairs]  # type: ignore[union-attr]
    return all(torch.equal(a[name], b[name]) for a, b in states for name in a.keys() | b.keys())


@pytest.fixture
def one_thread() -> None:
    """Members in this process: a pool of processes cannot be patched, and forks take longer than the training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("model", ["hgcn", "gin"])
def test_members_equal_their_seeds_trained_alone(
    model: str, store: GraphStore, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    encode = partial(training_inputs.encode_graphs, dtype=torch.float64)
    monkeypatch.setattr(training_inputs, "encode_graphs", encode)
    stack = partial(multiprocess.stack_replicas, dtype=torch.float64)
    monkeypatch.setattr(multiprocess, "stack_replicas", stack)
    arguments = CONFIG.model_arguments if model == "hgcn" else {"hidden": 8, "num_layers": 2}
    config = replace(CONFIG, model=model, model_arguments=arguments).with_training(learning_rate=0.05)
    store = store[torch.arange(20)]
    together = train_final(store, config, seed=4, device="cpu", members=3)
    validation = FinalTraining(store, config, seed=4, device="cpu").holdout.validation
    epochs = []
    for number, member in enumerate(together.model.members):
        alone = train_final(store, config, seed=4 + number, validation=validation, device="cpu")
        state, expected = member.state_dict(), alone.model.model.state_dict()  # type: ignore[union-attr]
        assert state["layers.0.weight" if model == "hgcn" else next(iter(state))].dtype == torch.float64
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=1e-9, atol=1e-9)
        entry = together.training["members"][number]
        assert (entry["seed"], entry["epoch"]) == (4 + number, alone.epoch)
        assert entry["validation_loss"] == pytest.approx(alone.training["validation_loss"])
        epochs.append(alone.epoch)
    assert together.epoch == max(epochs)
    if model == "hgcn":
        assert len({*epochs}) > 1, "choose a learning rate for which members keep different epochs"


def test_a_committee_of_one_is_the_single_model(store: GraphStore) -> None:
    single = train_final(store, CONFIG, device="cpu")
    one = train_final(store, CONFIG, device="cpu", members=1)
    assert same_bits(single, one)
    assert not one.model.is_committee
    untimed = {"seconds": None}
    assert one.training | untimed == single.training | untimed
    assert "members" not in one.training
    assert one.model.calibration == single.model.calibration
    assert one.model.disagreement_profile is None
    assert one.model.disagreement(store).tolist() == [0] * 30


def test_probabilities_are_averaged_after_a_common_temperature(
    committee: FinalResult, store: GraphStore
) -> None:
    model, calibration = committee.model, committee.model.calibration
    assert calibration is not None
    p = probabilities(model.member_scores(store), model.score_kind)
    assert p.shape == (3, 30, 3)
    average = np.mean([calibration.apply(each) for each in p], axis=0)
    np.testing.assert_allclose(model.predict_proba(store), average, atol=1e-15)
    np.testing.assert_allclose(model.scores(store), model.member_scores(store).mean(0))
    assert model.disagreement(store).min() > 0
    assert committee.training["validation_accuracy"] == committee.training["validation_metrics"]["accuracy"]


def test_the_temperature_minimises_the_log_loss_of_the_average() -> None:
    generator = np.random.default_rng(0)
    p, y = generator.dirichlet([1, 1, 1], (4, 300)), generator.integers(0, 3, 300)
    fitted = calibrate_probabilities(p, y, "temperature").temperature

    def loss(temperature: float) -> float:
        powers = p ** (1 / temperature)
        mean = (powers / powers.sum(-1, keepdims=True)).mean(0)
        prior = np.log(temperature) ** 2 / (2 * PRIOR_STD**2)
        return float(prior - np.log(mean[np.arange(300), y]).sum())

    assert loss(fitted) < min(loss(1.01 * fitted), loss(0.99 * fitted))
    alone = calibrate_probabilities(p[0], y, "temperature").temperature
    assert calibrate_probabilities(p[:1], y, "temperature").temperature == alone  # bit by bit
    isotonic = calibrate_probabilities(p, y, "isotonic")
    assert isotonic.graphs == 300
    assert isotonic.apply(p).sum(-1) == pytest.approx(1)


def test_the_file_gives_the_same_committee(committee: FinalResult, store: GraphStore, tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    committee.model.save(path)
    loaded = load(path)
    assert len(loaded.members) == 3
    assert loaded.disagreement_profile == committee.model.disagreement_profile
    np.testing.assert_array_equal(loaded.predict_proba(store), committee.model.predict_proba(store))
    np.testing.assert_array_equal(loaded.disagreement(store), committee.model.disagreement(store))
    assert loaded.info()["model"]["members"] == 3
    assert loaded.info()["training"]["members"] == committee.training["members"]


@pytest.mark.parametrize("stop", [1, 4])
def test_a_resumed_committee_has_the_same_bits(
    stop: int, store: GraphStore, committee: FinalResult, tmp_path: Path
) -> None:
    interrupted = FinalTraining(store, CONFIG, validation=0.2, device="cpu", members=3)
    for _ in range(stop):
        next(interrupted.run())
    interrupted.save(tmp_path / "c")
    resumed = FinalTraining(store, CONFIG, validation=0.2, device="cpu", members=3)
    resumed.resume(tmp_path / "c")
    assert len([*resumed.run()]) == 5 - stop
    assert same_bits(resumed.result(), committee)
    smaller = FinalTraining(store, CONFIG, validation=0.2, device="cpu", members=2)
    with pytest.raises(DataError, match=r"seed \[0, 1, 2\] \(here \[0, 1\]\)"):
        smaller.resume(tmp_path / "c")


def test_a_configuration_can_state_the_members(
    store: GraphStore, committee: FinalResult, tmp_path: Path
) -> None:
    config = replace(CONFIG, committee=CommitteeConfig(3))
    interrupted = FinalTraining(store, CONFIG, validation=0.2, device="cpu", members=3)
    next(interrupted.run())
    interrupted.save(tmp_path / "c")
    stated = FinalTraining(store, config, validation=0.2, device="cpu")
    assert (stated.fingerprint, stated.config) == (interrupted.fingerprint, interrupted.config)
    stated.resume(tmp_path / "c")
    assert len([*stated.run()]) == 4
    result = stated.result()
    assert same_bits(result, committee)
    assert result.model.config.committee == CommitteeConfig()  # the file states the members
    assert len(FinalTraining(store, config, validation=0.2, device="cpu", members=2).replicas) == 2
    with pytest.raises(ArgumentError, match="'members' must be 1 for 'majority'"):
        train_final(store, RunConfig(model="majority", committee=CommitteeConfig(3)))


def test_members_that_stop_at_different_epochs_are_resumed_alike(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.WINDOW", 2)
    config = CONFIG.with_training(epochs=30, learning_rate=0.05)
    store = store[torch.arange(20)]

    def training() -> FinalTraining:
        return FinalTraining(store, config, validation=0.2, device="cpu", members=3, patience=2)

    whole = training()
    epochs = len([*whole.run()])
    expected = whole.result()
    assert epochs < 30, "choose a patience that ends the training"
    assert len({entry["epoch"] for entry in expected.training["members"]}) > 1
    for stop in (1, epochs - 1):
        interrupted = training()
        for _ in range(stop):
            next(interrupted.run())
        interrupted.save(tmp_path / "c")
        resumed = training()
        resumed.resume(tmp_path / "c")
        assert len([*resumed.run()]) == epochs - stop
        assert same_bits(resumed.result(), expected)


def test_a_fit_ends_its_processes(store: GraphStore) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = set(multiprocessing.active_children())
        seen = []
        train_final(
            store,
            CONFIG.with_training(epochs=1),
            device="cpu",
            members=2,
            on_epoch=lambda _: seen.extend(multiprocessing.active_children()),
        )
        assert set(seen) - before, "the members were not trained in processes of their own"
        assert set(multiprocessing.active_children()) == before
    finally:
        torch.set_num_threads(threads)


def test_fine_tuning_starts_each_member_from_its_own(store: GraphStore, committee: FinalResult) -> None:
    training = FinalTraining(store, CONFIG, device="cpu", start=committee.model, members=3)
    weights = training.trainer.weights()
    for number, member in enumerate(committee.model.members):
        for name, value in member.state_dict().items():  # type: ignore[union-attr]
            assert torch.equal(weights[name][number], value), name
    with pytest.raises(ArgumentError, match=r"'start' must have 2 members, as the training, got 3\."):
        FinalTraining(store, CONFIG, device="cpu", start=committee.model, members=2)


@pytest.mark.parametrize("members", [0, -1, 2.0, True, 1001])
def test_a_wrong_number_of_members_is_refused(store: GraphStore, members: int) -> None:
    message = r"train: 'members' must be a whole number from 1 to 1,000, got"
    with pytest.raises(ArgumentError, match=message):
        train_final(store, CONFIG, device="cpu", members=members)


def test_forests_of_different_seeds_are_members(store: GraphStore) -> None:
    result = train_final(store, FOREST, seed=2, members=2)
    assert [member.seed for member in result.model.members] == [2, 3]  # type: ignore[union-attr]
    validation = FinalTraining(store, CONFIG, seed=2, device="cpu").holdout.validation
    alone = train_final(store, FOREST, seed=3, validation=validation)
    scores = result.model.member_scores(store)
    assert torch.equal(scores[1], alone.model.scores(store))
    assert not torch.equal(scores[0], scores[1])
    assert result.history[0].validation_loss[1] == alone.history[0].validation_loss[0]
    assert [entry["seed"] for entry in result.training["members"]] == [2, 3]
    np.testing.assert_allclose(
        result.model.disagreement(store),
        mutual_information(result.model.member_probabilities(store)),
    )


@pytest.mark.parametrize("name", ["majority", "wl", "gk"])
def test_models_that_do_not_use_the_seed_have_no_committee(store: GraphStore, name: str) -> None:
    kind = find_model(name)
    assert issubclass(kind, ClassicalModel)
    assert not kind.uses_seed
    message = f"'members' must be 1 for '{name}', whose fit does not depend on the seed"
    with pytest.raises(ArgumentError, match=message):
        train_final(store, RunConfig(model=name), members=2)
