"""A source of a person's own, a stream of unknown length, trains as the shards do; mixes of two corpora."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learners import batches_trained
from own_components import Streaming
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

from asrtool.data.batches import plan_epoch
from asrtool.data.storage.index import read_index, write_index
from asrtool.errors import AsrtoolError
from asrtool.settings.toml_files import load_config
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Epoch
from asrtool.train.optimisation.learning_rate import learning_rate

NUM_PROCESSES = 2  # of learners
NUM_EPOCHS = 3
OWN = "train.source=own_components:Streaming"


def source_of(toy: Path, toy_config: Path, *overrides: str) -> Streaming:
    source = components_of(toy, toy_config, OWN, *overrides).train_set
    assert isinstance(source, Streaming)
    return source


def epochs_of(source: Streaming) -> list[list[tuple[int, ...]]]:
    """Epoch -> batch -> positions in the index, each epoch planned on from the last one."""
    epochs, state = [], dict[str, Any]()
    for number in range(NUM_EPOCHS):
        epoch = Epoch(source, number, 0, state)
        size = epoch.extend(10**6)
        epochs.append([epoch.batch(position).content for position in range(size)])
        state = epoch.state(size)
    return epochs


def assert_all_trained_and_counted(source: Streaming, out: Path) -> None:
    """Each batch of the plan once, with the samples that it and those before it have."""
    epochs = epochs_of(source)
    expected = {(number, i) for number, epoch in enumerate(epochs, 1) for i in range(len(epoch))}
    assert batches_trained(out) == Counter(expected)
    assert summary(out)["num_samples"] == sum(len(batch) for epoch in epochs for batch in epoch)
    assert [line["samples"] for line in metrics(out, "dev")] == [24, 48, 72]


def test_one_learner_trains_by_it_counts_every_sample_and_resumes_to_the_same_bits(
    toy, toy_config, train_toy, tmp_path
) -> None:
    """It is ended in the middle of an epoch; with more samples than estimated the learning rate stays at its last."""
    whole, out, own = tmp_path / "whole", tmp_path / "train", (OWN, "train.Streaming.estimate=20")
    expected = train_toy(whole, *own)
    with interrupted_at(1, 4):
        train_toy(out, *own)
    assert_same_bits(train_toy(out, *own), expected)
    assert metric_steps(out) == metric_steps(whole)
    source, samples = source_of(toy, toy_config), 0
    epochs = epochs_of(source)
    assert_all_trained_and_counted(source, out)
    for record in json_lines(out / "learners" / "0.jsonl"):
        samples += len(epochs[record["epoch"] - 1][record["batch"]])
        assert record["samples"] == samples
    losses, settings = dev_losses(out), load_config([toy_config]).train
    assert losses[-1] < losses[0]
    for line in metrics(out, "train"):
        assert line["lr"] == learning_rate(settings, min(line["samples"], 60), 60)


def test_a_stream_has_each_utterance_once_an_epoch_and_is_read_no_further_than_asked(toy, toy_config) -> None:
    source = source_of(toy, toy_config, "train.Streaming.batch=5")
    for epoch in epochs_of(source):
        assert [len(batch) for batch in epoch] == [5, 5, 5, 5, 4]
        assert sorted(i for batch in epoch for i in batch) == list(range(24))
    source.lines_read.clear()
    epoch = Epoch(source, 0)
    assert [epoch.extend(2), source.lines_read] == [2, list(range(10))]
    assert [epoch.extend(2), source.lines_read] == [2, list(range(10))]
    assert [epoch.extend(9), source.lines_read] == [5, list(range(24))]
    source.lines_read.clear()
    resumed = Epoch(source, 0, 3, epoch.state(3))
    assert [resumed.extend(9), source.lines_read] == [5, list(range(15, 24))]
    assert resumed.num_samples(range(3, 5)) == epoch.num_samples(range(3, 5)) == 9


@pytest.mark.parametrize("strategy", ["allreduce", "adpsgd-random"])
def test_two_learners_train_each_batch_once(learners, toy, toy_config, tmp_path, strategy: str) -> None:
    learners.run(run_training, toy, toy_config, tmp_path / "train", (OWN, f"distributed.strategy={strategy}"))
    assert_all_trained_and_counted(source_of(toy, toy_config), tmp_path / "train")


def test_a_source_may_bring_what_it_is_evaluated_with(train_toy, undisturbed, tmp_path: Path) -> None:
    found = train_toy(tmp_path / "train", "train.source=own_components:OwnDev")
    assert_same_bits(found, last_weights(undisturbed()))
    assert summary(tmp_path / "train")["dev_loss"] != summary(undisturbed())["dev_loss"]


NUM_LARGE, NUM_SMALL = 19, 5  # of 24; the second of three shards has some of each
MIXES = {"large:1,small:1": (12, 12), "temperature:2": (16, 8), "large:1,small:3": (6, 18)}


@pytest.fixture(scope="module")
def two(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy task, its training set from two corpora; to be read only."""
    root = tmp_path_factory.mktemp("two")
    shutil.copytree(toy, root, dirs_exist_ok=True)
    directory = root / "features" / "train"
    of_each = ["small" if i in (8, 11, 13, 16, 20) else "large" for i in range(24)]
    index = read_index(directory)
    write_index(directory, [dataclasses.replace(u, corpus=name) for u, name in zip(index, of_each, strict=True)])
    return root


