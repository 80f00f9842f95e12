"""Average the weights of several checkpoints (Polyak averaging)."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import model_of, save_model
from asrtool.train.checkpoints.checkpoint import (
    Saved,
    State,
    best_first,
    checkpoint_path,
    final_weights,
    load_checkpoint,
    load_newest,
)
from asrtool.train.inputs import FINAL


def average_checkpoints(train_dir: Path, out: Path, by: str, num: int) -> None:
    """Average the last `num` checkpoints, or the `num` of lowest dev loss (`by`).

    If there are fewer, they are used and this is logged. Raises AsrtoolError without any, and if a needed one is
    damaged.
    """
    directory = train_dir / "checkpoints"
    newest = load_newest(directory)
    if newest is None:
        raise AsrtoolError(f"{directory}: no checkpoint", "run the train stage first")
    saved = _saved(train_dir, newest[1])
    chosen = saved[-num:] if by == "last" else best_first(saved)[:num]
    if not chosen:
        raise AsrtoolError(f"{directory}: no checkpoint of a finished epoch", "train longer")
    if len(chosen) < num:
        logging.info("%s: averaging the %d that are there, of %d checkpoints wanted", directory, len(chosen), num)
    paths = [checkpoint_path(directory, entry.step) for entry in chosen]
    logging.info("averaging %s", ", ".join(path.name for path in paths))
    info, weights = _mean(paths)
    model = model_of(info, str(paths[-1]))
    model.load_state_dict(weights)
    save_model(out, model, info)


def _saved(train_dir: Path, newest: State) -> list[Saved]:
    """Return the checkpoints of a training; the last is written before its dev loss."""
    final = train_dir / FINAL
    if not final.exists():
        return newest.saved
    return [Saved(**entry) for entry in json.loads(final.read_text(encoding="utf-8"))["checkpoints"]]


def _mean(paths: Sequence[Path]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Average in float64, one checkpoint in memory at a time.

    Counters are taken from the newest.
    """
    total: dict[str, torch.Tensor] = {}
    counters: dict[str, torch.Tensor] = {}
    for path in paths:
        content, _ = load_checkpoint(path)
        weights = final_weights(content)
        for name, weight in weights.items():
            if weight.is_floating_point():
                total[name] = total.get(name, 0) + weight.double()
            elif path == max(paths):
                counters[name] = weight
    mean = {name: (value / len(paths)).to(weights[name].dtype) for name, value in total.items()}
    return content["info"], mean | counters
