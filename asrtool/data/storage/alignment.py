"""Alignments of a feature set's utterances: written once, mapped to read.

A folder of sets holds ``targets.json`` (its inputs, written last), and for each set a folder with ``places.npy``,
(utterances, 2) uint64: first segment and number of segments, 0 without an alignment; and ``segments.bin``, (segments,
2) uint32: a token and its first frame. Segments are contiguous from frame 0 on; silence is token 0.

Letters in names: S segments, N utterances of a set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from asrtool.data.storage.index import INDEX
from asrtool.errors import AsrtoolError
from asrtool.files import digest_of, write_text

ABOUT = "targets.json"
PLACES, SEGMENTS = "places.npy", "segments.bin"
RERUN = "run `asrtool targets` again"


@contextmanager
def writing_alignment(folder: Path, num_utterances: int) -> Iterator[Callable[[int, np.ndarray], None]]:
    """Yield a function that adds an utterance's segments (S, 2) to a new `folder`.

    It takes the position of the utterance in the index; they come in any order.
    """
    folder.mkdir()
    places_N2 = np.zeros((num_utterances, 2), dtype=np.uint64)
    num_segments = 0

    def add(position: int, segments_S2: np.ndarray) -> None:
        nonlocal num_segments
        places_N2[position] = num_segments, len(segments_S2)
        file.write(np.ascontiguousarray(segments_S2, dtype=np.uint32).data)
        num_segments += len(segments_S2)

    with open(folder / SEGMENTS, "wb") as file:
        yield add
    np.save(folder / PLACES, places_N2)


class Alignment:
    """Alignment of the set in `folder`; AsrtoolError if it is missing or broken."""

    def __init__(self, folder: Path) -> None:
        try:
            self._places_N2 = np.load(folder / PLACES, mmap_mode="r").view(np.ndarray)
            segments = np.memmap(folder / SEGMENTS, np.uint32, "r")
        except (OSError, ValueError, EOFError) as error:
            raise AsrtoolError(f"{folder}: no alignment of a set", RERUN) from error
        num_segments = int(self._places_N2[:, 1].sum())
        if len(segments) != 2 * num_segments:
            found = f"{folder / SEGMENTS}: {len(segments) // 2} segments, expected {num_segments}"
            raise AsrtoolError(found, RERUN)
        self._segments_S2 = segments.view(np.ndarray).reshape(-1, 2)

    def lacks(self, position: int) -> bool:
        """Return whether the utterance at `position` has no alignment."""
        return not self._places_N2[position, 1]

    def missing(self) -> np.ndarray:
        """Return a mask of the utterances without an alignment, (N,) bool."""
        return self._places_N2[:, 1] == 0

    def segments(self, position: int) -> np.ndarray:
        """Return tokens and their first frames (S, 2) of an aligned utterance."""
        begin, num = self._places_N2[position].tolist()
        return self._segments_S2[begin : begin + num]

    def sequences(self) -> Iterator[np.ndarray]:
        """Yield the tokens (S,) of each aligned utterance, with silence."""
        for begin, num in self._places_N2.tolist():
            if num:
                yield self._segments_S2[begin : begin + num, 0]


def write_about(folder: Path, features: Path, tokenizer: Path, sets: Mapping[str, Any]) -> None:
    """Write ``targets.json``: digests of the tokenizer, and of each set's files."""
    set_digests = {
        name: {**about, "index": digest_of(features / name / INDEX), "segments": digest_of(folder / name / SEGMENTS)}
        for name, about in sets.items()
    }
    write_text(folder / ABOUT, json.dumps({"tokenizer": digest_of(tokenizer), **set_digests}, indent=1) + "\n")


def check_alignment_inputs(targets: Path, indexes: Mapping[str, str], tokenizer_sha256: str) -> None:
    """Raise AsrtoolError unless `targets` fits these indexes and this tokenizer.

    Older files lack the tokenizer's digest.
    """
    try:
        about = json.loads((targets / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "run `asrtool targets` first, and name its folder with --targets"
        raise AsrtoolError(f"{targets / ABOUT}: no alignment to train on", hint) from error
    for name, sha256 in indexes.items():
        if about.get(name, {}).get("index") != sha256:
            raise AsrtoolError(f"{targets}: not made from the current utterances of the set {name}", RERUN)
    if about.get("tokenizer", tokenizer_sha256) != tokenizer_sha256:
        what = f"{targets}: an alignment of the tokens of another tokenizer"
        raise AsrtoolError(what, "name that tokenizer, or run `asrtool targets` by a model of this one")
