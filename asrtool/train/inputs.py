"""Inputs of a training, so that different trainings are never mixed.

Needs no torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asrtool.data.augment.sound_folder import digest_of_sounds, open_sounds
from asrtool.data.storage.alignment import ABOUT
from asrtool.data.storage.index import INDEX, read_feature_settings
from asrtool.data.storage.index_columns import index_digest
from asrtool.data.storage.transcripts import TRANSCRIPTS
from asrtool.errors import AsrtoolError
from asrtool.files import check_own, digest_of, locked, move_aside, read_object, write_text
from asrtool.lang.tokenizer import tokenizer_file
from asrtool.models.objectives.decision_tree import FILE as TREE
from asrtool.settings.config import SECTIONS, Config, defaults_of, select
from asrtool.settings.data import Augment
from asrtool.settings.schema import changed_setting, paths_of
from asrtool.settings.values import flatten
from asrtool.train.loop.straggler import InjectionOptions

INPUTS = "inputs.json"
FINAL = "train.json"
TRAINING = ("training", "name another folder")
# Sections and keys that a training is made by.
ACOUSTIC = ("data.mix", "model", "augment", "specaugment", "train", "distributed")
NEURAL_LM = ("nnlm", "distributed")
NO_EFFECT_TRAINING = (
    "log_every_steps",
    "loggers",
    "save_every_minutes",
    "keep_last",
    "keep_best",
    "num_threads",
)
# On the weights, and on which of them are averaged; a training may be resumed with more or fewer learners.
NO_EFFECT = {
    "train": (*NO_EFFECT_TRAINING, "shards", "loader_processes", "max_batch_s", "pipeline_stages", "micro_batches"),
    "nnlm": (*NO_EFFECT_TRAINING, "save_every_steps", "enabled"),  # its model is the best one of the epochs
    "distributed": ("num_learners", "interface", "timeout_s", "on_stop"),
}
IF_THERE = tuple(f"{name}/{TRANSCRIPTS}" for name in ("train", "dev"))
FEATURES = ("features.json", "dev/index.jsonl")  # files of every training; the source names more


@dataclass(frozen=True)
class Inputs:
    """Settings that affect the weights or their average, and digests of data."""

    settings: dict[str, Any]  # section -> key -> value
    defaults: dict[str, Any] = field(default_factory=dict)  # section.key -> value of a missing key
    sha256: dict[str, str] = field(default_factory=dict)  # file -> digest

    def to_json(self, num_learners: int) -> str:
        """Return the text of inputs.json; training begins with `num_learners`."""
        content = {"settings": self.settings, "sha256": self.sha256, "num_learners": num_learners}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    def match(self, path: Path) -> bool:
        """Return whether inputs.json has the same; a missing setting had its default."""
        return path.exists() and not self.first_difference(path)

    def first_difference(self, path: Path) -> str:
        """Return the first setting, `key before -> now`, or file that differs, or ''.

        Files that settings name count by content, in any place.
        """
        found = json.loads(path.read_text(encoding="utf-8"))
        paths = {f"{section}.{key}" for section in SECTIONS[1:] for key in paths_of(getattr(Config(), section))}
        now = {key: value for key, value in flatten(self.settings).items() if key not in paths}
        changed = changed_setting(flatten(found["settings"]), now, self.defaults)
        files = {name for name, _ in found["sha256"].items() ^ self.sha256.items()}
        return changed or min(files, default="")


@dataclass(frozen=True)
class ColumnsFolder:
    """Folder of columns, and digests of their inputs."""

    path: Path
    sha256: Mapping[str, str]  # digests of files of the features and the tokenizer, as in inputs.json
    others: Mapping[str, Any]  # settings, and the digest of the code

    def key(self, name: str) -> str:
        """Return the key of a set's columns, '' if its index has no known digest."""
        index = f"features/{name}/index.jsonl"
        folders = ("tokenizer/", "targets/")
        set_files = (index, f"features/{name}/{TRANSCRIPTS}")
        files = {file: digest for file, digest in self.sha256.items() if file.startswith(folders) or file in set_files}
        content = json.dumps([files, self.others], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest() if index in files else ""


def describe_inputs(
    features: Path,
    tokenizer: Path,
    config: Config,
    injection: InjectionOptions | None = None,
    targets: Path | None = None,
) -> Inputs:
    """Return the inputs of an acoustic model's training, with frame `targets` if any.

    Raises AsrtoolError if a data file is missing.
    """
    source_files = [f"train/{name}" for name in getattr(config.train.source.settings, "files", ())]
    if_there = [name for name in IF_THERE if (features / name).exists()]
    files = {f"features/{name}": features / name for name in (*FEATURES, *source_files, *if_there)}
    tokens = tokenizer_file(tokenizer)
    files[f"tokenizer/{tokens.name}"] = tokens
    if config.train.init_model:
        files["init_model"] = Path(config.train.init_model)
    if targets:
        files |= {f"targets/{name}": targets / name for name in (ABOUT, TREE)}
    inputs = inputs_of(config, ACOUSTIC, files, injection or InjectionOptions())
    if config.augment.active:
        inputs.sha256.update(_digests_of_sounds(config.augment, features))
    return inputs


def _digests_of_sounds(augment: Augment, directory: Path) -> dict[str, str]:
    """Return digests of the sound folders of augmentation.

    Raises AsrtoolError if one is unusable, or the features are, before learners start.
    """
    features = read_feature_settings(directory)
    try:
        augment.check_features(features)
    except ValueError as error:
        hint = "change [augment], or set features.keep_audio=true and run the features stage again"
        raise AsrtoolError(f"{directory}: {error}", hint) from error
    digests = {}
    for key, folder in augment.folders.items():
        open_sounds(Path(folder), key, features.sampling_rate_hz)
        digests[key] = digest_of_sounds(Path(folder), key)
    return digests


def inputs_of(
    config: Config, sections: Sequence[str], files: Mapping[str, Path], injection: InjectionOptions
) -> Inputs:
    """Return the inputs of a training by `sections` on `files`, with their names."""
    return Inputs(
        {**_with_effect(config, sections), "emulation": injection.as_inputs()},
        defaults_of(config, sections) | flatten({"emulation": InjectionOptions().as_inputs()}),
        {name: index_digest(path.parent) if path.name == INDEX else digest_of(path) for name, path in files.items()},
    )


def _with_effect(config: Config, sections: Sequence[str]) -> dict[str, Any]:
    tables = select(config, sections)
    loggers = [each.table for section in (config.train, config.nnlm) for each in section.loggers]
    return {
        section: {key: value for key, value in table.items() if key not in (*NO_EFFECT.get(section, ()), *loggers)}
        for section, table in tables.items()
    }


@contextlib.contextmanager
def open_training(out: Path, inputs: Inputs, num_learners: int = 1) -> Iterator[bool]:
    """Open `out` for the training of these `inputs`; return whether it is finished.

    A new one begins with `num_learners`. A training of other inputs is moved to `OUT.old-N`. Raises AsrtoolError if
    another process trains there, and if `out` holds something else.
    """
    _check_place(out)
    with contextlib.ExitStack() as stack:
        finished = is_finished(out, inputs)
        if not finished:
            stack.enter_context(locked(out, *TRAINING))
            if not inputs.match(out / INPUTS):
                if any(out.glob("[!.]*")):
                    what = "%s holds a training of other settings or data (%s); it is now %s"
                    logging.info(what, out, inputs.first_difference(out / INPUTS), move_aside(out))
                    stack.enter_context(locked(out, *TRAINING))  # the other lock has moved with the folder
                write_text(out / INPUTS, inputs.to_json(num_learners))
            finished = (out / FINAL).exists()
        yield finished


def is_finished(out: Path, inputs: Inputs) -> bool:
    """Return whether `out` has a finished training of these `inputs`."""
    return inputs.match(out / INPUTS) and (out / FINAL).exists()


def _check_place(out: Path) -> None:
    """Raise AsrtoolError if `out` is a file or a folder without a training."""
    if not out.is_dir():
        check_own(out, [])
    elif any(out.glob("[!.]*")) and not {"settings", "sha256"} <= read_object(out / INPUTS).keys():
        what = f"{out}: holds other files, expected a new folder or one of a training, with {INPUTS}"
        raise AsrtoolError(what, "choose another folder")


def initial_num_learners(out: Path) -> int | None:
    """Return the initial number of learners of the training in `out`, None if unknown."""
    number: int | None = read_object(out / INPUTS).get("num_learners")
    return number
