"""Accuracies are computed from the records, each from its protocol."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation import RULES, Ledger
from graphcaps.evaluation.epoch_records import LOSS_STEP
from graphcaps.evaluation.epoch_selection import best_common_epoch, best_epoch_per_fold, held_out, window_for
from graphcaps.evaluation.ledger import UPPER_BOUNDS, held_out_accuracies
from tests.evaluation.records import CONFIG, measured_record, record


def _ledger() -> Ledger:
    return Ledger(tuple(record(seed, protocol) for seed in (1, 0) for protocol in ("paper", "held-out")))


def test_each_accuracy_comes_from_its_protocol() -> None:
    ledger = _ledger()
    paper = [record(seed, "paper").curves for seed in (0, 1)]
    held_out_curves = [record(seed, "held-out").curves for seed in (0, 1)]
    assert ledger.C is not None
    assert ledger.C_star is not None
    assert ledger.held_out is not None
    assert ledger.optimism is not None
    means = [best_common_epoch(part.test_accuracy).mean for part in paper]
    assert ledger.C.mean == pytest.approx(sum(means) / 2)
    assert ledger.C_star.mean == pytest.approx(
        sum(best_epoch_per_fold(part.test_accuracy).mean for part in paper) / 2
    )
    chosen = [held_out(part.validation_loss * LOSS_STEP, part.test_accuracy).mean for part in held_out_curves]
    assert ledger.held_out.mean == pytest.approx(sum(chosen) / 2)
    common = [best_common_epoch(part.test_accuracy).mean for part in held_out_curves]
    assert ledger.optimism.mean == pytest.approx((sum(common) - sum(chosen)) / 2)
    assert ledger.C.seeds == (0, 1)


def test_a_rule_names_the_window_that_was_used() -> None:
    ledger = _ledger()
    window = window_for(ledger.records[0].curves.num_epochs)
    assert window < 21
    rule = f"(mean over {window} epoch{'' if window == 1 else 's'}); chosen without test data"
    assert ledger.rule("held-out").endswith(rule)
    assert ledger.summary()["figures"]["held-out"]["rule"] == ledger.rule("held-out")
    assert rule in repr(ledger)
    assert ledger.rule("C") == RULES["C"]


def test_accuracies_without_records_of_their_protocol_are_none() -> None:
    paper = Ledger((record(protocol="paper"),))
    assert (paper.held_out, paper.optimism, paper.protocols) == (None, None, ("paper",))
    ledger = Ledger((record(),))
    assert (ledger.C, ledger.C_star, ledger.protocols) == (None, None, ("held-out",))
    assert list(ledger.estimates) == ["held-out", "optimism"]


def test_description() -> None:
    ledger = _ledger()
    assert (ledger.dataset, ledger.variant, ledger.num_folds, ledger.folds_seed) == (
        "MUTAG",
        "hgcn",
        3,
        12345,
    )
    assert (ledger.seconds, ledger.hardware, ledger.notes) == (6.0, "2 cores", ("A note.",))
    assert ledger.protocols == ("held-out", "paper")
    assert [one.key.seed for one in ledger.of("paper")] == [0, 1]


def test_json_round_trip() -> None:
    ledger = _ledger()
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger
    assert again.estimates == ledger.estimates
    summary = json.loads(json.dumps(ledger.summary()))
    assert "records" not in summary
    assert summary["config"] == CONFIG.as_dict() | {"model": {"name": "hgcn", "num_capsules": [5]}}
    assert len(summary["per_seed"]) == 8
    assert summary["per_seed"][0]["epochs"]


def test_upper_bounds_are_labelled_everywhere() -> None:
    shown, summary = repr(_ledger()), _ledger().summary()["figures"]
    for name in UPPER_BOUNDS:
        assert "upper bound" in RULES[name]
        line = next(line for line in shown.splitlines() if line.startswith(f"  {name} "))
        assert "an upper bound: the epoch is chosen on test data" in line
        assert summary[name]["upper_bound"] is True
    assert "upper bound" not in RULES["held-out"]
    assert "± 2" in shown or "over seeds" in shown


def test_records_of_different_runs_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'records' must be at least one, got none"):
        Ledger(())
    with pytest.raises(ArgumentError, match="two of MUTAG, hgcn, held-out, seed 0"):
        Ledger((record(), record()))
    with pytest.raises(ArgumentError, match="all be of MUTAG, hgcn, got PTC_MR, hgcn, held-out, seed 1"):
        Ledger((record(), record(1, dataset="PTC_MR")))
    longer = record(1, config=CONFIG.with_training(epochs=9))
    with pytest.raises(ArgumentError, match="share the settings of MUTAG, hgcn, held-out, seed 0"):
        Ledger((record(), longer))


@pytest.mark.parametrize("text", ["", "[]", '{"format": "graphcaps ledger 1"}', '{"format": "x"}'])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"^here: expected "):
        Ledger.from_json(text, "here")


def test_seeds_of_the_protocols_may_differ() -> None:
    ledger = Ledger((record(0), record(1), replace(record(0, "paper"), seconds=2.0)))
    assert ledger.held_out is not None
    assert ledger.C is not None
    assert (ledger.held_out.seeds, ledger.C.seeds) == ((0, 1), (0,))
    assert ledger.C.std_seeds is None


def test_held_out_accuracies_average_to_the_held_out_estimate() -> None:
    ledger = Ledger(tuple(record(seed, "held-out") for seed in (0, 1)))
    accuracies = held_out_accuracies(ledger)
    assert accuracies.shape == (2, ledger.num_folds)
    assert ledger.held_out is not None
    assert 100 * accuracies.mean() == pytest.approx(ledger.held_out.mean)
    with pytest.raises(ArgumentError, match="records of the held-out protocol"):
        held_out_accuracies(Ledger((record(0, "paper"),)))


def test_twin_free_accuracy_is_of_the_seeds_that_were_counted() -> None:
    counted, earlier = measured_record(0), replace(measured_record(1), metrics=None)
    alone, both = Ledger((counted,)), Ledger((counted, earlier))
    assert both.held_out is not None
    assert both.held_out.seeds == (0, 1)
    assert both.twin_free is not None
    assert both.twin_free.seeds == (0,)
    assert both.twin_free == alone.twin_free
    assert both.twin_share == alone.twin_share
    assert Ledger((earlier,)).twin_free is None
    assert Ledger((earlier,)).twin_share is None
