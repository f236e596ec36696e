"""An epoch is drawn on the host: every graph once, room for every step."""

import pytest
import torch

from graphcaps.training.batch_schedule import bucket_size, schedule_epoch
from graphcaps.training.replicas import Replica


def _replica(train: list[int], fold: int = 0) -> Replica:
    none = torch.empty(0, dtype=torch.long)
    return Replica(torch.tensor(train), none, none, fold=fold)


def test_every_graph_once_and_the_rest_empty() -> None:
    sizes = torch.tensor([3, 1, 4, 1, 5, 9])
    replicas = [_replica([0, 1, 2, 3, 4]), _replica([5, 0], fold=1)]
    plan = schedule_epoch(replicas, 7, 2, sizes)
    assert plan.order.shape == (2, 6)
    for row, replica in zip(plan.order, replicas, strict=True):
        assert row[row >= 0].tolist() == replica.order(7).tolist()
        assert (row[replica.train.numel() :] == -1).all()
    assert len(plan.num_rows) == 3
    for step, slots in enumerate(plan.num_rows):
        rows = [
            sum(int(sizes[g]) for g in row if g >= 0)
            for row in plan.order[:, 2 * step : 2 * step + 2].tolist()
        ]
        assert slots == max(rows)


def test_columns_that_nobody_uses_are_left_out() -> None:
    plan = schedule_epoch([_replica([0, 1, 2]), _replica([0], fold=1)], 0, 8, torch.ones(3, dtype=torch.long))
    assert plan.order.shape == (2, 8)
    assert plan.graphs(0).shape == (2, 3)  # fewer graphs than a batch


@pytest.mark.parametrize("slots", [0, 1, 31, 32, 33, 511, 512, 513, 4060, 99_999])
def test_a_bucket_holds_its_step_and_wastes_little(slots: int) -> None:
    room = bucket_size(slots)
    assert room >= max(slots, 1)
    assert room % 32 == 0  # kernels are compiled for multiples of 16 once
    assert room - slots <= max(32, slots / 16)
    assert bucket_size(room) == room


def test_steps_of_one_data_set_share_few_buckets() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(8, 60, (4000,), generator=generator)
    replicas = [_replica(list(range(f, 4000)), f) for f in range(10)]
    slots = [
        slots for epoch in range(5) for slots in schedule_epoch(replicas, epoch, 128, sizes).num_rows[:-1]
    ]
    assert len({bucket_size(each) for each in slots}) <= 5
