"""Describe a bundle or a model file as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asrtool.bundle.archive import TABLE, Archive, is_archive, open_archive
from asrtool.errors import AsrtoolError
from asrtool.models.files.file_info import read_info


def describe_file(path: Path, as_json: bool = False) -> str:
    """Return lines of text, or the file's info as a JSON object.

    Raises AsrtoolError if the file is neither, or damaged.
    """
    if is_archive(path) or (path / TABLE).is_file():
        archive = open_archive(path)
        archive.check()
        if as_json:
            return json.dumps({"path": str(path), "digest": archive.digest, **archive.about})
        return "\n".join(_describe_bundle(archive))
    if path.is_dir():
        raise AsrtoolError(
            f"{path}: is a folder, expected a bundle or a model file",
            f"of a work folder: asrtool run --list --work {path}",
        )
    about = read_info(path)
    return json.dumps({"path": str(path), **about}) if as_json else "\n".join(_describe_model(path, about))


def card(about: Mapping[str, Any]) -> str:
    """Return the model card, in Markdown, of a bundle that `about` describes."""
    licences = about.get("trained_on") or {"corpora that are not recorded": ""}  # by asrtool 0.1
    data = "; ".join(f"{title} (licence: {licence or 'not recorded'})" for title, licence in licences.items())
    copies = ", with copies at other speeds," if set(about.get("speeds", ())) - {1} else ""
    rates = "\n".join(
        f"- {name}: " + ", ".join(f"{method} {rate:.2f} %" for method, rate in found.items())
        for name, found in {"dev": about["dev_wer_percent"], **about["test_wer_percent"]}.items()
    )
    return f"""\
# Speech recogniser of the recipe {about["recipe"]}

- Model: {about["encoder"]}, {about["objective"]}, {about["num_parameters"]:,} parameters, {about["num_tokens"]} tokens
- Audio: {about["sampling_rate_hz"]} Hz; others are resampled
- Searches: {", ".join(about["methods"])}
- Trained on {about["hours"]:.2f} h{copies} of {data}
- Trained by `{about["command"]}`
- Code: {", then ".join(about["code_that_trained"]) or "not recorded"}; exported by {about["exported_by"]}

## Word error rates

{rates}

The command above gives them; the searches were tuned on dev. On another test set: `asrtool decode BUNDLE DATA OUT`.

## Use and limits

For speech like the training data: language, topics, channel, manner. The error rate on other speech
is unknown; measure it first. Searches with a graph write only words of the training's lexicon. A
person has to check a transcript before it decides anything about people.
"""


def _describe_bundle(archive: Archive) -> Iterator[str]:
    yield card(archive.about)
    yield f"{archive.path}: bundle, {archive.num_bytes / 2**20:.1f} MiB, whole, digest {archive.digest}\n"
    for name, member in archive.files.items():
        yield f"    {member.num_bytes:>12,}  {name}"


def _describe_model(path: Path, info: Mapping[str, Any]) -> Iterator[str]:
    yield f"{path}: model file, {path.stat().st_size / 2**20:.1f} MiB, whole"
    model, features = info.get("model", {}), info.get("features", {})
    if model:
        yield f"model       {model['encoder']}, {model['objective']}"
        yield f"tokens      {info['num_tokens']}"
        yield f"features    {features['type']}, {info['num_features']} a frame, {features['sampling_rate_hz']} Hz"
    elif "words" in info:
        yield f"model       neural language model, {len(info['words'])} words"
