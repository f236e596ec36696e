"""Small steps take one thread, and whoever set the number of threads finds it again."""

from __future__ import annotations

import pytest
import torch

from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.training.device import SINGLE_THREAD_ROWS, limit_threads
from graphcaps.training.final_training import FinalTraining


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_small_steps_take_one_thread():
    cpu = torch.device("cpu")
    for rows, wanted in ((1, 1), (SINGLE_THREAD_ROWS, 1), (SINGLE_THREAD_ROWS + 1, 2)):
        with limit_threads(rows, cpu):
            assert torch.get_num_threads() == wanted
        assert torch.get_num_threads() == 2
    with limit_threads(1, torch.device("meta")):
        assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="inside"), limit_threads(1, cpu):
        raise ValueError("inside")
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("batch", "wanted"), [(4, 1), (64, 2)])
def test_a_training_chooses_by_its_steps(monkeypatch, batch, wanted):
    config = RunConfig(
        model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2},
        training=TrainConfig(epochs=1, batch_size=batch),
    )
    training = FinalTraining(planted_parts(num_graphs=90), config, device="cpu", validation=0)
    seen = []
    run = training.trainer._runner.run
    monkeypatch.setattr(
        training.trainer._runner, "run", lambda plan: (seen.append(torch.get_num_threads()), run(plan))
    )
    list(training.run())
    assert seen == [wanted]
    assert torch.get_num_threads() == 2
