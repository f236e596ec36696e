"""The batches of an epoch: every graph once, enough rows for every step, few bucket sizes."""

import pytest
import torch

from graphcaps.training.batch_schedule import bucket_size, schedule_epoch
from graphcaps.training.replicas import Replica


def _replica(train: list[int], fold: int = 0) -> Replica:
    none = torch.empty(0, dtype=torch.long)
    return Replica(torch.tensor(train), none, none, fold=fold)


def test_every_graph_occurs_once_and_the_rest_is_padding() -> None:
    sizes = torch.tensor([3, 1, 4, 1, 5, 9])
    replicas = [_replica([0, 1, 2, 3, 4]), _replica([5, 0], fold=1)]
    schedule = schedule_epoch(replicas, 7, 2, sizes)
    assert schedule.order.shape == (2, 6)
    for row, replica in zip(schedule.order, replicas, strict=True):
        assert row[row >= 0].tolist() == replica.order(7).tolist()
        assert (row[replica.train.numel() :] == -1).all()
    assert len(schedule.num_rows) == 3
    for step, num_rows in enumerate(schedule.num_rows):
        rows = [
            sum(int(sizes[g]) for g in row if g >= 0)
            for row in schedule.order[:, 2 * step : 2 * step + 2].tolist()
        ]
        assert num_rows == max(rows)


def test_unused_columns_are_dropped() -> None:
    schedule = schedule_epoch(
        [_replica([0, 1, 2]), _replica([0], fold=1)], 0, 8, torch.ones(3, dtype=torch.long)
    )
    assert schedule.order.shape == (2, 8)
    assert schedule.graphs(0).shape == (2, 3)  # fewer graphs than a batch


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 511, 512, 513, 4060, 99_999])
def test_a_bucket_fits_its_rows_with_little_padding(rows: int) -> None:
    bucket = bucket_size(rows)
    assert bucket >= max(rows, 1)
    assert bucket % 32 == 0  # kernels are compiled once for all multiples of 16
    assert bucket - rows <= max(32, rows / 16)
    assert bucket_size(bucket) == bucket


def test_steps_of_one_data_set_share_few_buckets() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(8, 60, (4000,), generator=generator)
    replicas = [_replica(list(range(f, 4000)), f) for f in range(10)]
    rows = [rows for epoch in range(5) for rows in schedule_epoch(replicas, epoch, 128, sizes).num_rows[:-1]]
    assert len({bucket_size(each) for each in rows}) <= 5


def test_a_fixed_number_of_batches_draws_each_from_all_graphs() -> None:
    sizes = torch.tensor([3, 1, 4, 1, 5, 9])
    replicas = [_replica([0, 1, 2, 3, 4]), _replica([5, 0], fold=1)]
    schedule = schedule_epoch(replicas, 7, 3, sizes, 40)
    assert schedule.order.shape == (2, 120)
    assert len(schedule.num_rows) == 40
    steps = schedule.order.view(2, 40, 3)
    assert all(len(set(batch)) == 3 and set(batch) <= {0, 1, 2, 3, 4} for batch in steps[0].tolist())
    assert all(set(batch) == {5, 0, -1} for batch in steps[1].tolist())  # two graphs in each batch of three
    assert steps[0].unique().tolist() == [0, 1, 2, 3, 4]
    assert len({tuple(sorted(batch)) for batch in steps[0].tolist()}) > 5
    assert schedule.num_rows[0] == max(14 - 2, int(sizes[steps[0, 0]].sum()))
    again = schedule_epoch(replicas, 7, 3, sizes, 40)
    assert torch.equal(again.order, schedule.order)
    assert not torch.equal(schedule_epoch(replicas, 8, 3, sizes, 40).order, schedule.order)
    alone = schedule_epoch(replicas[1:], 7, 3, sizes, 40)
    assert torch.equal(alone.order[0], schedule.order[1])
