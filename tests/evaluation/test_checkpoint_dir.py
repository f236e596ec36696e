"""Checkpoints are removed once their seeds have records, and finished groups free their memory."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from graphcaps.evaluation import cross_validate
from graphcaps.training import checkpoint_writer, multiprocess
from tests.evaluation.test_cross_validation import GIN, HGCN, STORE, _Stop


@pytest.mark.parametrize("group", [1, None])
def test_a_finished_group_frees_its_memory(group: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or groups, which are for little memory, would take as much as all replicas together."""
    import weakref

    from graphcaps.training.trainer import Trainer

    alive: list[weakref.ref[Any]] = []
    counts: list[int] = []
    run = Trainer.run_epoch

    def watched(self: Trainer) -> Any:
        if all(ref() is not self.model for ref in alive):
            alive.append(weakref.ref(self.model))
        counts.append(sum(ref() is not None for ref in alive))
        return run(self)

    monkeypatch.setattr(Trainer, "run_epoch", watched)
    cross_validate(STORE, HGCN.with_training(epochs=1), folds=3, protocol="both", group=group)
    assert len(alive) == (6 if group else 2)
    assert max(counts) == 1


def test_a_checkpoint_of_another_grouping_is_noted_and_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, GIN, folds=3, group=2, results=tmp_path, on_event=_Stop(2))
    (left,) = (tmp_path / "unfinished").iterdir()
    ledger = cross_validate(STORE, GIN, folds=3, results=tmp_path, resume=True)
    (note,) = ledger.notes
    assert (
        note == f"The checkpoint {left.name} was not used: other folds or seeds were trained together there."
    )
    assert not (tmp_path / "unfinished").exists()


def test_checkpoints_of_other_seeds_stay(tmp_path: Path) -> None:
    """A record of seed 0 says nothing about seed 1, or about another data set."""
    folder = tmp_path / "unfinished"
    folder.mkdir()
    kept = ["test--gin--held-out--seed1-folds0to2", "test--gin--held-out--seeds0to1-folds0to2",
            "test--gin--paper--seed0-folds0to2", "other--gin--held-out--seed0-folds0to2"]  # fmt: skip
    for name in [*kept, "test--gin--held-out--seed0-fold1"]:
        (folder / f"{name}.checkpoint").write_text("")
    cross_validate(STORE, GIN.with_training(epochs=1), folds=3, results=tmp_path, resume=True, group=3)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(kept)


def test_ctrl_c_during_a_copy_keeps_the_previous_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt inside a team ends its processes: nothing more can be asked of it."""
    if multiprocess._start_method() != "fork":  # depends on what ran before in this process
        pytest.skip("workers are not forked here")
    monkeypatch.setattr(checkpoint_writer, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_writer, "MAX_TIME_SHARE", 1e9)
    received, asked = multiprocess._receive, iter(range(10**6))

    def interrupted(pipe: Any, *arguments: Any) -> Any:
        if (
            sys._getframe(3).f_code.co_name == "state" and next(asked) == 3
        ):  # of two processes, the second copy
            raise KeyboardInterrupt
        return received(pipe, *arguments)

    monkeypatch.setattr(multiprocess, "_receive", interrupted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            cross_validate(STORE, HGCN, folds=3, results=tmp_path)
        (kept,) = (tmp_path / "unfinished").glob("*.checkpoint")
        assert int(safe_open(kept, "pt").get_tensor("state.epoch")) == 1
        monkeypatch.setattr(multiprocess, "_receive", received)
        resumed = cross_validate(STORE, HGCN, folds=3, results=tmp_path, resume=True).records
        assert resumed[0].curves == cross_validate(STORE, HGCN, folds=3).records[0].curves
    finally:
        torch.set_num_threads(before)
