"""Training on two corpora of different sizes: what each epoch has of them, however it is planned, trained or ended."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from own_components import Streaming
from toy_task import assert_same_bits, last_weights
from trainings import components_of, interrupted_at, metric_steps, metrics, run_training

from asrtool.data.batches import plan_epoch
from asrtool.data.storage.index import read_index, write_index
from asrtool.errors import AsrtoolError
from asrtool.train.batches.shard_source import Shards

NUM_LARGE, NUM_SMALL = 19, 5  # of 24; the second of three shards has some of each
MIXES = {"large:1,small:1": (12, 12), "temperature:2": (16, 8), "large:1,small:3": (6, 18)}
NUM_EPOCHS = 3


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
def source_of(two: Path, toy_config: Path) -> Callable[..., Shards]:
    def build(*overrides: str) -> Shards:
        source = components_of(two, toy_config, *overrides).train_set
        assert isinstance(source, Shards)
        return source

    return build


@pytest.fixture
def train_two(two: Path, toy_config: Path) -> Callable[..., dict[str, torch.Tensor]]:
    def train_there(out: Path, *overrides: str) -> dict[str, torch.Tensor]:
        run_training(two, toy_config, out, overrides)
        return last_weights(out)

    return train_there


def corpora_of(source: Shards, epoch: int) -> Counter[str]:
    """Corpus -> utterances in the batches of an epoch, as they are read."""
    index = {utterance.id: utterance.corpus for utterance in source.reader.index}
    return Counter(index[name] for batch in source.load(source.plan(epoch, 0, {})) for name in batch.ids)


def corpus_lines(out: Path) -> list[dict[str, Any]]:
    return [line for line in metrics(out) if line["kind"].startswith("corpus/")]


@pytest.mark.parametrize("mix", MIXES)
def test_every_epoch_has_as_many_of_each_corpus_as_the_mix_says(source_of, mix: str) -> None:
    source = source_of(f"data.mix={mix}")
    large, small = MIXES[mix]
    for epoch in range(4):
        assert corpora_of(source, epoch) == {"large": large, "small": small}
    assert source.size().num_samples == large + small == 24


def test_by_default_the_plan_is_that_of_one_set_of_utterances(source_of, toy: Path, toy_config: Path) -> None:
    """What trainings had before there were mixes."""
    source, single = source_of(), components_of(toy, toy_config)
    for epoch in range(3):
        plan = [list(batch.content[1]) for batch in source.plan(epoch, 0, {})]
        assert plan == [list(batch.content[1]) for batch in single.train_set.plan(epoch, 0, {})]
        of_lengths = plan_epoch(source.lengths, source.max_frames, source.seed, epoch)
        assert plan == [list(batch.indices) for batch in of_lengths]
        assert corpora_of(source, epoch) == {"large": NUM_LARGE, "small": NUM_SMALL}


@pytest.mark.parametrize("mix", ["hours", *MIXES])
def test_a_mixed_plan_may_begin_at_any_batch_and_is_the_same_in_each_learner(source_of, mix: str) -> None:
    sources = [source_of(f"data.mix={mix}") for _ in range(2)]
    whole = list(sources[0].plan(2, 0, {}))
    assert len(whole) > 5
    for begin in range(len(whole) + 1):
        assert list(sources[1].plan(2, begin, {})) == whole[begin:]
    assert whole != list(sources[0].plan(1, 0, {}))


@pytest.mark.parametrize("changes", [(), ("augment.tempo=[0.8, 1.2]",)])
@pytest.mark.parametrize("mix", ["hours", "large:1,small:3"])
def test_what_corpora_are_said_to_give_is_what_is_read(source_of, mix: str, changes: tuple[str, ...]) -> None:
    source = source_of(f"data.mix={mix}", *changes)
    index = {utterance.id: utterance.corpus for utterance in source.reader.index}
    num, frames = Counter[str](), Counter[str]()
    for batch in source.load(source.plan(1, 0, {})):
        for name, length in zip(batch.ids, batch.input_lens_N.tolist(), strict=True):
            num[index[name]] += 1
            frames[index[name]] += length
    source.close()
    found = source.portions(1)
    assert {name: part.num_samples for name, part in found.items()} == num
    assert {name: part.hours for name, part in found.items()} == pytest.approx(
        {name: length / 360_000 for name, length in frames.items()}
    )
    assert {name: part.fraction for name, part in found.items()} == {name: n / 24 for name, n in num.items()}


def test_each_epoch_is_reported_as_it_begins(train_two, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        train_two(tmp_path / "train", "data.mix=large:1,small:3")
    begun = [message for message in caplog.messages if "utterances (" in message]
    assert len(begun) == NUM_EPOCHS
    for number, message in enumerate(begun, 1):
        assert message == f"epoch {number}/3: large 6 utterances (25.0 %), 0.00 h; small 18 utterances (75.0 %), 0.00 h"
    assert caplog.messages.index(begun[1]) > next(
        i for i, message in enumerate(caplog.messages) if message.startswith("epoch 1/3: loss on dev")
    )
    lines = corpus_lines(tmp_path / "train")
    assert [(line["epoch"], line["kind"]) for line in lines] == [
        (epoch, f"corpus/{name}") for epoch in (1, 2, 3) for name in ("large", "small")
    ]
    assert [(line["utterances"], line["fraction"]) for line in lines] == 3 * [(6, 0.25), (18, 0.75)]
    assert lines[0]["step"] == 0 < lines[2]["step"] < lines[4]["step"]
    assert all(0 < line["hours"] < 1 for line in lines)


def test_a_training_that_was_ended_resumes_with_the_same_utterances_and_reports_each_epoch_once(
    train_two, tmp_path: Path
) -> None:
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "train"
    expected = train_two(undisturbed, "data.mix=temperature:3")
    with interrupted_at(1, 4):
        train_two(out, "data.mix=temperature:3")
    assert_same_bits(train_two(out, "data.mix=temperature:3"), expected)
    assert metric_steps(out) == metric_steps(undisturbed)
    assert corpus_lines(out) == corpus_lines(undisturbed)


def test_weights_of_other_corpora_than_those_of_the_features_are_refused(source_of, two: Path) -> None:
    with pytest.raises(AsrtoolError) as error:
        source_of("data.mix=large:1,tiny:1")
    assert str(error.value) == (
        f"{two}/features/train: data.mix weighs tiny, not trained on; expected a weight for each of large, small;"
        " correct data.mix, or run the stages from prepare on again"
    )


def test_a_source_that_mixes_nothing_is_refused(source_of) -> None:
    assert not Streaming.mixes
    message = (
        r"train\.source = own_components:Streaming mixes no corpora, but data\.mix is by hours; leave out data\.mix"
    )
    with pytest.raises(AsrtoolError, match=message):
        source_of("data.mix=hours", "train.source=own_components:Streaming")
