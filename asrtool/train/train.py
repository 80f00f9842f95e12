"""Features and tokenizer to a trained model, in a directory that can be gone on from at any moment.

Writes `checkpoints/step-NNNNNNNN.pt`, `metrics.jsonl`, `tensorboard/`, `inputs.json` (what is trained on what) and,
last, `train.json` (how it ended).
"""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.config import Config
from asrtool.files import write_text
from asrtool.train.inputs import FINAL, describe_inputs, open_training

if TYPE_CHECKING:
    from asrtool.train.loop import Training


def train_model(features: Path, tokenizer: Path, out: Path, config: Config) -> None:
    """Train on `features`/train, evaluate with `features`/dev, write to `out`; go on from what is there.

    A finished training of the same settings and data is left as it is, without loading torch; one of others is moved
    to `OUT.old-N`. Raises AsrtoolError for missing or broken inputs, a full disk, and a loss that is not a number.
    """
    if open_training(out, describe_inputs(features, tokenizer, config)):
        logging.info("%s: this training is finished", out)
        return
    training = _prepare(features, tokenizer, out, config)
    training.run()
    write_text(out / FINAL, json.dumps(_summary(training), indent=1) + "\n")


def _prepare(features: Path, tokenizer: Path, out: Path, config: Config) -> Training:
    import torch

    from asrtool.corpus.index import read_feature_settings
    from asrtool.corpus.reader import FeatureReader
    from asrtool.lang.tokenizer import Tokenizer
    from asrtool.models import build_model
    from asrtool.train.examples import load_examples
    from asrtool.train.loop import Training

    settings = read_feature_settings(features)
    spelling = Tokenizer.load(tokenizer)
    cache_bytes = int(config.train.cache_gib * 2**30)
    readers = [FeatureReader(features / name, settings.cmvn, cache_bytes) for name in ("train", "dev")]
    info: dict[str, Any] = {
        "model": dataclasses.asdict(config.model),
        "features": dataclasses.asdict(settings),
        "num_features": readers[0].num_bins,
        "num_tokens": spelling.num_tokens,
    }
    torch.manual_seed(config.train.seed)
    model = build_model(config.model, info["num_features"], info["num_tokens"])
    train_set, dev_set = (load_examples(reader, spelling, model.output_lens) for reader in readers)
    return Training(config, info, model, (train_set, dev_set), out)


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
        "padding_share": 1 - state.frames / state.padded_frames,
        "num_parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "dev_loss": state.saved[-1].dev_loss,
        "best_dev_loss": min(dev_losses),
        "num_threads": state.num_threads,
        "precision": state.precision,
        "checkpoints": [dataclasses.asdict(entry) for entry in state.saved],
    }
