"""Callbacks of the user: order of calls, errors, checkpoints, and the trackers of docs/tracking.md."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError
from graphcaps.training import Callback, CallbackError, EpochEnd, FinalTraining, TrainingLoop, train_final
from graphcaps.training.single_training import FinalResult

STORE = planted_parts(num_graphs=30)
CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2},
    training=TrainConfig(epochs=4, batch_size=16),
)
PAGE = Path(__file__).parents[2] / "docs" / "tracking.md"


class Recorder(Callback):
    """Keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.scalars: list[dict[str, float]] = []
        self.results: dict[str, float] = {}

    def on_start(self, loop: TrainingLoop) -> None:
        self.info = loop.info
        self.calls.append(f"start {loop.epoch}")

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        assert loop.complete
        self.calls.append(f"epoch {event.epoch}")
        self.scalars.append(loop.scalars(event))

    def on_interrupt(self, loop: TrainingLoop) -> None:
        self.calls.append("interrupt")

    def on_end(self, loop: TrainingLoop) -> None:
        self.calls.append("end")

    def on_result(self, results: Mapping[str, float]) -> None:
        self.calls.append("result")
        self.results = dict(results)


class Fails(Callback):
    """Raises in one method."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        if event.epoch == self.epoch:
            raise ValueError("no connection")


ORDER = ["start 0", *(f"epoch {epoch}" for epoch in range(1, 5)), "end", "result"]


def test_a_training_calls_in_order() -> None:
    recorder = Recorder()
    result = train_final(STORE, CONFIG, device="cpu", callbacks=[recorder])
    assert recorder.calls == ORDER
    assert recorder.info.name == "planted-parts-easy-hgcn"
    assert recorder.info.hyperparameters["model.capsule_dim"] == 8
    assert recorder.info.hyperparameters["training.epochs"] == 4
    assert recorder.scalars[2]["loss/train"] == result.history[2].train_loss[0]
    assert recorder.results["validation_accuracy"] == result.training["validation_accuracy"]
    terms = recorder.scalars[0]
    total = (
        terms["loss terms/margin"]
        + CONFIG.training.reconstruction_weight * terms["loss terms/reconstruction"]
    )
    assert terms["loss/train"] == pytest.approx(total, rel=1e-5)


def test_an_estimator_calls_in_order() -> None:
    recorder = Recorder()
    model = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=4, device="cpu", callbacks=[recorder]
    ).fit(STORE)
    assert recorder.calls == ORDER
    assert model.callbacks == [recorder]


def test_a_saved_estimator_has_no_callbacks(tmp_path: Path) -> None:
    model = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=1, device="cpu", callbacks=[Recorder()]
    ).fit(STORE)
    model.save(tmp_path / "model.safetensors")
    assert HGCNClassifier.load(tmp_path / "model.safetensors").callbacks is None


def test_a_cross_validation_names_its_replicas() -> None:
    recorder = Recorder()
    ledger = graphcaps.cross_validate(STORE, CONFIG, folds=3, seeds=2, group=3, callbacks=[recorder])
    one_group = ["start 0", *(f"epoch {epoch}" for epoch in range(1, 5)), "end"]
    assert recorder.calls == [*one_group, *one_group, "result"]
    assert recorder.info.replicas == tuple(f"held-out-seed1-fold{fold}" for fold in range(3))
    assert "held-out-seed1-fold2/accuracy/test" in recorder.scalars[-1]
    assert recorder.results["held-out_accuracy"] == pytest.approx(ledger.estimates["held-out"].mean / 100)


def test_stopped_replicas_are_left_out() -> None:
    training = FinalTraining(STORE, CONFIG, device="cpu")
    (event, *_) = training.run()
    training.loop.stopped[:] = 1
    assert training.loop.scalars(event)
    assert training.loop.scalars(training.history[1]) == {}


def test_a_callback_that_raises_is_one_sentence_and_the_epoch_is_kept(tmp_path: Path) -> None:
    path, recorder = tmp_path / "checkpoint", Recorder()
    broken = FinalTraining(STORE, CONFIG, device="cpu", callbacks=[recorder, Fails(3)])
    message = r"^The callback Fails failed in on_epoch_end of epoch 3: ValueError: no connection\. .* resume"
    with pytest.raises(CallbackError, match=message):
        list(broken.run(path))
    assert recorder.calls[-2:] == ["epoch 3", "interrupt"]
    resumed = FinalTraining(STORE, CONFIG, device="cpu", callbacks=[second := Recorder()])
    resumed.resume(path)
    list(resumed.run(path))
    assert second.calls == ["start 3", "epoch 4", "end"]
    whole = train_final(STORE, CONFIG, device="cpu").model.model.state_dict()
    weights = resumed.result().model.model.state_dict()
    assert all(torch.equal(weights[name], whole[name]) for name in whole)


class FailsAfter(Recorder):
    """Raises in the method that keeps the given call."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.call = call

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        super().on_epoch_end(loop, event)
        self._raise()

    def on_end(self, loop: TrainingLoop) -> None:
        super().on_end(loop)
        self._raise()

    def on_result(self, results: Mapping[str, float]) -> None:
        super().on_result(results)
        self._raise()

    def _raise(self) -> None:
        if self.calls[-1] == self.call:
            raise ValueError("no connection")


