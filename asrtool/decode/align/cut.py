"""Cut long utterances at pauses found by forced alignment, for training.

    asrtool cut exp/cutter/model.pt exp/manifests exp/features exp/tokenizer exp/cut --config conf.toml

Letters in names: T rows, V columns of the scores.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.features.further_sets import link_files, write_extended_set, write_separate_set
from asrtool.data.manifests.manifest import DROPPED, Drop, format_drops, format_line, read_sorted, write_sorted
from asrtool.data.manifests.sets import FILE, LONG, read_sets
from asrtool.data.manifests.validator import Entry
from asrtool.data.storage.index import SETTINGS, read_feature_settings
from asrtool.data.storage.shard import CHANNELS
from asrtool.decode.acoustic_model import AcousticModel, load_acoustic_model, load_tokenizer
from asrtool.decode.align.align import Item, align_tokens, group_by_words, map_aligned
from asrtool.decode.forward import open_features
from asrtool.decode.words import Word, is_spoken, place_words
from asrtool.files import write_folder
from asrtool.lang.tokenizer import Tokenizer
from asrtool.models.objectives.topology import Topology
from asrtool.settings.data import Data
from asrtool.settings.decode import Decode

PIECES = "pieces.tsv"
MIN_S = 1.0  # of a piece
PAUSE_S = 0.2  # shortest pause to cut at
KEPT_S = 0.2  # longest part of a pause that stays on either side of a cut
WORST_NATS = 2.0  # a token, by which the best path of the text may be worse than the best of all


@dataclass(frozen=True)
class Piece:
    """Consecutive words, and their times in seconds from the utterance's start."""

    begin_s: float
    end_s: float
    text: str


def cut_at_pauses(words: Sequence[Word], duration_s: float, largest_s: float) -> list[Piece]:
    """Return the fewest pieces of an utterance, or none if its pauses do not allow it.

    A piece lasts MIN_S to `largest_s`. Of equally many, the one with the longest pauses is taken. A piece keeps
    half of a pause, KEPT_S at most, and all before the first and after the last word. Tags are not cut from words,
    since their length is unknown.
    """
    cuts = [0, *_pauses(words), len(words)]
    best: dict[int, tuple[int, float, int]] = {0: (0, 0.0, 0)}  # place -> pieces up to it, minus pauses, place before
    for number, end in enumerate(cuts[1:], 1):
        candidates = []
        for begin in cuts[:number]:
            if begin in best:
                begin_s, end_s = _span(words, begin, end, duration_s)
                if MIN_S <= end_s - begin_s <= largest_s:
                    pause_s = _gap(words, end) if end < len(words) else 0.0
                    candidates.append((best[begin][0] + 1, best[begin][1] - pause_s, begin))
        if candidates:
            best[end] = min(candidates)
    ends = [len(words)] if len(words) in best else []
    while ends and ends[-1]:
        ends.append(best[ends[-1]][2])
    spans = itertools.pairwise(reversed(ends))
    return [Piece(*_span(words, i, j, duration_s), " ".join(word.text for word in words[i:j])) for i, j in spans]


def _pauses(words: Sequence[Word]) -> list[int]:
    """Return the positions of words before which a pause can be cut at."""
    return [
        i
        for i in range(1, len(words))
        if is_spoken(words[i - 1].text) and is_spoken(words[i].text) and _gap(words, i) >= PAUSE_S
    ]


def _gap(words: Sequence[Word], i: int) -> float:
    return words[i].begin_s - words[i - 1].end_s


def _span(words: Sequence[Word], begin: int, end: int, duration_s: float) -> tuple[float, float]:
    """Return the times of words `begin` to `end` with their share of pauses."""
    begin_s = words[begin].begin_s - min(_gap(words, begin) / 2, KEPT_S) if begin else 0.0
    end_s = words[end - 1].end_s + min(_gap(words, end) / 2, KEPT_S) if end < len(words) else duration_s
    return begin_s, end_s


def find_words(topology: Topology, frame_s: float, item: Item) -> list[Word] | tuple[str, str]:
    """Return the words of an utterance with their times, or a reason and a detail.

    `frame_s` is the time from one row of scores to the next.
    """
    path = align_tokens(topology, item)
    if isinstance(path, str):
        return "no alignment", path
    scores_TV, tokenized = item
    spans = topology.spans(path, scores_TV)
    gap_nats = float((scores_TV.max(axis=1) - scores_TV[np.arange(len(path)), path]).sum()) / max(len(spans), 1)
    if gap_nats > WORST_NATS:
        return "text unlike audio", f"{gap_nats:.1f} nats a token behind the best path, {WORST_NATS:g} allowed"
    return place_words(group_by_words(spans, tokenized), frame_s, len(scores_TV), topology.margin_s)


