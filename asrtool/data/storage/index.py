"""Index of a feature set: `index.jsonl`, one utterance a line in storage order.

It is read without lhotse and torch, so planning and counting are quick.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np

from asrtool.errors import AsrtoolError
from asrtool.files import write_text
from asrtool.settings.config import to_table
from asrtool.settings.data import Features
from asrtool.settings.toml_files import load_section

INDEX = "index.jsonl"
SETTINGS = "features.json"
WINDOW_SHARDS = 8  # whose utterances a batch plan mixes
RERUN = "run the features stage again"


@dataclass(frozen=True, slots=True)
class Utterance:
    """Utterance with stored features.

    `start_s` and `duration_s` of a copy are divided by its speed.
    """

    id: str
    recording: str
    channel: str  # A or B
    start_s: float
    duration_s: float
    speaker: str
    text: str | None  # None if it is joined on reading, as of all sets that have transcripts.tsv
    shard: int
    num_frames: int
    corpus: str = ""  # its corpus; older files have none
    fields: Mapping[str, Any] = field(default_factory=lambda: NO_FIELDS, hash=False)  # further fields of the corpus

    @property
    def transcript(self) -> str:
        """Return the text; raises AsrtoolError if it was not joined."""
        if self.text is None:
            raise AsrtoolError(
                f"utterance {self.id}: its text was not joined", "ask `texts` of the FeatureReader for it"
            )
        return self.text


NO_FIELDS: Mapping[str, Any] = {}  # one object for all utterances without
_NAMES = [each.name for each in dataclasses.fields(Utterance)]
_DEFAULTS: Mapping[str, Any] = {"text": None, "corpus": "", "fields": NO_FIELDS}  # values of missing fields


def write_index(directory: Path, utterances: Iterable[Utterance]) -> int:
    """Write `directory`/index.jsonl and return its number of utterances.

    Not atomic by itself: the directory of a set is renamed when it is complete.
    """
    with open(directory / INDEX, "w", encoding="utf-8") as file:
        return sum(bool(file.write(format_line(utterance))) for utterance in utterances)


def format_line(utterance: Utterance) -> str:
    """Return the line of an utterance in the index."""
    values = {name: getattr(utterance, name) for name in _NAMES}
    stated = {name: value for name, value in values.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
    return json.dumps(stated, ensure_ascii=False) + "\n"


def read_index(directory: Path) -> list[Utterance]:
    """Read utterances in storage order; AsrtoolError as `scan_index`."""
    return [utterance for utterance, _ in scan_index(directory)]


def scan_index(directory: Path) -> Iterator[tuple[Utterance, bytes]]:
    """Yield the utterances of a set, each with its line.

    Raises AsrtoolError naming file and line if the index is missing, empty, or a line is broken.
    """
    path = Path(directory) / INDEX
    shard = None
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                utterance = parse_line(line.decode(), f"{path}:{number}")
                if shard is not None and utterance.shard < shard:
                    found = f"{path}:{number}: shard {utterance.shard} after {shard}, expected storage order"
                    raise AsrtoolError(found, RERUN)
                shard = utterance.shard
                yield utterance, line
    except (OSError, UnicodeDecodeError) as error:
        raise AsrtoolError(f"{path}: no readable list of utterances", RERUN) from error
    if shard is None:
        raise AsrtoolError(f"{path}: lists no utterance, expected at least one", RERUN)


def parse_line(line: str, where: str) -> Utterance:
    """Parse a line of the index; AsrtoolError naming `where`."""
    try:
        fields = json.loads(line)
        utterance = Utterance(**{"text": None, **fields, "corpus": sys.intern(fields.get("corpus", ""))})
        if utterance.channel not in ("A", "B") or not utterance.num_frames >= 1:
            found = f"channel {utterance.channel}, num_frames {utterance.num_frames}"
            raise ValueError(f"{found}, expected channel A or B, one frame or more")
    except (ValueError, TypeError, AttributeError) as error:
        raise AsrtoolError(f"{where}: no utterance: {error}", RERUN) from error
    return utterance


def write_feature_settings(directory: Path, features: Features) -> None:
    """Write `directory`/features.json, the settings the sets below it were made with.

    Written last, so all sets are complete if it exists.
    """
    write_text(Path(directory) / SETTINGS, json.dumps(to_table(features), indent=1) + "\n")


def read_feature_settings(directory: Path) -> Features:
    """Read the settings of the feature sets below `directory`.

    Raises AsrtoolError if the file is missing (the stage did not finish) or holds something else.
    """
    path = Path(directory) / SETTINGS
    try:
        features: Features = load_section("features", json.loads(path.read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise AsrtoolError(f"{path}: missing, so the features are not complete", RERUN) from error
    except (ValueError, AttributeError, AsrtoolError) as error:
        raise AsrtoolError(f"{path}: no feature settings: {error}", RERUN) from error
    return features


class ShardIndex(Sequence[Utterance]):
    """Utterances of `directory`/index.jsonl by a table; keeps the last shards' lines."""

    def __init__(self, directory: Path, table: np.ndarray) -> None:
        """Take the `shards` of the columns of this file."""
        self._arguments = (directory, table)
        self._path = directory / INDEX
        self.numbers, self.first, self._begin, frames = table.T
        self.num_frames = int(frames.sum())
        self._shard = functools.lru_cache(2 * WINDOW_SHARDS)(self._read_shard)

    def __reduce__(self) -> tuple[type[ShardIndex], tuple[Path, np.ndarray]]:
        """Pickle without the kept lines."""
        return ShardIndex, self._arguments

    def __len__(self) -> int:
        return int(self.first[-1])

    @overload
    def __getitem__(self, i: int) -> Utterance: ...
    @overload
    def __getitem__(self, i: slice) -> list[Utterance]: ...
    def __getitem__(self, i: int | slice) -> Utterance | list[Utterance]:
        """Read an utterance or a slice; AsrtoolError if the file does not fit its table."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        place = int(np.searchsorted(self.first, i, side="right")) - 1
        return self._shard(place)[i - int(self.first[place])]

    def _read_shard(self, place: int) -> list[Utterance]:
        begin, end = self._begin[place : place + 2].tolist()
        first, after = self.first[place : place + 2].tolist()
        try:
            with open(self._path, "rb") as file:
                file.seek(begin)
                lines = file.read(end - begin).removesuffix(b"\n").decode().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise AsrtoolError(f"{self._path}: no readable list of utterances", RERUN) from error
        if len(lines) != after - first:
            raise AsrtoolError(f"{self._path}: changed while it was in use", "run the same command again")
        return [parse_line(line, f"{self._path}:{number}") for number, line in enumerate(lines, first + 1)]