@pytest.fixture
def mixed(two: Path, toy_config: Path) -> Callable[..., Shards]:
    def build(*overrides: str) -> Shards:
        source = components_of(two, toy_config, *overrides).train_set
        assert isinstance(source, Shards)
        return source

    return build


def corpora_of(source: Shards, epoch: int) -> Counter[str]:
    """Corpus -> utterances in the batches of an epoch, as they are read."""
    index = {utterance.id: utterance.corpus for utterance in source.reader.index}
    return Counter(index[name] for batch in source.load(source.plan(epoch, 0, {})) for name in batch.ids)


def test_by_default_the_plan_is_that_of_one_set_of_utterances(mixed, toy: Path, toy_config: Path) -> None:
    """Training files from before there were mixes."""
    source, single = mixed(), components_of(toy, toy_config)
    for epoch in range(3):
        plan = [list(batch.content[1]) for batch in source.plan(epoch, 0, {})]
        assert plan == [list(batch.content[1]) for batch in single.train_set.plan(epoch, 0, {})]
        of_lengths = plan_epoch(source.lengths, source.max_frames, source.seed, epoch)
        assert plan == [list(batch.indices) for batch in of_lengths]
        assert corpora_of(source, epoch) == {"large": NUM_LARGE, "small": NUM_SMALL}


@pytest.mark.parametrize("mix", ["hours", *MIXES])
def test_every_epoch_has_as_many_of_each_corpus_as_the_mix_says_and_they_are_said_to_give(mixed, mix: str) -> None:
    source = mixed(f"data.mix={mix}", "augment.tempo=[0.8, 1.2]")
    index = {utterance.id: utterance.corpus for utterance in source.reader.index}
    num, frames = Counter[str](), Counter[str]()
    for batch in source.load(source.plan(1, 0, {})):
        for name, length in zip(batch.ids, batch.input_lens_N.tolist(), strict=True):
            num[index[name]] += 1
            frames[index[name]] += length
    assert num.total() == source.size().num_samples == 24
    if mix in MIXES:
        assert num == dict(zip(("large", "small"), MIXES[mix], strict=True))
        assert corpora_of(source, 2) == num
    source.close()
    found = source.portions(1)
    assert {name: part.num_samples for name, part in found.items()} == num
    assert {name: part.hours for name, part in found.items()} == pytest.approx(
        {name: length / 360_000 for name, length in frames.items()}
    )
    assert {name: part.fraction for name, part in found.items()} == {name: n / 24 for name, n in num.items()}


def test_each_epoch_is_reported_once_as_it_begins_also_where_training_is_resumed(
    two, toy_config, tmp_path, caplog
) -> None:
    with caplog.at_level(logging.INFO):
        with interrupted_at(1, 4):
            run_training(two, toy_config, tmp_path / "train", ["data.mix=large:1,small:3"])
        run_training(two, toy_config, tmp_path / "train", ["data.mix=large:1,small:3"])
    begun = [message for message in dict.fromkeys(caplog.messages) if "utterances (" in message]
    assert len(begun) == NUM_EPOCHS
    for number, message in enumerate(begun, 1):
        assert message == f"epoch {number}/3: large 6 utterances (25.0 %), 0.00 h; small 18 utterances (75.0 %), 0.00 h"
    assert caplog.messages.index(begun[1]) > next(
        i for i, message in enumerate(caplog.messages) if message.startswith("epoch 1/3: loss on dev")
    )
    lines = [line for line in metrics(tmp_path / "train") if line["kind"].startswith("corpus/")]
    assert [(line["epoch"], line["kind"]) for line in lines] == [
        (epoch, f"corpus/{name}") for epoch in (1, 2, 3) for name in ("large", "small")
    ]
    assert [(line["utterances"], line["fraction"]) for line in lines] == 3 * [(6, 0.25), (18, 0.75)]
    assert lines[0]["step"] == 0 < lines[2]["step"] < lines[4]["step"]
    assert all(0 < line["hours"] < 1 for line in lines)


def test_weights_of_other_corpora_than_those_of_the_features_are_refused(mixed, two: Path) -> None:
    with pytest.raises(AsrtoolError) as error:
        mixed("data.mix=large:1,tiny:1")
    assert str(error.value) == (
        f"{two}/features/train: data.mix weighs tiny, not trained on; expected a weight for each of large, small;"
        " correct data.mix, or run the stages from prepare on again"
    )


def test_a_source_that_mixes_nothing_is_refused(mixed) -> None:
    assert not Streaming.mixes
    message = (
        r"train\.source = own_components:Streaming mixes no corpora, but data\.mix is by hours; leave out data\.mix"
    )
    with pytest.raises(AsrtoolError, match=message):
        mixed("data.mix=hours", "train.source=own_components:Streaming")
