"""Settings of the trainings of a chain: aligner, hybrid model, final model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from asrtool.settings.config import Config
from asrtool.settings.schema import Choice


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
    """Return the settings of the final model: `[train]` with its objective's own.

    These are epochs and rate.
    """
    settings, train = config.model.objective.settings, config.train
    if not getattr(settings, "parameters_of", ""):
        return config
    peak_lr = train.peak_lr / settings.peak_lr_divisor
    return dataclasses.replace(
        config, train=dataclasses.replace(train, num_epochs=settings.num_epochs, peak_lr=peak_lr)
    )


def begin_with_hybrid(config: Config, model: Path) -> Config:
    """Return `config` with the hybrid `model` as initial model, if wanted.

    A model that `config` names stays.
    """
    if config.train.init_model or not getattr(config.model.objective.settings, "parameters_of", ""):
        return config
    return dataclasses.replace(config, train=dataclasses.replace(config.train, init_model=str(model)))


def _before(config: Config, objective: Choice) -> Config:
    return dataclasses.replace(config, model=dataclasses.replace(config.model, objective=objective))
