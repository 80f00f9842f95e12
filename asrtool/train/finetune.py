"""Initial weights from a trained model, and frozen parameters."""

from __future__ import annotations

import fnmatch
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from asrtool.errors import AsrtoolError
from asrtool.models.acoustic import AcousticModel, load_model
from asrtool.models.objectives.decision_tree import tree_of
from asrtool.settings import registry
from asrtool.settings.values import flatten, format_override

ENCODER = "encoder."
NO_EFFECT = (
    "speeds",
    "storage",
    "keep_audio",
    "resample",
    "shard_cuts",
    "bad_fraction",
    "num_jobs",
    "executor",
)  # settings that define frames


def init_from(model: AcousticModel, path: Path | str, info: Mapping[str, Any]) -> None:
    """Load the weights of the model file `path` into `model` with `info`.

    The encoder must be the same. The weights of the objective are taken if it and its tokens are the same, else they
    stay random. Raises AsrtoolError if the file cannot be read, or has other features or encoder weights; warns if
    the same weights give other rows.
    """
    with torch.random.fork_rng():  # later random numbers do not depend on it
        trained, found = load_model(path)
    _check_features(path, found, info)
    weights, wanted = trained.state_dict(), model.state_dict()
    for name in filter(lambda name: name.startswith(ENCODER), wanted | weights):
        here, there = (str(tuple(of[name].shape)) if name in of else "not" for of in (wanted, weights))
        if here != there:
            hint = "choose the encoder settings that it was trained with"
            raise AsrtoolError(f"{path}: {name} is {here} here and {there} there", hint)
    reason = _why_new(found, info)
    kept = {name: tensor for name, tensor in weights.items() if name.startswith(ENCODER) or not reason}
    model.load_state_dict(wanted | kept)
    if found["model"] != info["model"] and not _make_same_rows(model, trained, info["num_features"]):
        what = "%s: its weights make other rows with these settings of the encoder than with those of its training"
        logging.warning(what, path)
    logging.info("beginning with the weights of %s%s", path, f", but its objective anew: {reason}" if reason else "")


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters whose names match one of `patterns` (as of a shell).

    Raises AsrtoolError if a pattern matches none, and if nothing is left to train.
    """
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            some = ", ".join(dict.fromkeys(name.rpartition(".")[0] + ".*" for name in names))
            raise AsrtoolError(f"train.frozen: {pattern!r} is the name of no parameter", f"expected some of {some}")
    for name, parameter in model.named_parameters():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    num_left = sum(parameter.requires_grad for parameter in model.parameters())
    if not num_left:
        raise AsrtoolError("train.frozen: all parameters match, so nothing is left to train", "name fewer layers")
    if patterns:
        logging.info("%d of %d parameter tensors are frozen", len(names) - num_left, len(names))


def _make_same_rows(model: AcousticModel, trained: AcousticModel, num_features: int) -> bool:
    """Return whether both encoders compute the same, by trial.

    Some settings, such as `residual`, have no weights.
    """
    feats_NTF = torch.randn(1, 48, num_features, generator=torch.Generator().manual_seed(1))
    lens_N = torch.tensor([48])
    model.eval()
    with torch.no_grad():
        ours_NTC, theirs_NTC = (one.encoder(one.inputs(feats_NTF, lens_N), lens_N)[0] for one in (model, trained))
    model.train()
    return ours_NTC.shape == theirs_NTC.shape and torch.allclose(ours_NTC, theirs_NTC, rtol=1e-3, atol=1e-4)


def _check_features(path: Path | str, found: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Raise AsrtoolError unless features are computed in the same way."""
    theirs, ours = (flatten({"features": table}) for table in (found["features"], info["features"]))
    others = [
        key for key, value in ours.items() if key.split(".")[1] not in NO_EFFECT and theirs.get(key, value) != value
    ]
    if others:
        wanted = ", ".join(f"{key} = {theirs[key]}" for key in others)
        what = f"{path}: trained on features with {wanted}, these have {', '.join(str(ours[key]) for key in others)}"
        settings = " ".join(f"--set {shlex.quote(format_override(key, theirs[key]))}" for key in others)
        raise AsrtoolError(what, f"compute the features again with {settings}")


def _why_new(found: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Return the reason for which the objective's weights cannot be used, or ''."""
    theirs, ours = (_parameters_of(described["model"]["objective"]) for described in (found, info))
    if theirs != ours:
        return f"it was trained for {found['model']['objective']}"
    if found.get("tokenizer") != info["tokenizer"]:
        return "it has other tokens"
    their_tree, our_tree = tree_of(found), tree_of(info)
    return "it has another decision tree" if their_tree and our_tree and not their_tree.is_same(our_tree) else ""


def _parameters_of(objective: str) -> str:
    """Return the objective whose parameters it shares, or itself."""
    return str(getattr(registry.settings_class("objective", objective), "parameters_of", objective))
