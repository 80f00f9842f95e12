"""What a training is made of, so that trainings of different settings or data are never mixed. Needs no torch."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asrtool.config import Config
from asrtool.errors import AsrtoolError
from asrtool.files import move_aside, write_text
from asrtool.lang.tokenizer import tokenizer_file
from asrtool.lock import locked
from asrtool.train.emulation import Emulation

INPUTS = "inputs.json"
FINAL = "train.json"
TRAINING = ("training", "name another folder")
VERSION = 1  # raised when the same inputs train to other weights than before
NO_EFFECT = {
    "train": ("log_every_steps", "save_every_steps", "keep_last", "keep_best", "num_threads", "cache_gib"),
    "dist": ("num_learners",),
}
FEATURES = ("features.json", "train/index.jsonl", "train/cmvn.npz", "dev/index.jsonl")


def describe_inputs(
    features: Path, tokenizer: Path, config: Config, emulation: Emulation | None = None
) -> dict[str, Any]:
    """Settings that have an effect on the weights, and digests of the data.

    The number of learners is not among them: a training may go on with more or fewer. Raises AsrtoolError when a file
    of the data is missing.
    """
    settings = {name: dataclasses.asdict(getattr(config, name)) for name in ("model", "specaugment", "train", "dist")}
    for section, names in NO_EFFECT.items():
        for name in names:
            del settings[section][name]
    if emulation:
        settings["emulation"] = emulation.as_inputs()
    files = {f"features/{name}": features / name for name in FEATURES}
    spelling = tokenizer_file(tokenizer)
    files[f"tokenizer/{spelling.name}"] = spelling
    digests = {name: _digest(path) for name, path in files.items()}
    return {"version": VERSION, "settings": settings, "sha256": digests}


@contextlib.contextmanager
def open_training(out: Path, inputs: dict[str, Any]) -> Iterator[bool]:
    """Make `out` the directory of the training of these `inputs`; whether that is finished already.

    A training of other inputs found there is moved to `OUT.old-N` beside it; nothing of it is lost. Inside, no other
    process opens `out` to train there: raises AsrtoolError where one has.
    """
    text = json.dumps(inputs, indent=1, sort_keys=True) + "\n"
    with contextlib.ExitStack() as stack:
        finished = _holds(out, text) and (out / FINAL).exists()
        if not finished:
            stack.enter_context(locked(out, *TRAINING))
            if not _holds(out, text):
                if any(out.glob("[!.]*")):
                    logging.info("%s holds a training of other settings or data; it is now %s", out, move_aside(out))
                    stack.enter_context(locked(out, *TRAINING))  # the other lock has moved with the folder
                write_text(out / INPUTS, text)
            finished = (out / FINAL).exists()
        yield finished


def _holds(out: Path, text: str) -> bool:
    """Whether `out` is the directory of the training of these inputs."""
    path = out / INPUTS
    return path.exists() and path.read_text(encoding="utf-8") == text


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise AsrtoolError(f"{path}: cannot be read, {error.strerror}", "run the stage that makes it first") from error
    return digest.hexdigest()
