"""Processes that decode features for a learner change nothing that is trained, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import multiprocessing
import shutil
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_task import assert_same_bits
from trainings import run_training, source_context

from asrtool.errors import AsrtoolError
from asrtool.settings.train import Shards as ShardsSettings
from asrtool.train.batches.batch import TrainingBatch
from asrtool.train.batches.shard_source import Shards
from asrtool.train.batches.source import Planned, SourceContext

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has memory without a name")


def decoders() -> list[multiprocessing.Process]:
    return [process for process in multiprocessing.active_children() if process.name == "decoder"]


def batches(context: SourceContext, num: int) -> list[TrainingBatch]:
    with closing(Shards(dataclasses.replace(context, loader_processes=num))) as source:
        return [batch for epoch in range(2) for batch in source.load(source.plan(epoch, 0, {}), prefetch=1)]


def test_batches_and_their_order_do_not_depend_on_the_number_of_processes(toy: Path) -> None:
    context = source_context(toy, settings=ShardsSettings(cache_gib=0))
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
    shutil.copytree(toy, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "features" / "train" / "cuts.000001.jsonl.gz"
    path.write_bytes(path.read_bytes()[:50])
    errors = []
    for num in (0, 2):
        with pytest.raises(AsrtoolError, match="shard 000001 cannot be read") as error:
            run_training(tmp_path, toy_config, tmp_path / f"train-{num}", [f"train.loader_processes={num}"])
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert not decoders()
