"""GPUs of learners, how these connect, and how long they compute; parameters and buffers as views of flat weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_gpu import fake_gpu
from learner_threads import NormalisedNet, train_alone
from torch import nn
from torch.distributed import HashStore

from asrtool.distributed import world
from asrtool.distributed.transport.device import GpuClock
from asrtool.distributed.weights.flat import FlatWeights, counters, float_buffers
from asrtool.distributed.world import World, choose_gpu


def test_each_learner_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        choose_gpu()
    assert chosen == [0, 1, 0]


@pytest.mark.parametrize(
    ("num_gpus", "expected"), [((2, 2, 2), "cpu:gloo,cuda:nccl"), ((2, 1, 2), "gloo"), ((2, 2, 0), "gloo")]
)
def test_nccl_connects_learners_only_where_each_has_a_gpu_of_its_own(
    num_gpus: tuple[int, ...], expected: str, monkeypatch
) -> None:
    """NCCL refuses two learners on a GPU, and learners of two backends would wait for ever."""
    store, backends = HashStore(), []
    monkeypatch.setattr(world.collectives, "init_process_group", lambda backend, **_: backends.append(backend))
    monkeypatch.setattr(world, "choose_gpu", lambda: None)
    for rank in (2, 1, 0):
        for other in range(rank):  # what others have written by then
            own = num_gpus[other] >= 2
            store.set(f"collectives/gpu/{other}", str(own))
        monkeypatch.setattr(torch.cuda, "device_count", lambda rank=rank: num_gpus[rank])
        world.init_collectives(World(rank, 3, 2, store))
    assert backends == [expected] * 3


def test_the_learners_of_a_group_have_the_address_of_all() -> None:
    assert World(address="10.1.0.5").split([[0]]).address == "10.1.0.5"


class Event:
    """Recorded at 1, 2, 4, 8, ... ms; asked for spans only after the GPU has been waited for."""

    num = 0
    waited = 0  # events that were recorded before

    def record(self) -> None:
        self.number = Event.num
        Event.num += 1

    def elapsed_time(self, end: Event) -> float:
        assert max(self.number, end.number) < Event.waited, "the GPU has not come to it"
        return float(2**end.number - 2**self.number)


def test_on_a_gpu_spans_are_those_of_the_step_before_which_nothing_waits_for(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: Event())
    clock, found = GpuClock(), []
    Event.num = Event.waited = 0
    for _ in range(3):
        begin = clock.mark()
        Event.waited = Event.num - 1  # the norm of the gradients waits for all that was given before the step
        waited, end = clock.mark(), clock.mark()
        found.append(clock.seconds((begin, waited), (waited, end)))
    assert found == [[0.0, 0.0], [0.001, 0.002], [0.008, 0.016]]


EVERY = ["adpsgd-fixed", "adpsgd-random", "adpsgd-pairs", "adpsgd-d1", "h-adpsgd", "bmuf", "ps-async", "ps-sync"]


def test_columns_of_a_matrix_keep_their_values_and_those_of_their_neighbours() -> None:
    model = nn.Linear(3, 2)
    for number, column in enumerate(torch.arange(160.0).view(40, 4).unbind(1)):
        model.register_buffer(f"column{number}", column)
    model.register_buffer("repeated", torch.ones(1).expand(7))
    model.register_buffer("last", torch.ones(300))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    FlatWeights(model)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor, before[name], name)


def test_buffers_follow_the_parameters_which_lie_as_without_them() -> None:
    model = NormalisedNet()
    weights, without = FlatWeights(model), FlatWeights(NormalisedNet(), with_buffers=False)
    assert torch.equal(weights.weights_P[: weights.num_weights], without.weights_P)
    with torch.no_grad():
        model.norm.running_mean += 1
    model.largest = torch.tensor(5.0)
    weights.fetch_buffers()
    expected = [[5], [1] * 5, [1] * 5]  # the one that was replaced, means, variances
    assert [view.flatten().tolist() for view in weights.views[len(weights.parameters) :]] == expected
    weights.weights_P *= 2
    assert model.largest == 10
    assert model.norm.running_var.tolist() == [2] * 5
    assert model.norm.num_batches_tracked.dtype == torch.int64
    assert model.unsaved.tolist() == [1] * 3


@pytest.mark.parametrize("name", EVERY)
def test_one_learner_on_a_gpu_trains_as_on_the_host(name: str) -> None:
    on_host = train_alone(name, "adamw")
    with fake_gpu():
        np.testing.assert_array_equal(train_alone(name, "adamw"), on_host)


def test_statistics_are_averaged_and_numbers_that_have_an_order_counted() -> None:
    model = nn.BatchNorm1d(2, affine=False)
    model.register_buffer("rotations", torch.ones(2, dtype=torch.complex64))
    model.register_buffer("scratch", torch.ones(2), persistent=False)
    assert [buffer.name for buffer in float_buffers(model)] == ["running_mean", "running_var"]
    assert [buffer.name for buffer in counters(model)] == ["num_batches_tracked"]