def cut_run(
    model: Path, manifests: Path, features: Path, tokenizer: Path, out: Path, settings: Decode, data: Data
) -> None:
    """Cut the utterances of `manifests`/long by `model`, and write the folder `out`.

    `out`/features are `features` with the pieces after the training set; `out`/pieces.tsv lists these,
    `out`/dropped.tsv the utterances that could not be cut. Raises AsrtoolError if an input is missing or broken, and
    if parts do not belong together.
    """
    sets = read_sets(features)
    computed = dataclasses.replace(read_feature_settings(features), num_jobs=settings.num_jobs)
    acoustic = load_acoustic_model(model)
    loaded = load_tokenizer(tokenizer, acoustic)
    train = features / sets.train
    with write_folder(out, PIECES) as folder:
        target = folder / "features"
        target.mkdir()
        long: list[Entry] = []
        pieces: list[Entry] = []
        drops: list[Drop] = []
        if (manifests / LONG).is_dir():
            recordings, lines = read_sorted(manifests / LONG)
            long = [entry for entry, _ in lines]
            drops += write_separate_set(target / LONG, train, manifests / LONG, computed)
            found = _cut_set(acoustic, target / LONG, loaded, data.max_duration_s, settings, drops)
            shutil.rmtree(target / LONG)
            pieces = [piece for entry in long for piece in _pieces(entry, found.get(entry["id"], []))]
            pieces.sort(key=lambda e: (e["recording_id"], e["start"], e["channel"], e["id"]))
            if pieces:
                write_sorted(folder / "manifests", recordings, map(format_line, pieces), drops, 1.0, {})
        drops += write_extended_set(target / sets.train, train, folder / "manifests" if pieces else None, computed)
        link_files(target / sets.dev, features / sets.dev)
        for name in (FILE, SETTINGS):
            shutil.copyfile(features / name, target / name)
        _write_lists(folder, pieces, drops)
    _report(out, long, pieces, drops)


def _cut_set(
    acoustic: AcousticModel,
    directory: Path,
    tokenizer: Tokenizer,
    largest_s: float,
    settings: Decode,
    drops: list[Drop],
) -> dict[str, list[Piece]]:
    """Return the pieces of a set's utterances by id; the others go to `drops`."""
    reader = open_features(directory, acoustic)
    pieces: dict[str, list[Piece]] = {}
    work = functools.partial(find_words, acoustic.topology, acoustic.frame_s)
    for utterance, _, words in map_aligned(work, acoustic, reader, tokenizer, settings, "cut"):
        if not isinstance(words, list):
            drops.append(Drop(utterance.id, *words))
        elif found := cut_at_pauses(words, utterance.duration_s, largest_s):
            pieces[utterance.id] = found
        else:
            detail = f"none of {PAUSE_S:g} s that leaves pieces of {MIN_S:g} to {largest_s:g} s"
            drops.append(Drop(utterance.id, "no pause", detail))
    return pieces


def _pieces(entry: Entry, found: Sequence[Piece]) -> Iterator[Entry]:
    """Yield entries of pieces in order of time; ids get a number."""
    digits = max(2, len(str(len(found))))
    kept = {key: value for key, value in entry.items() if key != "alignment"}
    for number, piece in enumerate(found, 1):
        yield {
            **kept,
            "id": f"{entry['id']}-c{number:0{digits}}",
            "start": entry["start"] + piece.begin_s,
            "duration": piece.end_s - piece.begin_s,
            "text": piece.text,
        }


def _write_lists(folder: Path, pieces: Sequence[Entry], drops: Sequence[Drop]) -> None:
    rows = [
        f"{e['id']}\t{e['recording_id']}\t{CHANNELS[e['channel']]}"
        f"\t{e['start']:.3f}\t{e['start'] + e['duration']:.3f}\t{e['text']}\n"
        for e in pieces
    ]
    heading = "id\trecording\tchannel\tstart_s\tend_s\ttext\n"
    (folder / PIECES).write_text("".join([heading, *rows]), encoding="utf-8")
    (folder / DROPPED).write_text(format_drops(drops), encoding="utf-8")


def _report(out: Path, long: Sequence[Entry], pieces: Sequence[Entry], drops: Sequence[Drop]) -> None:
    """Log the hours of speech in the pieces."""
    reasons = ", ".join(f"{num} {name}" for name, num in sorted(Counter(drop.reason for drop in drops).items()))
    logging.info(
        "%s: %d long utterances, %.3f h; cut into %d pieces, %.3f h; dropped: %s, see %s",
        out, len(long), _hours(long), len(pieces), _hours(pieces), reasons or "nothing", DROPPED,
    )  # fmt: skip


def _hours(entries: Sequence[Entry]) -> float:
    return float(sum(entry["duration"] for entry in entries)) / 3600
