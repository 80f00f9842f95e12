"""Pack the files of a work folder that recognition needs into one file."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asrtool.bundle.archive import Archive, is_archive, is_cut_off, open_archive, write_archive
from asrtool.bundle.info import card
from asrtool.bundle.trained import (
    CMVN_FILE,
    NETWORK,
    RUN,
    SAFE_MODEL,
    SETTINGS,
    TUNED,
    TUNING,
    TrainedRecogniser,
    dev_errors,
    open_trained,
)
from asrtool.data.features.cmvn import CMVN, write_everyone
from asrtool.decode.acoustic_model import load_acoustic_model
from asrtool.decode.resources import Resources
from asrtool.decode.search.method import bases_first, make_methods
from asrtool.errors import AsrtoolError
from asrtool.files import read_object
from asrtool.models.files.onnx_file import only_transcribed
from asrtool.models.files.safetensors_file import SUFFIX, write_safe
from asrtool.models.files.torch_file import read_torch
from asrtool.settings import registry
from asrtool.settings.config import Config, format_toml
from asrtool.settings.decode import suiting_methods
from asrtool.settings.values import read_toml
from asrtool.version import commit, release

NEURAL_LM = "nnlm/model.pt"
CARD = "README.md"
SECTIONS = ("data", "features", "tokenizer", "lang", "lm", "graph", "model", "nnlm", "decode")


def export_bundle(work: Path, out: Path, methods: Sequence[str] = ()) -> Archive:
    """Write the bundle `out` of a work folder or bundle, with some or all methods.

    Raises AsrtoolError if the work folder is not finished, a method was not tuned, `out` is a file of another kind,
    or the disk is full.
    """
    if out.exists() and (not is_archive(out) or is_cut_off(out)):
        raise AsrtoolError(f"{out}: exists, and is no bundle", "choose another name, or remove it first")
    with open_trained(work) as trained, tempfile.TemporaryDirectory(prefix="asrtool-") as folder:
        config = with_methods(trained, methods)
        if trained.model.name == NETWORK:
            raise only_transcribed(trained.model)
        files = {SAFE_MODEL: Path(folder) / "model.safetensors", **search_files(trained, config, Path(folder))}
        write_safe(files[SAFE_MODEL], read_torch(trained.model, "model file", ("format", "info", "weights")))
        about = describe(trained, config)
        files[CARD] = Path(folder) / CARD
        files[CARD].write_text(card(about), encoding="utf-8")
        return write_archive(out, files, about)


def with_methods(trained: TrainedRecogniser, names: Sequence[str]) -> Config:
    """Return the settings with only the methods `names` and their bases."""
    decode = trained.config.decode
    known = [method.name for method in decode.methods]
    for name in names:
        if name not in known:
            what = f"{trained.origin}: was not decoded by method {name}, expected some of {', '.join(known)}"
            work, more = shlex.quote(str(trained.origin)), ",".join([*known, name])
            first = f"choose one of these, or first: asrtool run --work {work} --set decode.methods={more}"
            can_be = name in suiting_methods(trained.config) and not is_archive(trained.origin)
            raise AsrtoolError(what, first if can_be else "choose one of these with --method")
    wanted = set(names or known)
    acoustic = load_acoustic_model(trained.model)
    made = make_methods(decode, Resources(acoustic, trained.folders, trained.config))
    for group in reversed(bases_first(made)):
        wanted |= {method.based_on for method in group if method.name in wanted and method.based_on}
    kept = tuple(method for method in decode.methods if method.name in wanted)
    return dataclasses.replace(trained.config, decode=dataclasses.replace(decode, methods=kept))


def _needed(config: Config) -> list[str]:
    """Return the folders that the methods read."""
    needs = ["tokenizer"]
    for method in config.decode.methods:
        needs += getattr(method.settings, "needs", ())
    return list(dict.fromkeys(needs))


def search_files(trained: TrainedRecogniser, config: Config, folder: Path) -> dict[str, Path]:
    """Return name -> path of the files that the methods need, but the acoustic model.

    Files that an export has in another form are written to `folder`: settings, normalisation sums over all speakers,
    the neural language model.
    """
    files = {SETTINGS: folder / "settings.toml", CMVN_FILE: folder / CMVN}
    files[SETTINGS].write_text(format_toml(config, SECTIONS), encoding="utf-8")
    write_everyone(folder, trained.cmvn_folder)
    neural = trained.folder / NEURAL_LM
    if config.nnlm.enabled and any("nnlm.enabled" in getattr(m.settings, "uses", ()) for m in config.decode.methods):
        files[str(Path(NEURAL_LM).with_suffix(SUFFIX))] = folder / "nnlm.safetensors"
        content = read_torch(neural, "neural language model", ("format", "info", "weights"))
        write_safe(folder / "nnlm.safetensors", content)
    for name in _needed(config):
        if (trained.folder / name).is_dir() and name != "nnlm":
            found = sorted(path for path in (trained.folder / name).rglob("*") if path.is_file())
            files |= {str(path.relative_to(trained.folder)): path for path in found}
    return files | {name: trained.folder / name for name in (TUNING, TUNED) if (trained.folder / name).exists()}


def describe(trained: TrainedRecogniser, config: Config) -> dict[str, Any]:
    """Describe the origin and the error rates of a recogniser."""
    methods = [method.name for method in config.decode.methods]
    if is_archive(trained.origin):
        return describe_with_methods(open_archive(trained.origin).about, methods)
    info = load_acoustic_model(trained.model).info
    run = read_object(trained.folder / RUN)
    training = read_object(trained.folder / "train" / "train.json")
    errors = {name: wer for name, wer in dev_errors(trained.folder).items() if name in methods}
    return {
        "name": trained.folder.resolve().name,
        "recipe": run.get("recipe", ""),
        "command": re.sub(r"(paths\.\w+)=\S+", r"\1=DIR", run.get("command", "")),
        "code_that_trained": training.get("code", []),
        "exported_by": f"{release()}, {commit()}",
        "sampling_rate_hz": info["features"]["sampling_rate_hz"],
        "num_parameters": training.get("num_parameters", 0),
        "num_tokens": info["num_tokens"],
        "encoder": info["model"]["encoder"],
        "objective": info["model"]["objective"],
        "hours": training.get("hours", 0),
        "speeds": list(info["features"].get("speeds", ())),
        "trained_on": _licences(trained),
        "methods": methods,
        "dev_wer_percent": errors,
        "test_wer_percent": dict(_test_errors(trained.folder, methods)),
    }


def _licences(trained: TrainedRecogniser) -> dict[str, str]:
    """Return title -> licence of each training corpus; an empty one is not known."""
    linked = trained.folder / "config" / "corpus.toml"
    if linked.exists() and not any(read_toml(linked).get("paths", {}).values()):
        return {"the mini corpus, synthetic speech": "that of asrtool"}
    corpora = [registry.load("corpus", choice.name) for choice in trained.config.data.train]
    return {corpus.title if corpus.licence else corpus.name: corpus.licence for corpus in corpora}


def describe_with_methods(about: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Return a bundle's description with only these methods, exported now."""

    def kept(rates: Mapping[str, float]) -> dict[str, float]:
        return {method: rate for method, rate in rates.items() if method in methods}

    tests = {name: kept(rates) for name, rates in about["test_wer_percent"].items()}
    return {
        **about,
        "methods": methods,
        "exported_by": f"{release()}, {commit()}",
        "dev_wer_percent": kept(about["dev_wer_percent"]),
        "test_wer_percent": {name: rates for name, rates in tests.items() if rates},
    }


def _test_errors(work: Path, methods: Iterable[str]) -> Iterable[tuple[str, dict[str, float]]]:
    """Set -> method -> word error rate in percent, of the sets that were scored."""
    for folder in sorted(path for path in (work / "score").glob("*") if path.is_dir()):
        rates = {}
        for method in methods:
            counts = read_object(folder / method / "score.json").get("overall", {})
            if counts.get("words"):
                rates[method] = round(100 * (counts["sub"] + counts["del"] + counts["ins"]) / counts["words"], 2)
        if rates:
            yield folder.name, rates
