"""Sources of a person's own train as the shards do: a stream of unknown length, and a weighted mixture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from learners import Learners, batches_trained
from own_components import Mixture, Own, Streaming
from toy_task import assert_same_bits, last_weights
from trainings import (
    components_of,
    dev_losses,
    interrupted_at,
    json_lines,
    metric_steps,
    metrics,
    run_training,
    summary,
)

from asrtool.settings.toml_files import load_config
from asrtool.train.batches.source import Epoch
from asrtool.train.optimisation.learning_rate import learning_rate

NUM_PROCESSES = 2  # of learners
NUM_EPOCHS = 3
SAMPLES = {"Streaming": 24, "Mixture": 20}  # of an epoch
every_source = pytest.mark.parametrize("name", SAMPLES)


def source_of(toy: Path, toy_config: Path, name: str, *overrides: str) -> Own:
    source = components_of(toy, toy_config, f"train.source=own_components:{name}", *overrides).train_set
    assert isinstance(source, Own)
    return source


def epochs_of(source: Own, num_epochs: int = NUM_EPOCHS) -> list[list[tuple[int, ...]]]:
    """Epoch -> batch -> positions in the index, each epoch planned on from the last one."""
    epochs, state = [], dict[str, Any]()
    for number in range(num_epochs):
        epoch = Epoch(source, number, 0, state)
        size = epoch.extend(10**6)
        epochs.append([epoch.batch(position).content for position in range(size)])
        state = epoch.state(size)
    return epochs


def assert_all_trained_and_counted(source: Own, out: Path, samples_of_epoch: int) -> None:
    """Each batch of the plan once, with the samples that it and those before it have."""
    epochs = epochs_of(source)
    expected = {(number, i) for number, epoch in enumerate(epochs, 1) for i in range(len(epoch))}
    assert batches_trained(out) == Counter(expected)
    final = summary(out)
    assert final["num_samples"] == sum(len(batch) for epoch in epochs for batch in epoch)
    assert final["num_samples"] == NUM_EPOCHS * samples_of_epoch
    lines = metrics(out)
    assert [line["samples"] for line in lines if line["kind"] == "dev"] == [
        samples_of_epoch * number for number in range(1, NUM_EPOCHS + 1)
    ]


@every_source
def test_one_learner_trains_by_it_counts_every_sample_and_resumes_to_the_same_bits(
    toy: Path, toy_config: Path, train_toy, tmp_path: Path, name: str
) -> None:
    """It is ended in the middle of an epoch."""
    whole, out, own = tmp_path / "whole", tmp_path / "train", f"train.source=own_components:{name}"
    expected = train_toy(whole, own)
    with interrupted_at(1, 4):
        train_toy(out, own)
    assert_same_bits(train_toy(out, own), expected)
    assert metric_steps(out) == metric_steps(whole)
    source, samples = source_of(toy, toy_config, name), 0
    assert_all_trained_and_counted(source, out, SAMPLES[name])
    for record in json_lines(out / "learners" / "0.jsonl"):
        samples += len(epochs_of(source)[record["epoch"] - 1][record["batch"]])
        assert record["samples"] == samples
    losses = dev_losses(out)
    assert losses[-1] < losses[0]


def test_a_stream_has_each_utterance_once_an_epoch_and_is_read_no_further_than_asked(
    toy: Path, toy_config: Path
) -> None:
    source = source_of(toy, toy_config, "Streaming", "train.Streaming.batch=5")
    for epoch in epochs_of(source):
        assert [len(batch) for batch in epoch] == [5, 5, 5, 5, 4]
        assert sorted(i for batch in epoch for i in batch) == list(range(24))
    assert isinstance(source, Streaming)
    source.lines_read.clear()
    epoch = Epoch(source, 0)
    assert [epoch.extend(2), source.lines_read] == [2, list(range(10))]
    assert [epoch.extend(2), source.lines_read] == [2, list(range(10))]
    assert [epoch.extend(9), source.lines_read] == [5, list(range(24))]
    source.lines_read.clear()
    resumed = Epoch(source, 0, 3, epoch.state(3))
    assert [resumed.extend(9), source.lines_read] == [5, list(range(15, 24))]
    assert resumed.num_samples(range(3, 5)) == epoch.num_samples(range(3, 5)) == 9


def test_a_mixture_draws_by_weight_and_continues_in_each_part_where_the_last_epoch_ended(
    toy: Path, toy_config: Path
) -> None:
    source = source_of(toy, toy_config, "Mixture", "train.Mixture.num_samples=400")
    assert isinstance(source, Mixture)
    drawn = Counter(i for epoch in epochs_of(source) for batch in epoch for i in batch)
    parts = [[drawn[i] for i in part] for part in source.parts()]
    assert sum(map(sum, parts)) == 3 * 400
    assert sum(parts[0]) / (3 * 400) == pytest.approx(0.75, abs=0.04)
    for counts in parts:
        assert max(counts) - min(counts) <= 1


@every_source
@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random"])
def test_two_learners_train_each_batch_once(
    learners: Learners, toy: Path, toy_config: Path, tmp_path: Path, name: str, strategy: str
) -> None:
    overrides = (f"train.source=own_components:{name}", f"distributed.strategy={strategy}")
    learners.run(run_training, toy, toy_config, tmp_path / "train", overrides)
    assert_all_trained_and_counted(source_of(toy, toy_config, name), tmp_path / "train", SAMPLES[name])


def test_where_there_are_more_samples_than_estimated_the_learning_rate_stays_at_its_last(
    train_toy, tmp_path: Path
) -> None:
    train_toy(tmp_path / "train", "train.source=own_components:Streaming", "train.Streaming.estimate=20")
    lines = metrics(tmp_path / "train")
    found = {line["samples"]: line["lr"] for line in lines if line["kind"] == "train"}
    settings = load_config([tmp_path / "toy.toml"]).train
    assert max(found) == 72
    for samples, rate in found.items():
        assert rate == learning_rate(settings, min(samples, 60), 60)


def test_a_source_may_bring_what_it_is_evaluated_with(train_toy, tmp_path: Path) -> None:
    losses = []
    for name in ("shards", "own_components:OwnDev"):
        out = tmp_path / name.partition(":")[0]
        train_toy(out, "train.num_epochs=1", f"train.source={name}")
        final = summary(out)
        losses.append(final["dev_loss"])
    assert losses[0] != losses[1]
    assert_same_bits(last_weights(tmp_path / "shards"), last_weights(tmp_path / "own_components"))
