"""What features were made of, so that those that hold all that is wanted stay, and take the texts of now.

A set keeps a digest of each utterance of its manifests, with its recording and without its text. Where all that are
wanted now are among these, features need not be computed: utterances that are gone are left out when texts are joined.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.corpus.index import INDEX, read_feature_settings
from asrtool.corpus.manifest import read_sorted
from asrtool.corpus.settings import Features
from asrtool.corpus.transcripts import write_transcripts
from asrtool.errors import AsrtoolError
from asrtool.files import write_text

FILE = "made_of.json"
DIGESTS = "made_of.npy"


def write_made_of(out: Path, code: str) -> None:
    """Write the digest of the code that has made the sets below `out`."""
    write_text(out / FILE, json.dumps({"code": code}) + "\n")


def is_made_of(out: Path, features: Features, code: str) -> bool:
    """Whether `out` is complete, made with these settings by this code."""
    try:
        if json.loads((out / FILE).read_text(encoding="utf-8")) != {"code": code}:
            return False
        return read_feature_settings(out) == dataclasses.replace(features, num_jobs=0)
    except (OSError, ValueError, AsrtoolError):
        return False


def take_texts(out: Path, manifests: Path, names: Iterable[str]) -> bool:
    """Give the sets `names` the texts of their manifests; whether they hold all utterances of these.

    Raises AsrtoolError for a missing or corrupt manifest. Where it is not so, all is to be computed again.
    """
    for name in names:
        if not (out / name / INDEX).exists() or not (out / name / DIGESTS).exists():
            return False
        held = np.load(out / name / DIGESTS)
        if not np.isin(join_texts(manifests / name, out / name), held).all():
            return False
    return True


def join_texts(manifests: Path, directory: Path) -> np.ndarray:
    """Write the texts of the folder `manifests` to the set `directory`; the digests of its utterances, uint64 (U,).

    Raises AsrtoolError for a missing or corrupt manifest, and for an utterance without text.
    """
    recordings, lines = read_sorted(manifests)
    of_recording = {entry["id"]: _digest(entry) for entry in recordings}
    digests = array("Q")

    def texts() -> Iterator[tuple[str, str]]:
        for entry, _ in lines:
            if not entry.get("text"):
                raise AsrtoolError(f"{manifests}: utterance {entry['id']} has no text", "give it one, or leave it out")
            rest = {**entry, "text": None, "alignment": None, "recording": of_recording[entry["recording_id"]]}
            digests.append(_digest(rest))
            yield entry["id"], entry["text"]

    write_transcripts(directory, texts())
    return np.frombuffer(digests, np.uint64)


def _digest(value: Any) -> int:
    content = json.dumps(value, sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
