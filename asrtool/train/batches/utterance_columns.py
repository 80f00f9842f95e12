"""Columns of training utterances: NumPy files that the learners of a node map.

The folder of a set has `about.json` and one file for each array of `Columns`. The first learner builds them from the
columns of the features stage, tokenizer and model; the others wait.

Letters in names: N utterances of the index, L lines of its texts.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrtool.data.storage.index import ShardIndex
from asrtool.data.storage.index_columns import IndexColumns, open_index_columns
from asrtool.data.storage.transcripts import open_text_columns
from asrtool.errors import AsrtoolError
from asrtool.files import LOCK, exclusive, write_folder
from asrtool.models.acoustic import AcousticModel, Objective
from asrtool.models.objectives.targets import Targets
from asrtool.train.batches.batch import NUM_NAMED
from asrtool.train.batches.text_encoding import Encode, Encoder, find_lines
from asrtool.train.inputs import ColumnsFolder


class ObjectiveRequirements:
    """Minimum lengths an objective needs, by frames or rows and by texts."""

    def __init__(self, model: AcousticModel, targets: Targets) -> None:
        """Take the model and the targets of the texts."""
        self._encoder = model.encoder
        self._objective = model.objective
        self._targets = targets

    def num_rows(self, num_frames_N: np.ndarray) -> np.ndarray:
        """Return the encoder rows of each number of frames, (N,) int64."""
        rows: np.ndarray = self._encoder.output_lens(torch.from_numpy(num_frames_N.astype(np.int64))).numpy()
        return rows

    def fits(self, num_rows_N: np.ndarray, texts_N: np.ndarray) -> np.ndarray:
        """Return which utterances can be trained on, (N,) bool."""
        if type(self._objective).fits is Objective.fits:
            fits: np.ndarray = self._needed[texts_N] <= num_rows_N
            return fits
        return np.array([not self.reason(*one) for one in _each(num_rows_N, texts_N)], bool)

    def reason(self, num_rows: int, text: int) -> str:
        """Return why an utterance cannot be trained on, or ''."""
        return self._objective.fits(num_rows, self._targets[text].tolist())

    def normalisers(self, num_rows_N: np.ndarray, texts_N: np.ndarray) -> np.ndarray:
        """Return the share of each utterance in the normaliser of the loss, (N,) int64."""
        if type(self._objective).normaliser is Objective.normaliser:
            return self._objective.counts(num_rows_N, self._lens[texts_N])
        get = self._objective.normaliser
        return np.array([get(num, self._targets[text].tolist()) for num, text in _each(num_rows_N, texts_N)], np.int64)

    @functools.cached_property
    def _needed(self) -> np.ndarray:
        return self._objective.rows_needed(self._targets)

    @functools.cached_property
    def _lens(self) -> np.ndarray:
        return self._targets.lens


def _each(num_rows_N: np.ndarray, texts_N: np.ndarray) -> zip[tuple[int, int]]:
    return zip(num_rows_N.tolist(), texts_N.tolist(), strict=True)


ABOUT = "about.json"
PIECE = 2**18  # utterances at a time
KINDS = "IIIIH"  # types of the five columns that have a number for each utterance


@dataclass(frozen=True)
class Columns:
    """Trainable utterances in storage order: arrays of unsigned integers, and `about`."""

    positions: np.ndarray  # position of each in the index
    num_frames: np.ndarray  # of each
    normalisers: np.ndarray  # part of each in the normaliser of the loss
    texts: np.ndarray  # number of the text of each; copies at other speeds share one
    corpora: np.ndarray  # corpus of each, a position in about["corpora"]
    ends: np.ndarray  # end of the tokens of each text, after a first 0
    tokens: np.ndarray  # tokens of all texts, concatenated
    shards: np.ndarray  # table of the whole index, for ShardIndex
    about: Mapping[str, Any]  # sums over the utterances, and what was left out

    def targets(self, row: int) -> np.ndarray:
        """Return the tokens of an utterance, int64."""
        text = int(self.texts[row])
        return self.tokens[self.ends[text] : self.ends[text + 1]].astype(np.int64)


ARRAYS = [item.name for item in dataclasses.fields(Columns) if item.name != "about"]


def open_columns(
    directory: Path,
    encode: Encode,
    model: AcousticModel,
    folder: ColumnsFolder | None,
    missing_N: np.ndarray | None = None,
    needs_all: bool = True,
) -> Columns:
    """Map the columns of a feature set from `folder`, or build them in memory.

    Utterances without targets (`missing_N`) are left out, and unless the set `needs_all` utterances whose text cannot
    be encoded. Raises AsrtoolError naming such an utterance, or a broken line of the index or the texts.
    """
    key = folder.key(directory.name) if folder else ""
    if not folder or not key:
        return build_columns(directory, encode, model, missing_N, needs_all)
    path = folder.path / directory.name
    found = _read(path, key)
    if found:
        return found
    with exclusive(folder.path / LOCK):
        if not (found := _read(path, key)):  # no other learner has built them meanwhile
            _write(path, key, build_columns(directory, encode, model, missing_N, needs_all))
            found = _read(path, key)
    assert found, path
    return found


def build_columns(
    directory: Path,
    encode: Encode,
    model: AcousticModel,
    missing_N: np.ndarray | None = None,
    needs_all: bool = True,
) -> Columns:
    """Build the columns of a set; AsrtoolError as open_columns."""
    index, texts = open_index_columns(directory), open_text_columns(directory)
    lines_N, encoder = find_lines(index.keys, texts.keys), Encoder(texts, encode)
    utterances = ShardIndex(directory, index.shards)
    failed_N = encoder.failed(lines_N)
    if failed_N.any():
        first = int(failed_N.argmax())
        error = _not_encoded(utterances[first].id, texts.text(int(lines_N[first])), encode)
        if needs_all or failed_N[lines_N >= 0].all():
            raise error
        logging.warning(
            "%s: no loss of %d of %d utterances, which have characters that training has not; the first is %s",
            directory, failed_N.sum(), len(failed_N), error.what,
        )  # fmt: skip
        lines_N = np.where(failed_N, -1, lines_N)
    is_used_L = np.zeros(len(texts.keys) + 1, bool)
    is_used_L[lines_N] = True  # utterances without text count for an extra line at the end
    targets = encoder.targets(np.flatnonzero(is_used_L[:-1]))
    texts_L = np.cumsum(is_used_L, dtype=np.uint32) - np.uint32(1)
    about, arrays = _choose(utterances, index, ObjectiveRequirements(model, targets), lines_N, texts_L, missing_N)
    about["num_without_text"] -= int(failed_N.sum())
    about["num_not_encoded"] = int(failed_N.sum())
    arrays += [targets.ends, targets.values, index.shards]
    return Columns(**dict(zip(ARRAYS, arrays, strict=True)), about=about)


def _not_encoded(name: str, text: str, encode: Encode) -> AsrtoolError:
    try:
        encode(text)
    except AsrtoolError as error:
        return AsrtoolError(f"utterance {name}: {error.what}", error.hint)
    raise AssertionError(f"a word of {text!r} has no tokens, and the text has")


def _choose(
    utterances: ShardIndex,
    index: IndexColumns,
    requirements: ObjectiveRequirements,
    lines_N: np.ndarray,
    texts_L: np.ndarray,
    missing_N: np.ndarray | None,
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return `about` of the trainable utterances, and five arrays of their columns."""
    # Room for all from the beginning: pieces that are put together leave holes in the memory of the learner.
    columns = [np.empty(len(lines_N), kind) for kind in KINDS]
    dropped: list[str] = []
    num = num_dropped = 0
    duration_s = 0.0
    for begin in range(0, len(lines_N), PIECE):
        lines = lines_N[begin : begin + PIECE]
        with_text = begin + np.flatnonzero(lines >= 0)
        num_frames, texts = index.num_frames[with_text], texts_L[lines_N[with_text]]
        num_rows = requirements.num_rows(num_frames)
        missing = np.zeros(len(with_text), bool) if missing_N is None else missing_N[with_text]
        fits = requirements.fits(num_rows, texts) & ~missing
        for i in np.flatnonzero(~fits)[: NUM_NAMED - len(dropped)].tolist():
            why = "no alignment" if missing[i] else requirements.reason(int(num_rows[i]), int(texts[i]))
            dropped.append(f"{utterances[int(with_text[i])].id} ({why})")
        kept = with_text[fits]
        num_dropped += len(with_text) - len(kept)
        # One after the other, as they always were added up: a pairwise sum has other last digits.
        duration_s = float(np.add.accumulate(np.append(duration_s, index.durations_s[kept]))[-1])
        normalisers = requirements.normalisers(num_rows[fits], texts[fits])
        kept_values = (kept, num_frames[fits], normalisers, texts[fits], index.corpora[kept])
        for column, part in zip(columns, kept_values, strict=True):
            column[num : num + len(kept)] = part
        num += len(kept)
    *arrays, corpora = (column[:num] for column in columns)
    present = [i for i in range(len(index.names)) if i in corpora]
    ordered = sorted(present, key=lambda i: int((corpora == i).argmax()))  # order of their first utterances
    numbers = np.zeros(len(index.names), np.uint16)
    numbers[ordered] = np.arange(len(ordered))
    about = {
        "num_samples": num,
        "num_frames": int(arrays[1].sum(dtype=np.int64)),
        "duration_s": duration_s,
        "num_without_text": len(lines_N) - num - num_dropped,
        "corpora": [index.names[i] for i in ordered],
        "num_dropped": num_dropped,
        "dropped": dropped,  # the first ones, with the reason
    }
    return about, [*arrays, numbers[corpora]]


def _read(path: Path, key: str) -> Columns | None:
    """Read the columns of this key; None if missing or broken."""
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
    with write_folder(path, ABOUT, is_cache=True) as folder:
        for name in ARRAYS:
            np.save(folder / f"{name}.npy", getattr(columns, name))
        (folder / ABOUT).write_text(json.dumps({"key": key, **columns.about}), encoding="utf-8")