@pytest.mark.parametrize(
    ("call", "method"),
    [("epoch 4", "on_epoch_end of epoch 4"), ("end", "on_end"), ("result", "on_result")],
)
def test_a_callback_that_raises_after_the_last_epoch_loses_no_model(call: str, method: str) -> None:
    fails, other = FailsAfter(call), Recorder()
    sizes = {"capsule_dim": 8, "num_capsules": 3, "num_factors": 2, "epochs": 4, "device": "cpu"}
    model = HGCNClassifier(**sizes, random_state=0, callbacks=[fails, other])
    message = (
        rf"^The callback FailsAfter failed in {method}: ValueError: no connection\. All epochs are trained"
    )
    with pytest.raises(CallbackError, match=message) as caught:
        model.fit(STORE)
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.result, FinalResult)
    assert other.calls[-1] == "result"  # the other callbacks are called all the same
    assert model.n_iter_ == len(model.history_) == 4
    weights = model.model_.model.state_dict()
    sound = HGCNClassifier(**sizes, random_state=0).fit(STORE).model_.model.state_dict()
    assert all(torch.equal(weights[name], sound[name]) for name in sound)


def test_a_callback_that_raises_at_the_end_loses_no_result() -> None:
    message = r"on_result: ValueError: no connection\. All epochs are trained, and the result is kept\.$"
    with pytest.raises(CallbackError, match=message) as caught:
        graphcaps.cross_validate(STORE, CONFIG, folds=3, callbacks=[FailsAfter("result")])
    assert isinstance(caught.value.result, graphcaps.Ledger)
    with pytest.raises(CallbackError, match=message) as caught:
        train_final(STORE, CONFIG, device="cpu", callbacks=[FailsAfter("result")])
    assert isinstance(caught.value.result, FinalResult)


def test_a_cross_validation_resumes_after_a_callback_that_raises(tmp_path: Path) -> None:
    with pytest.raises(CallbackError, match="The callback Fails failed"):
        graphcaps.cross_validate(STORE, CONFIG, folds=3, results=tmp_path, callbacks=[Fails(2)])
    recorder = Recorder()
    resumed = graphcaps.cross_validate(
        STORE, CONFIG, folds=3, results=tmp_path, resume=True, callbacks=[recorder]
    )
    assert recorder.calls[:2] == ["start 2", "epoch 3"]
    whole = graphcaps.cross_validate(STORE, CONFIG, folds=3)
    assert (resumed.records[0].curves.test_accuracy == whole.records[0].curves.test_accuracy).all()


