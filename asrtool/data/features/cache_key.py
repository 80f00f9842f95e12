"""Decide whether stored features are still valid, and update their texts.

A set keeps a digest of each utterance with its recording and its audio's contents, without its text. If all wanted
utterances have one, no features are computed: removed utterances are left out when texts are joined.
Otherwise only shards with a changed digest (of utterances, settings and code) are computed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.data.manifests.manifest import audio_files, read_sorted
from asrtool.data.storage.index import INDEX, read_feature_settings
from asrtool.data.storage.transcripts import write_transcripts
from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.settings.config import to_table
from asrtool.settings.data import Features

FILE = "made_of.json"
DIGESTS = "made_of.npy"
MANIFEST_HINT = "make the manifest again"
# Paths, and their name in the log -> a digest of the contents of each, in order.
DigestFiles = Callable[[Collection[str], str], Iterator[Any]]
NO_PART = ("num_jobs", "executor", "bad_fraction", "cmvn")  # settings that do not affect stored features


def write_code_digest(out: Path, code: str) -> None:
    """Write the digest of the code that computed the sets below `out`."""
    write_text(out / FILE, json.dumps({"code": code}) + "\n")


def is_up_to_date(out: Path, features: Features, code: str) -> bool:
    """Return whether `out` is complete, with these settings and this code."""
    try:
        if json.loads((out / FILE).read_text(encoding="utf-8")) != {"code": code}:
            return False
        return read_feature_settings(out) == dataclasses.replace(features, num_jobs=0, executor="local")
    except (OSError, ValueError, AsrtoolError):
        return False


def update_texts(out: Path, manifests: Path, names: Iterable[str], digest_files: DigestFiles) -> bool:
    """Give sets the texts of their manifests; return whether they hold all utterances.

    Raises AsrtoolError for a missing or corrupt manifest. If False, all is computed again.
    """
    for name in names:
        if not (out / name / INDEX).exists() or not (out / name / DIGESTS).exists():
            return False
        held = np.load(out / name / DIGESTS)
        if not np.isin(join_texts(manifests / name, out / name, digest_files), held).all():
            return False
    return True


def join_texts(
    manifests: Path,
    directory: Path,
    digest_files: DigestFiles,
    each: Callable[[dict[str, Any], dict[str, Any], int], None] | None = None,
) -> np.ndarray:
    """Write texts of `manifests` to a set; return digests of utterances, uint64 (U,).

    These include what `digest_files` returns for the audio. `each` is called with the recording, the utterance
    without its text, and its digest. Raises AsrtoolError for a missing or corrupt manifest, and for an utterance
    without text.
    """
    recordings, lines = read_sorted(manifests)
    by_id = {entry["id"]: entry for entry in recordings}
    paths = dict.fromkeys(path for entry in recordings for path in audio_files(entry))
    file_digests = dict(zip(paths, digest_files(paths, f"audio of {manifests.name}"), strict=True))
    recording_digests = {
        entry["id"]: _digest([entry, *(file_digests[path] for path in audio_files(entry))]) for entry in recordings
    }
    del paths, file_digests
    digests = array("Q")

    def texts() -> Iterator[tuple[str, str]]:
        for entry, _ in lines:
            if not entry.get("text"):
                raise AsrtoolError(f"{manifests}: utterance {entry['id']} has no text", "give it one, or leave it out")
            rest = {key: value for key, value in entry.items() if key not in ("text", "alignment")}
            digest = _digest({**rest, "recording": recording_digests[entry["recording_id"]]})
            digests.append(digest)
            if each:
                each(by_id[entry["recording_id"]], rest, digest)
            yield entry["id"], entry["text"]

    write_transcripts(directory, texts())
    return np.frombuffer(digests, np.uint64)


def key_of(features: Features, code: str) -> str:
    """Return a digest of settings and code, which the shards of a plan share."""
    settings = {name: value for name, value in to_table(features).items() if name not in NO_PART}
    return f"{_digest([settings, code]):016x}"


def sizes_and_times(paths: Iterable[str], _: str) -> Iterator[tuple[int, int] | None]:
    """Return size and time of each of `paths`; None if it is missing."""
    return map(stat_file, paths)


def stat_file(path: str) -> tuple[int, int] | None:
    """Return size and time of `path`; None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _digest(value: Any) -> int:
    content = json.dumps(value, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
