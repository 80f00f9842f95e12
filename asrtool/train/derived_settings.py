"""Settings that follow from the hours of speech, or from the place in a chain.

Minutes, hours and thousands of hours differ most in three numbers. A small set needs small batches and many epochs,
or there are too few steps, and few layers. A chain trains aligner, hybrid model and final model.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path

from asrtool.data.storage.index_columns import open_index_columns
from asrtool.settings.config import Config
from asrtool.settings.schema import Choice

LAYERS = ((1.0, 2), (10.0, 3), (100.0, 4), (1000.0, 5))  # (hours, layers): as many layers below so many hours
MAX_LAYERS = 6
STEPS_AN_EPOCH = 120  # if the resulting batch is within BATCH_S
BATCH_S = (20.0, 200.0)  # seconds of speech
STEPS = 2000  # steps of a training, if the resulting number of epochs is within EPOCHS
EPOCHS = (15, 40)


def with_sizes(config: Config, features: Path) -> Config:
    """Choose settings that are 0 by the training set of `features`; log the reasons.

    Raises AsrtoolError as open_index_columns.
    """
    layers = getattr(config.model.encoder.settings, "num_layers", 1)
    if all((config.train.num_epochs, config.train.batch_s, layers)):
        return config
    durations_s = open_index_columns(features / "train").durations_s
    config, lines = fit(config, float(durations_s.sum()), float(durations_s.max()))
    for line in lines:
        logging.info("%s", line)
    return config


def fit(config: Config, total_s: float, longest_s: float = 0.0) -> tuple[Config, list[str]]:
    """Return `config` with layers, batch and epochs chosen, and a line for each.

    `total_s` is the speech at all speeds; an utterance of `longest_s` fits in a batch.
    """
    hours, encoder, train, lines = total_s / 3600, config.model.encoder, config.train, list[str]()
    reason = f"for {hours:.3g} h to train on, all speeds together"
    if getattr(encoder.settings, "num_layers", 1) == 0:
        num_layers = next((layers for below, layers in LAYERS if hours < below), MAX_LAYERS)
        encoder = dataclasses.replace(encoder, settings=dataclasses.replace(encoder.settings, num_layers=num_layers))
        lines.append(f"model.{encoder.table}.num_layers is 0: {num_layers} layers, {reason}")
    if not train.batch_s:
        batch_s = max(_within(BATCH_S, total_s / STEPS_AN_EPOCH), longest_s)
        train = dataclasses.replace(train, batch_s=math.ceil(batch_s))
        lines.append(f"train.batch_s is 0: {train.batch_s:g} s in a batch, {reason}")
    if not train.num_epochs:
        steps = total_s / (config.distributed.global_batch_s or train.batch_s)
        train = dataclasses.replace(train, num_epochs=round(_within(EPOCHS, STEPS / steps)))
        lines.append(f"train.num_epochs is 0: {train.num_epochs} epochs of about {math.ceil(steps)} batches")
    return dataclasses.replace(config, model=dataclasses.replace(config.model, encoder=encoder), train=train), lines


def _within(limits: tuple[float, float], value: float) -> float:
    return min(max(value, limits[0]), limits[1])


def aligner_settings(config: Config) -> Config:
    """Return the settings of the aligner: as named, or CTC."""
    settings = config.model.objective.settings
    if name := getattr(settings, "aligner", ""):
        return _before(config, Choice.of("objective", name))
    return config if getattr(settings, "topology", "") else _before(config, Choice.of("objective", "ctc"))


def hybrid_settings(config: Config) -> Config:
    """Return the settings of the hybrid model that sequence training starts from."""
    settings = config.model.objective.settings
    if not (name := getattr(settings, "parameters_of", "")):
        return config
    return _before(config, Choice.of("objective", name, prior_scale=settings.prior_scale))


def last_settings(config: Config) -> Config:
    """Return the settings of the final model, with its objective's epochs and rate."""
    settings, train = config.model.objective.settings, config.train
    if not getattr(settings, "parameters_of", ""):
        return config
    peak_lr = train.peak_lr / settings.peak_lr_divisor
    return dataclasses.replace(
        config, train=dataclasses.replace(train, num_epochs=settings.num_epochs, peak_lr=peak_lr)
    )


def init_from_hybrid(config: Config, model: Path) -> Config:
    """Return `config` with the hybrid `model` as initial model, if wanted.

    A model that `config` names stays.
    """
    if config.train.init_model or not getattr(config.model.objective.settings, "parameters_of", ""):
        return config
    return dataclasses.replace(config, train=dataclasses.replace(config.train, init_model=str(model)))


def _before(config: Config, objective: Choice) -> Config:
    return dataclasses.replace(config, model=dataclasses.replace(config.model, objective=objective))
