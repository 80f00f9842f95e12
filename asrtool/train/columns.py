"""What training needs to know of each utterance of a set, as columns: NumPy files that the learners of a node map.

In the folder of a set: `about.json`, and the arrays of `Columns`, one file each. They are built by the learner that
comes first, of the index, the tokenizer and the model, and named for these; the others wait for it.
"""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.corpus.index import Utterance, scan_index
from asrtool.corpus.shard_index import ShardTable
from asrtool.corpus.transcripts import open_transcripts
from asrtool.errors import AsrtoolError
from asrtool.files import LOCK, alone, write_folder
from asrtool.models.acoustic import AcousticModel
from asrtool.train.batch import NUM_NAMED
from asrtool.train.inputs import ColumnsFolder

ABOUT = "about.json"
PIECE = 2**14  # utterances at a time


@dataclass(frozen=True)
class Columns:
    """The utterances that the objective can be trained on, in storage order; arrays of unsigned integers, but one."""

    positions: np.ndarray  # of each, in the index
    num_frames: np.ndarray  # of each
    normalisers: np.ndarray  # of each: its part in the normaliser of the loss
    texts: np.ndarray  # of each: the number of its text; copies at other speeds share one
    corpora: np.ndarray  # of each: the number of its corpus, a place in about["corpora"]
    ends: np.ndarray  # of each text, where its tokens end; the first one is 0, where they begin
    tokens: np.ndarray  # of all texts, one behind the other
    shards: np.ndarray  # of the whole index, as a ShardIndex takes it
    about: Mapping[str, Any]  # sums over the utterances, and what was left out

    def targets(self, row: int) -> np.ndarray:
        """The tokens of an utterance, int64."""
        text = int(self.texts[row])
        return self.tokens[self.ends[text] : self.ends[text + 1]].astype(np.int64)


ARRAYS = [item.name for item in dataclasses.fields(Columns) if item.name != "about"]


Lacks = Callable[[int], bool]  # whether the utterance at this position in the index has no targets


def open_columns(
    directory: Path,
    encode: Callable[[str], list[int]],
    model: AcousticModel,
    folder: ColumnsFolder | None,
    lacks: Lacks | None = None,
) -> Columns:
    """The columns of the features in `directory`, mapped from `folder`; held in memory where there is none.

    Utterances that `lacks` says yes to are left out.

    Raises AsrtoolError naming an utterance whose text cannot be encoded, or the broken line of the index or the texts.
    """
    key = folder.key(directory.name) if folder else ""
    if not folder or not key:
        return build_columns(directory, encode, model, lacks)
    path = folder.path / directory.name
    found = _read(path, key)
    if found:
        return found
    with alone(folder.path / LOCK):
        if not (found := _read(path, key)):  # no other learner has built them meanwhile
            _write(path, key, build_columns(directory, encode, model, lacks))
            found = _read(path, key)
    assert found, path
    return found


def build_columns(
    directory: Path, encode: Callable[[str], list[int]], model: AcousticModel, lacks: Lacks | None = None
) -> Columns:
    """Of the index in `directory`; AsrtoolError as open_columns."""
    table, texts, numbers, about = ShardTable(), Texts(encode), _Numbers(), _About()
    transcripts = open_transcripts(directory)
    utterances = enumerate(_counted(directory, table))
    while piece := list(islice(utterances, PIECE)):
        num_frames = torch.tensor([utterance.num_frames for _, utterance in piece])
        said = transcripts.texts([utterance for _, utterance in piece])
        rows = model.encoder.output_lens(num_frames).tolist()
        for (i, utterance), words, num_rows in zip(piece, said, rows, strict=True):
            if words is None:
                about.num_without_text += 1
                continue
            text, targets = texts.number(utterance.id, words)
            reason = "no alignment" if lacks and lacks(i) else model.objective.fits(num_rows, targets)
            if reason:
                about.drop(utterance, reason)
            else:
                corpus = about.count(utterance)
                numbers.add(i, utterance.num_frames, model.objective.normaliser(num_rows, targets), text, corpus)
    arrays: list[Any] = [*numbers.to_arrays(), *texts.to_arrays(), table.to_array()]
    return Columns(**dict(zip(ARRAYS, arrays, strict=True)), about=dataclasses.asdict(about))


def _counted(directory: Path, table: ShardTable) -> Iterator[Utterance]:
    for utterance, end in scan_index(directory):
        table.add(utterance, end)
        yield utterance


@dataclass
class _About:
    num_samples: int = 0
    num_frames: int = 0
    duration_s: float = 0.0
    num_without_text: int = 0  # that have features and no text any more
    corpora: list[str] = dataclasses.field(default_factory=list)
    num_dropped: int = 0
    dropped: list[str] = dataclasses.field(default_factory=list)  # the first ones, with the reason

    def count(self, utterance: Utterance) -> int:
        """The number of its corpus."""
        if utterance.corpus not in self.corpora:
            self.corpora.append(utterance.corpus)
        self.num_samples += 1
        self.num_frames += utterance.num_frames
        self.duration_s += utterance.duration_s
        return self.corpora.index(utterance.corpus)

    def drop(self, utterance: Utterance, reason: str) -> None:
        self.num_dropped += 1
        if self.num_dropped <= NUM_NAMED:
            self.dropped.append(f"{utterance.id} ({reason})")


class _Numbers:
    """Five numbers of each utterance, the last one small."""

    def __init__(self) -> None:
        self._columns = [array(kind) for kind in "IIIIH"]

    def add(self, *numbers: int) -> None:
        for column, number in zip(self._columns, numbers, strict=True):
            column.append(number)

    def to_arrays(self) -> list[np.ndarray]:
        return [np.frombuffer(column, column.typecode) for column in self._columns]


class Texts:
    """Distinct texts, numbered from 0, and their tokens."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._numbers: dict[str, int] = {}
        self._ends = array("Q", [0])
        self._tokens = array("I")

    def number(self, name: str, text: str) -> tuple[int, Sequence[int]]:
        """The number of the text of utterance `name`, and its tokens; AsrtoolError where it has characters of none."""
        number = self._numbers.get(text)
        if number is not None:
            return number, self._tokens[self._ends[number] : self._ends[number + 1]]
        try:
            targets = self._encode(text)
        except AsrtoolError as error:
            raise AsrtoolError(f"utterance {name}: {error.what}", error.hint) from error
        number = self._numbers[text] = len(self._numbers)
        self._tokens.extend(targets)
        self._ends.append(len(self._tokens))
        return number, targets

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of each text end, after a 0; and the tokens, of 16 bits where these are enough."""
        tokens = np.frombuffer(self._tokens, np.uint32)
        narrow = tokens.size == 0 or tokens.max() < 2**16
        return np.frombuffer(self._ends, np.uint64), tokens.astype(np.uint16) if narrow else tokens


def _read(path: Path, key: str) -> Columns | None:
    """What is there for this key; None where that is nothing, or broken."""
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        if about.pop("key") != key:
            return None
        arrays: dict[str, Any] = {name: _map(path / f"{name}.npy") for name in ARRAYS}
        return Columns(**arrays, about=about)
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _map(path: Path) -> np.ndarray:
    mapped: np.ndarray = np.load(path, mmap_mode="r")
    return mapped.view(np.ndarray)


def _write(path: Path, key: str, columns: Columns) -> None:
    with write_folder(path, ABOUT) as folder:
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", getattr(columns, name))
        (folder / ABOUT).write_text(json.dumps({"key": key, **columns.about}), encoding="utf-8")
