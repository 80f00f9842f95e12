"""Describe a bundle or a model file as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asrtool.bundle.archive import Archive, is_archive, open_archive
from asrtool.errors import AsrtoolError
from asrtool.models.files.file_info import read_info


def describe_file(path: Path) -> str:
    """Lines of text. Raises AsrtoolError where the file is neither, or damaged."""
    if path.is_dir():
        raise AsrtoolError(
            f"{path}: is a folder, expected a bundle or a model file",
            f"of a work folder: asrtool run --list --work {path}",
        )
    if is_archive(path):
        archive = open_archive(path)
        archive.check()
        return "\n".join(_of_bundle(archive))
    return "\n".join(_of_model(path, read_info(path)))


def _of_bundle(archive: Archive) -> Iterator[str]:
    about = archive.about
    yield f"{archive.path}: bundle, {archive.num_bytes / 2**20:.1f} MiB, whole"
    yield f"digest      {archive.digest}"
    yield f"model       {about['encoder']}, {about['objective']}, {about['num_parameters']:,} parameters"
    yield f"tokens      {about['num_tokens']}"
    yield f"audio       {about['sampling_rate_hz']} Hz; others are resampled"
    yield f"trained on  {about['hours']:.2f} h, all speeds; recipe {about['recipe']}: {about['command']}"
    trained_by = ", then ".join(about["code_that_trained"]) or "not recorded"
    yield f"code        {trained_by}; exported by {about['exported_by']}"
    yield f"searches    {', '.join(about['methods'])}"
    for name, rates in {"dev, tuned on": about["dev_wer_percent"], **about["test_wer_percent"]}.items():
        yield f"WER on {name}: " + ", ".join(f"{method} {rate:.2f} %" for method, rate in rates.items())
    for name, member in archive.files.items():
        yield f"  {member.num_bytes:>12,}  {name}"


def _of_model(path: Path, info: Mapping[str, Any]) -> Iterator[str]:
    yield f"{path}: model file, {path.stat().st_size / 2**20:.1f} MiB, whole"
    model, features = info.get("model", {}), info.get("features", {})
    if model:
        yield f"model       {model['encoder']}, {model['objective']}"
        yield f"tokens      {info['num_tokens']}"
        yield f"features    {features['type']}, {info['num_features']} a frame, {features['sampling_rate_hz']} Hz"
    elif "words" in info:
        yield f"model       neural language model, {len(info['words'])} words"