def test_an_interrupt_reaches_the_callbacks() -> None:
    class Stops(Recorder):
        def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
            super().on_epoch_end(loop, event)
            raise KeyboardInterrupt

    stops = Stops()
    with pytest.raises(KeyboardInterrupt):
        train_final(STORE, CONFIG, device="cpu", callbacks=[stops])
    assert stops.calls == ["start 0", "epoch 1", "interrupt"]


def test_classical_models_refuse_callbacks() -> None:
    forest = RunConfig(model="wl-forest")
    with pytest.raises(ArgumentError, match="'callbacks' must be left out with the model 'wl-forest'"):
        train_final(STORE, forest, callbacks=[Recorder()])
    with pytest.raises(ArgumentError, match="'callbacks' must be left out with the model 'wl-forest'"):
        graphcaps.cross_validate(STORE, forest, callbacks=[Recorder()])


# ---------------------------------------------------------------------- the page on tracking
class FakeWandb(types.ModuleType):
    """The functions of wandb that the page uses, with its signatures."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.logged: list[tuple[int | None, dict[str, Any]]] = []
        self.config: dict[str, Any] = {}
        self.finished = False
        self.run = types.SimpleNamespace(summary={})

    def init(
        self, entity: str | None = None, project: str | None = None, dir: Any = None, id: str | None = None,
        name: str | None = None, notes: str | None = None, tags: Any = None,
        config: dict[str, Any] | str | None = None, resume: bool | str | None = None,
    ) -> Any:  # fmt: skip
        assert isinstance(config, dict)
        assert id is None or not set(id) & set("/\\#?%:")
        self.config = config
        return self.run

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.logged.append((step, data))

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        self.finished = True


class FakeMlflow(types.ModuleType):
    """The functions of mlflow that the page uses, with its signatures."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.logged: list[tuple[int | None, dict[str, float]]] = []
        self.params: dict[str, Any] = {}

    def log_params(
        self, params: dict[str, Any], synchronous: bool | None = None, run_id: str | None = None
    ) -> None:
        self.params = params

    def log_metrics(
        self, metrics: dict[str, float], step: int | None = None, synchronous: bool | None = None,
        run_id: str | None = None, timestamp: int | None = None,
    ) -> None:  # fmt: skip
        for name in metrics:  # the characters that mlflow allows
            assert re.fullmatch(r"[\w.\-/ :]+", name), name
        self.logged.append((step, metrics))


def example(title: str, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> type[Callback]:
    """The callback of a section of docs/tracking.md."""
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    section = PAGE.read_text("utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    code = re.findall(r"```python\n(.*?)```", section, re.S)[0]
    definition = code.split("\n\nmodel = ")[0]
    names: dict[str, Any] = {}
    exec(definition, names)
    (found,) = [
        each for each in names.values()
        if isinstance(each, type) and issubclass(each, Callback) and each is not Callback
    ]  # fmt: skip
    body = [
        line for line in definition.splitlines() if line.strip() and not line.startswith(("import", "from"))
    ]
    assert len([line for line in body if not line.strip().startswith(("def", "class"))]) <= 5
    return found


def test_the_example_of_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb()
    callback = example("Weights & Biases", wandb, monkeypatch)
    train_final(STORE, CONFIG, device="cpu", callbacks=[callback()])
    assert wandb.config["model.capsule_dim"] == 8
    assert [step for step, _ in wandb.logged] == [1, 2, 3, 4]
    assert "accuracy/validation" in wandb.logged[0][1]
    assert "validation_accuracy" in wandb.run.summary
    assert wandb.finished


def test_the_example_of_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = FakeMlflow()
    callback = example("MLflow", mlflow, monkeypatch)
    train_final(STORE, CONFIG, device="cpu", callbacks=[callback()])
    assert mlflow.params["training.epochs"] == 4
    assert [step for step, _ in mlflow.logged] == [1, 2, 3, 4, None]
    assert "validation_accuracy" in mlflow.logged[-1][1]
