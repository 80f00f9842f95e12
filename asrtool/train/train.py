"""Train an acoustic model on features and tokens."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrtool.data.storage.alignment import check_alignment_inputs
from asrtool.data.storage.index import read_feature_settings
from asrtool.errors import AsrtoolError
from asrtool.lang.tokenizer import tokenizer_file
from asrtool.models.objectives.topology import uses_tree
from asrtool.settings.config import Config, check_parts, to_table
from asrtool.settings.schema import Choice
from asrtool.train.derived_settings import with_sizes
from asrtool.train.inputs import ColumnsFolder, describe_inputs
from asrtool.train.job import Components, Job
from asrtool.train.loop.straggler import InjectionOptions

if TYPE_CHECKING:
    from asrtool.models.acoustic import AcousticModel
    from asrtool.models.objectives.decision_tree import Tree
    from asrtool.train.batches.frame_targets import TargetsFolder
    from asrtool.train.batches.source import BatchSource, DevSet, SourceContext

COLUMNS = "index"  # in the folder of a training


def acoustic_job(
    features: Path,
    tokenizer: Path,
    out: Path,
    config: Config,
    injection: InjectionOptions | None = None,
    code: str = "",
    targets: Path | None = None,
) -> Job:
    """Return the job that trains on `features`/train and writes `out`.

    It evaluates on `features`/dev. train.json records `code`, the digest of the code. `targets` is the output of
    `asrtool targets`, if the objective needs it. Raises AsrtoolError for a missing data file or conflicting settings.
    """
    check_parts([config.distributed, config.model.objective.settings], config)
    config = with_sizes(config, features)
    injection = injection or InjectionOptions()
    targets = targets if uses_tree(config.model.objective) else None
    inputs = describe_inputs(features, tokenizer, config, injection, targets)
    check_parts([read_feature_settings(features)], config)
    if targets:
        indexes = {name: inputs.sha256[f"features/{name}/index.jsonl"] for name in ("train", "dev")}
        check_alignment_inputs(targets, indexes, inputs.sha256[f"tokenizer/{tokenizer_file(tokenizer).name}"])
    columns = ColumnsFolder(out / COLUMNS, inputs.sha256, {"model": inputs.settings["model"], "code": code})
    return Job(
        out=out,
        inputs=inputs,
        optimisation=config.train,
        distributed=config.distributed,
        build=functools.partial(build_components, features, tokenizer, config, columns=columns, targets=targets),
        injection=injection,
        code=code,
        num_stages=config.train.pipeline_stages,
        num_micro_batches=config.train.micro_batches,
    )


def build_components(
    features: Path,
    tokenizer: Path,
    config: Config,
    num_learners: int = 1,
    columns: ColumnsFolder | None = None,
    targets: Path | None = None,
) -> Components:
    """Build model and sets, with batches for one of `num_learners`.

    Several learners keep columns in `columns`; `targets` as in acoustic_job. Raises AsrtoolError if a file is missing,
    or a set cannot be trained on.
    """
    from asrtool.lang.tokenizer import WORD_MARK, BpeTokenizer, Tokenizer
    from asrtool.train.batches.augment import BatchAugment
    from asrtool.train.batches.source import SourceContext

    settings = read_feature_settings(features)
    tokens = Tokenizer.load(tokenizer)
    batch_s = config.distributed.global_batch_s / num_learners or config.train.batch_s
    folder = open_targets(config.model.objective, targets)
    sizes = (settings.num_features, tokens.num_tokens, folder.tree if folder else None)
    data_info = {"features": to_table(settings), "tokenizer": tokens.digest}
    model, info = _build_model(config, sizes, data_info)
    if isinstance(tokens, BpeTokenizer):
        model.objective.spellings = [piece.replace(WORD_MARK, " ") for piece in tokens.pieces]
    if folder:
        model.objective.prepare(folder.sequences())
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
        targets=folder,
        augment=config.augment if config.augment.active else None,
        mix=config.data.mixing,
    )
    train_set, dev_set = _open_sets(config.train.source, context, features / "dev")
    max_frames = int(config.train.max_batch_s * 1000 / settings.frame_shift_ms)
    views = model.objective.views
    augment = BatchAugment(config.train, config.specaugment, features / "train", settings.cmvn, views)
    return Components(info, model, train_set, dev_set, augment, max_frames, settings.frame_shift_ms)


def _build_model(
    config: Config, sizes: tuple[int, int, Tree | None], data_info: Mapping[str, Any]
) -> tuple[AcousticModel, dict[str, Any]]:
    """Build the initial model and the info of its file; `sizes` as build_model."""
    from asrtool.models.acoustic import build_model, tree_to_info
    from asrtool.train.finetune import freeze, init_from

    num_features, num_tokens, tree = sizes
    info = {"model": to_table(config.model), "num_features": num_features, "num_tokens": num_tokens, **data_info}
    info |= tree_to_info(tree)
    model = build_model(config.model, num_features, num_tokens, tree)
    if config.train.init_model:
        init_from(model, config.train.init_model, info)
    freeze(model, config.train.frozen)
    return model, info


def open_targets(objective: Choice, targets: Path | None) -> TargetsFolder | None:
    """Open frame targets if `objective` uses them; AsrtoolError if missing."""
    from asrtool.models.objectives.decision_tree import Tree
    from asrtool.train.batches.frame_targets import TargetsFolder

    if not uses_tree(objective):
        return None
    if targets is None:
        what = f"model.objective = {objective.name} is trained on frame targets, and --targets is not given"
        raise AsrtoolError(what, "name the folder that `asrtool targets` wrote")
    return TargetsFolder(targets, Tree.load(targets), getattr(objective.settings, "piece_frames", 0))


def _open_sets(source: Choice, context: SourceContext, dev: Path) -> tuple[BatchSource, DevSet]:
    """Open the training set and its dev set, or the shards of `dev`."""
    from asrtool.settings.data import Mix
    from asrtool.settings.train import Shards as ShardsSettings
    from asrtool.train.batches.shard_source import Shards
    from asrtool.train.batches.source import build_source

    train_set = build_source(source, context)
    whole = context.targets and dataclasses.replace(context.targets, piece_frames=0)  # utterances are whole in decoding
    dev_context = dataclasses.replace(
        context, directory=dev, loader_processes=0, targets=whole, mix=Mix(), augment=None, needs_all=False
    )
    own_dev = train_set.open_dev(dev_context)
    return train_set, own_dev or Shards(dataclasses.replace(dev_context, settings=ShardsSettings()))
