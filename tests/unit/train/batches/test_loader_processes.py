"""Processes that decode features for a learner change nothing that is trained, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import multiprocessing
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_task import NUM_BINS, NUM_TOKENS, SETTINGS, assert_same_bits

from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.acoustic import build_model
from asrtool.settings.models import Model
from asrtool.settings.schema import Choice
from asrtool.settings.toml_files import load_config
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Planned, SourceContext
from asrtool.train.run import train
from asrtool.train.train import acoustic_job

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory without a name")


def decoders() -> list[multiprocessing.Process]:
    return [process for process in multiprocessing.active_children() if process.name == "decoder"]


def batches(context: SourceContext, num: int) -> list[TrainingBatch]:
    source = Shards(dataclasses.replace(context, loader_processes=num))
    try:
        return [batch for epoch in range(2) for batch in source.load(source.plan(epoch, 0, {}), prefetch=1)]
    finally:
        source.close()


def test_batches_and_their_order_do_not_depend_on_the_number_of_processes(toy: Path) -> None:
    lstm = Choice.of("encoder", "lstm", num_layers=1, hidden_size=2)
    model = build_model(Model(encoder=lstm), NUM_BINS, NUM_TOKENS)
    encode = Tokenizer.load(toy / "tokenizer").encode
    settings = ShardsSettings(cache_gib=0)
    context = SourceContext(settings, toy / "features" / "train", SETTINGS, encode, model, 150, 1)
    expected = batches(context, 0)
    assert len(expected) > 10
    for num in (1, 3):
        for one, other in zip(batches(context, num), expected, strict=True):
            assert (one.ids, one.normaliser) == (other.ids, other.normaliser)
            np.testing.assert_array_equal(one.inputs_NT, other.inputs_NT)
            np.testing.assert_array_equal(one.input_lens_N, other.input_lens_N)
            assert torch.equal(one.targets_NU, other.targets_NU)
        assert not decoders()


def test_a_process_that_is_killed_ends_the_training_in_one_line_and_it_can_be_resumed(
    train_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, read, num_read = train_toy(tmp_path / "undisturbed"), Shards.read, 0

    def read_or_kill(self: Shards, batch: Planned) -> TrainingBatch:
        nonlocal num_read
        num_read += bool(self.decoders)
        if self.decoders and num_read == 8:
            for process in decoders():
                process.kill()
                process.join()
        return read(self, batch)

    monkeypatch.setattr(Shards, "read", read_or_kill)
    with pytest.raises(AsrtoolError, match="a process that loads batches was killed"):
        train_toy(tmp_path / "train", "train.loader_processes=2", "train.shards.cache_gib=0")
    assert not decoders()
    assert_same_bits(train_toy(tmp_path / "train", "train.loader_processes=2"), expected)


def test_a_broken_shard_ends_a_training_by_the_same_line(toy: Path, toy_config: Path, tmp_path: Path) -> None:
    shutil.copytree(toy / "features", tmp_path / "features")
    path = tmp_path / "features" / "train" / "cuts.000001.jsonl.gz"
    path.write_bytes(path.read_bytes()[:50])
    errors = []
    for num in (0, 2):
        config = load_config([toy_config], [f"train.loader_processes={num}"])
        with pytest.raises(AsrtoolError, match="shard 000001 cannot be read") as error:
            train(acoustic_job(tmp_path / "features", toy / "tokenizer", tmp_path / f"train-{num}", config))
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert not decoders()
