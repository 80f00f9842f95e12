"""Features and tokenizer to a trained model, in a directory that can be gone on from at any moment.

Writes `checkpoints/step-NNNNNNNN.pt`, `metrics.jsonl`, `tensorboard/`, `inputs.json` (what is trained on what) and,
last, `train.json` (how it ended).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.config import Config, to_table
from asrtool.distributed.environment import check_environment, is_learner
from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.train.assigned import describe_assigned, forget_assigned
from asrtool.train.emulation import Emulation
from asrtool.train.inputs import FINAL, Inputs, describe_inputs, open_training
from asrtool.train.stop import Stopped

if TYPE_CHECKING:
    from asrtool.distributed.world import World
    from asrtool.train.loop import Training


FINISHED = "%s: this training is finished"


def train_model(features: Path, tokenizer: Path, out: Path, config: Config, emulation: Emulation | None = None) -> None:
    """Train on `features`/train, evaluate with `features`/dev, write to `out`; go on from what is there.

    In a process that was started as one of several learners, this is its part of the training. A finished training of
    the same settings and data is left as it is, without loading torch; one of others is moved to `OUT.old-N`. Raises
    AsrtoolError for missing or broken inputs, a full disk, and a loss that is not a number.
    """
    inputs = describe_inputs(features, tokenizer, config, emulation)
    if is_learner():
        _train_as_learner(features, tokenizer, out, config, emulation, inputs)
        return
    with open_training(out, inputs) as finished:
        if finished:
            logging.info(FINISHED, out)
        else:
            from asrtool.distributed.world import World

            _train(features, tokenizer, out, config, emulation, World())


def start_training(
    features: Path, tokenizer: Path, out: Path, config: Config, emulation: Emulation, words: Sequence[str]
) -> None:
    """Train here where there is one learner, else start learners that run ``asrtool`` with the arguments `words`.

    Raises AsrtoolError as `train_model` does, and when a learner ends before its time.
    """
    if is_learner():
        check_environment()
    num_learners = int(os.environ["WORLD_SIZE"]) if is_learner() else count_learners(config)
    for rank in emulation.slow:
        if rank >= num_learners:
            raise AsrtoolError(f"--slow {rank}: there are {num_learners} learners", f"choose 0 to {num_learners - 1}")
    if num_learners == 1 or is_learner():
        train_model(features, tokenizer, out, config, emulation)
        return
    with open_training(out, describe_inputs(features, tokenizer, config, emulation)) as finished:
        pass  # learner 0 opens it again
    if finished:
        logging.info(FINISHED, out)
    else:
        from asrtool.distributed.launch import launch_learners

        forget_assigned(out)
        launch_learners(words, num_learners, functools.partial(describe_assigned, out))


def count_learners(config: Config) -> int:
    """How many processes train on this machine; AsrtoolError when the strategy cannot have so many."""
    if config.distributed.strategy.name == "single":
        if config.distributed.num_learners > 1:
            raise AsrtoolError(
                f"distributed.strategy is single, distributed.num_learners {config.distributed.num_learners}",
                "choose another --strategy, for example adpsgd-random",
            )
        return 1
    if config.distributed.num_learners:
        return config.distributed.num_learners
    import torch

    return torch.cuda.device_count() or os.cpu_count() or 1


def _train_as_learner(
    features: Path, tokenizer: Path, out: Path, config: Config, emulation: Emulation | None, inputs: Inputs
) -> None:
    from asrtool.distributed.learner import learner

    with learner() as world, contextlib.ExitStack() as stack:
        finished = world.gather(world.rank == 0 and stack.enter_context(open_training(out, inputs)))[0]
        if not finished:
            try:
                _train(features, tokenizer, out, config, emulation, world)
            except Stopped:  # by a signal to another learner
                sys.exit(128 + signal.SIGTERM)


def _train(
    features: Path, tokenizer: Path, out: Path, config: Config, emulation: Emulation | None, world: World
) -> None:
    training = _prepare(features, tokenizer, out, config, emulation, world)
    training.run()
    if world.rank == 0:
        training.checkpointer.remove_others(training.state.saved)  # a run killed after its last one has not
        write_text(out / FINAL, json.dumps(_summary(training), indent=1) + "\n")


def _prepare(
    features: Path, tokenizer: Path, out: Path, config: Config, emulation: Emulation | None, world: World
) -> Training:
    import torch

    from asrtool.corpus.index import read_feature_settings
    from asrtool.corpus.reader import FeatureReader
    from asrtool.lang.tokenizer import Tokenizer
    from asrtool.models.acoustic import build_model
    from asrtool.train.examples import load_examples
    from asrtool.train.loop import Training

    settings = read_feature_settings(features)
    tokens = Tokenizer.load(tokenizer)
    cache_bytes = int(config.train.cache_gib * 2**30)
    readers = [FeatureReader(features / name, settings.cmvn, cache_bytes) for name in ("train", "dev")]
    info: dict[str, Any] = {
        "model": to_table(config.model),
        "features": to_table(settings),
        "num_features": readers[0].num_bins,
        "num_tokens": tokens.num_tokens,
    }
    torch.manual_seed(config.train.seed)
    model = build_model(config.model, info["num_features"], info["num_tokens"])
    train_set, dev_set = (load_examples(reader, tokens, model) for reader in readers)
    return Training(config, info, model, (train_set, dev_set), out, world, emulation or Emulation())


def _summary(training: Training) -> dict[str, Any]:
    state = training.state
    dev_losses = [entry.dev_loss for entry in state.saved if entry.dev_loss is not None]
    return {
        "num_steps": state.step,
        "num_epochs": state.epoch,
        "num_samples": state.samples,
        "num_dropped": training.train_set.num_dropped,
        "hours": training.train_set.duration_s / 3600,
        "seconds": state.seconds,
        "frames_per_s": state.frames / state.seconds,
        "padding_fraction": 1 - state.frames / state.padded_frames,
        "num_parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "dev_loss": state.saved[-1].dev_loss,
        "best_dev_loss": min(dev_losses),
        "strategy": training.strategy_name,
        "num_learners": state.num_learners,
        "num_threads": state.num_threads,
        "precision": state.precision,
        "checkpoints": [dataclasses.asdict(entry) for entry in state.saved],
    }
