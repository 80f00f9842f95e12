"""Features and tokenizer to a trained acoustic model: what its training is made of."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.config import Config, to_table
from asrtool.errors import AsrtoolError
from asrtool.settings import Choice
from asrtool.train.inputs import ColumnsFolder, describe_inputs, digest_of
from asrtool.train.job import Components, Job
from asrtool.train.run import join, start
from asrtool.train.straggler import InjectionOptions

if TYPE_CHECKING:
    from asrtool.train.source import BatchSource, DevSet, SourceContext

COLUMNS = "index"  # in the folder of a training


def start_training(
    features: Path,
    tokenizer: Path,
    out: Path,
    config: Config,
    injection: InjectionOptions,
    code: str = "",
    joins: bool = False,
    profiles: bool = False,
) -> None:
    """Train on `features`/train, evaluate with `features`/dev, write to `out`; resume from what is there.

    `code` is the digest of the code that trains, which train.json records. As one learner more where it `joins` a
    training that runs there; `profiles` has torch's profiler watch some steps.
    Raises AsrtoolError as `asrtool.train.run.start` and `join` do.
    """
    job = dataclasses.replace(acoustic_job(features, tokenizer, out, config, injection, code), profiles=profiles)
    join(job) if joins else start(job)


def acoustic_job(
    features: Path,
    tokenizer: Path,
    out: Path,
    config: Config,
    injection: InjectionOptions | None = None,
    code: str = "",
) -> Job:
    """The training as a job; AsrtoolError when a file of the data is missing, and where settings do not go together."""
    try:
        config.distributed.check(config)
    except ValueError as error:
        raise AsrtoolError(str(error), "change one of them in the configuration file or with --set") from error
    injection = injection or InjectionOptions()
    inputs = describe_inputs(features, tokenizer, config, injection)
    columns = ColumnsFolder(out / COLUMNS, inputs.sha256, {"model": inputs.settings["model"], "code": code})
    return Job(
        out=out,
        inputs=inputs,
        optimisation=config.train,
        distributed=config.distributed,
        build=functools.partial(build_components, features, tokenizer, config, columns=columns),
        injection=injection,
        code=code,
    )


def build_components(
    features: Path,
    tokenizer: Path,
    config: Config,
    num_learners: int = 1,
    columns: ColumnsFolder | None = None,
) -> Components:
    """Model and sets, with the batches of one of `num_learners`; `columns` is where several learners keep those.

    Raises AsrtoolError where a file is missing, or a set cannot be trained on.
    """
    from asrtool.corpus.index import read_feature_settings
    from asrtool.lang.tokenizer import Tokenizer, tokenizer_file
    from asrtool.models.acoustic import build_model
    from asrtool.train.finetune import begin_with, freeze
    from asrtool.train.source import SourceContext
    from asrtool.train.specaugment import masking

    settings = read_feature_settings(features)
    tokens = Tokenizer.load(tokenizer)
    batch_s = config.distributed.global_batch_s / num_learners or config.train.batch_s
    info = {
        "model": to_table(config.model),
        "features": to_table(settings),
        "num_features": settings.num_features,
        "num_tokens": tokens.num_tokens,
        "tokenizer": digest_of(tokenizer_file(tokenizer)),
    }
    model = build_model(config.model, settings.num_features, tokens.num_tokens)
    if config.train.init_model:
        begin_with(model, config.train.init_model, info)
    freeze(model, config.train.frozen)
    context = SourceContext(
        settings=config.train.source.settings,
        directory=features / "train",
        features=settings,
        encode=tokens.encode,
        model=model,
        max_frames=int(batch_s * 1000 / settings.frame_shift_ms),
        seed=config.train.seed,
        columns=columns,
        loader_processes=config.train.loader_processes,
    )
    train_set, dev_set = _open_sets(config.train.source, context, features / "dev")
    max_frames = int(config.train.max_batch_s * 1000 / settings.frame_shift_ms)
    return Components(info, model, train_set, dev_set, masking(config.specaugment), max_frames, settings.frame_shift_ms)


def _open_sets(source: Choice, context: SourceContext, dev: Path) -> tuple[BatchSource, DevSet]:
    """The training set of `context`, and what it is evaluated with: its own, else the shards of `dev`."""
    from asrtool.train.settings import Shards as ShardsSettings
    from asrtool.train.shards import Shards
    from asrtool.train.source import build_source

    train_set = build_source(source, context)
    dev_context = dataclasses.replace(context, directory=dev, loader_processes=0)
    own_dev = train_set.open_dev(dev_context)
    return train_set, own_dev or Shards(dataclasses.replace(dev_context, settings=ShardsSettings()))
