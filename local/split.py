"""The sets of corpora to a training, a development and test sets.

The development set is whole conversations, and none of its speakers is heard in training: sides of other conversations
that they speak are left out of it. Conversations are chosen so that few are.

What is said in the training conversations is text, in sentences.txt, also where training does not hear it because it
was said often or for too short or too long: at test time words are as frequent as they are said.

Manifests are read twice: once for the columns by which it is decided, once to write. No utterance of training is kept.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import logging
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asrtool.corpus.manifest import (
    REPORT,
    Drop,
    format_line,
    read_recordings,
    read_sorted,
    read_utterances,
    write_sorted,
)
from asrtool.corpus.sets import DEV, FILE, LONG, TRAIN, EvaluationSet, Sets, write_sets
from asrtool.corpus.settings import Data
from asrtool.corpus.tally import Entry
from asrtool.errors import AsrtoolError
from local.columns import Columns, occurrences, read_columns
from local.corpus import Corpus
from local.named import named_corpora, with_role
from local.prepare import CORPORA
from local.references import format_reference, reference_rules

LARGEST_DEV_FRACTION = 0.1  # of the speech, whatever data.dev_minutes says


@dataclass
class Part:
    """What a corpus gives to training and dev; arrays have a value for each utterance, in the order of its manifest."""

    name: str
    folder: Path
    recordings: list[Entry]
    columns: Columns
    is_fit: np.ndarray  # neither too short nor too long
    is_dev: np.ndarray  # in a conversation that is held out
    is_known: np.ndarray  # in another one, by a speaker of dev
    number: np.ndarray  # in training, of those with the same text; 0 for what is not trained on
    dev: list[Entry] = field(default_factory=list)
    unfit: list[Drop] = field(default_factory=list)
    known: list[Drop] = field(default_factory=list)
    doubted: list[Drop] = field(default_factory=list)
    repeated: list[Drop] = field(default_factory=list)
    long: list[Entry] = field(default_factory=list)  # to be cut
    text: bytearray = field(default_factory=bytearray)  # of training, a line an utterance
    unfit_text: bytearray = field(default_factory=bytearray)  # said in training, but too short or too long to hear


@dataclass(frozen=True)
class Dev:
    """What a corpus gives to dev."""

    name: str
    recordings: list[Entry]
    entries: list[Entry]


def split_manifests(manifests: Path, data: Data) -> None:
    """Write `manifests`/train, `manifests`/dev, a folder for each corpus of data.test, and, last, sets.json.

    With data.cut_long what is too long goes to `manifests`/long, where there is some.

    Reads `manifests`/corpora. Where no corpus of data.dev has a development set, a part of data.train is held out.
    Raises AsrtoolError when a folder is missing or broken, or when nothing would be left to train on.
    """
    named_corpora(data)
    tested = with_role(data, "test")
    (manifests / FILE).unlink(missing_ok=True)
    glms = [_write_test(manifests, corpus) for corpus in tested]
    parts = [_survey(manifests / CORPORA / name / "train", name, data) for name in _names(data, "train")]
    given = [name for name in _names(data, "dev") if (manifests / CORPORA / name / "dev" / REPORT).is_file()]
    drops: list[Drop] = []
    dev = [_read_dev(manifests / CORPORA / name / "dev", name, data, drops) for name in given]
    if not given:
        _hold_out(parts, data.dev_minutes * 60)
    _write_train(manifests / TRAIN, parts, drops, data)
    _write_long(manifests / LONG, parts)
    held_out = [Dev(part.name, part.recordings, part.dev) for part in parts]
    _write_dev(manifests / DEV, dev or held_out, reference_rules(glms[0]))
    sets = [EvaluationSet(corpus.name, corpus.title, dict(corpus.labels)) for corpus in tested]
    write_sets(manifests, Sets(tuple(sets)))


def choose_conversations(said: Iterable[tuple[str, str, float]], target_s: float) -> set[str]:
    """Of utterances (recording, speaker, seconds) recordings that hold about `target_s`, and their speakers few others.

    At least one; those all of whose speakers are held out anyway are among them. Deterministic.
    """
    speech_s, num_utterances = defaultdict[str, float](float), Counter[tuple[str, str]]()
    speakers, recordings = defaultdict(set), defaultdict(set)
    for recording, speaker, duration_s in said:
        speech_s[recording] += duration_s
        num_utterances[recording, speaker] += 1
        speakers[recording].add(speaker)
        recordings[speaker].add(recording)
    held_out: set[str] = set()
    chosen: set[str] = set()
    while (missing_s := target_s - sum(speech_s[id_] for id_ in chosen)) > 0:
        options = []
        for id_ in speech_s.keys() - chosen:
            new = speakers[id_] - held_out
            touched = {other for speaker in new for other in recordings[speaker]} - chosen | {id_}
            joining = {other for other in touched if speakers[other] <= held_out | new}
            gain_s = sum(speech_s[other] for other in joining)
            loss = sum(num_utterances[other, speaker] for other in touched - joining for speaker in new)
            # Beyond twice what is missing, the target would be missed by more than it is without.
            too_long = gain_s > 2 * missing_s
            if not too_long or not chosen:
                options.append((too_long, gain_s if too_long else 0.0, loss / gain_s, _shuffled(id_), new, joining))
        if not options:
            break
        *_, new, joining = min(options, key=lambda option: option[:4])
        held_out |= new
        chosen |= joining
    return chosen


def _survey(folder: Path, name: str, data: Data) -> Part:
    """A corpus of which nothing is held out yet."""
    recordings = read_recordings(folder)
    columns = read_columns(entry for entry, _ in read_utterances(folder))
    is_fit = (columns.duration_s >= data.min_duration_s) & (columns.duration_s <= data.max_duration_s)
    none = np.zeros_like(is_fit)
    return Part(name, folder, recordings, columns, is_fit, none, none, none.astype(np.int32))


def _read_dev(folder: Path, name: str, data: Data, drops: list[Drop]) -> Dev:
    """A development set without the utterances that are too short or too long, which go to `drops`."""
    recordings, lines = read_sorted(folder)
    fit = []
    for entry, _ in lines:
        if data.min_duration_s <= entry["duration"] <= data.max_duration_s:
            fit.append(_with_corpus(entry, name))
        else:
            drops.append(_unfit(entry, data))
    return Dev(name, recordings, fit)


def _unfit(entry: Entry, data: Data) -> Drop:
    reason = "too short" if entry["duration"] < data.min_duration_s else "too long"
    return Drop(entry["id"], reason, f"{entry['duration']:.3f} s")


def _hold_out(parts: Sequence[Part], target_s: float) -> None:
    """Choose what of `parts` becomes dev; each corpus gives in proportion to its speech."""
    speech_s = {part.name: sum(part.columns.duration_s[part.is_fit].tolist()) for part in parts}
    fraction = target_s / max(sum(speech_s.values()), 1.0)
    if fraction > LARGEST_DEV_FRACTION:
        what = f"data.dev_minutes is {target_s / 60:g}, more than {LARGEST_DEV_FRACTION:.0%} of the training speech"
        fraction = LARGEST_DEV_FRACTION
        logging.warning("%s: dev has %.1f minutes", what, fraction * sum(speech_s.values()) / 60)
    for part in parts:
        columns = part.columns
        chosen = choose_conversations(columns.said(part.is_fit), fraction * speech_s[part.name])
        part.is_dev = np.isin(columns.recording, [i for i, id_ in enumerate(columns.recordings) if id_ in chosen])
        part.is_known = ~part.is_dev & np.isin(columns.speaker, columns.speaker[part.is_dev & part.is_fit])


def _shuffled(id_: str) -> str:
    """A key that orders ids at random but always the same way, so that no kind of name is preferred."""
    return hashlib.sha256(id_.encode()).hexdigest()


def _write_test(manifests: Path, corpus: Corpus) -> str:
    """Write `manifests`/NAME, the test set of `corpus` as it is; returns the rules of its reference."""
    folder = manifests / CORPORA / corpus.name / "test"
    recordings, lines = read_sorted(folder)
    entries = [_with_corpus(entry, corpus.name) for entry, _ in lines]
    texts = {name: _read_text(folder / name) for name in ("ref.stm", "ref.glm")}
    _write(manifests / corpus.name, recordings, entries, texts)
    return texts["ref.glm"]


def _write_train(out: Path, parts: Sequence[Part], drops_of_dev: Sequence[Drop], data: Data) -> None:
    """Write `out`: the utterances to train on, and the text of all, as one file and as one a corpus.

    A corpus that has no text left has none, so that a language model can weigh those that have.
    """
    number_texts(parts, data)
    if not any(((part.number > 0) & (part.number <= data.max_duplicates)).any() for part in parts):
        raise AsrtoolError(
            f"{out.parent}: no training utterance is left beside the development set",
            "lower data.dev_minutes, or name a corpus in data.dev that has a development set",
        )
    for old in out.glob("sentences.*.txt"):  # of a corpus that may no longer be trained on
        old.unlink()
    drops: list[Drop] = []
    texts: dict[str, str | Sequence[bytes | bytearray]] = {}

    def lines() -> Iterator[tuple[Entry, str]]:
        yield from _by_recording(parts, data)
        drops.extend(itertools.chain(*(part.unfit for part in parts), drops_of_dev))
        drops.extend(itertools.chain(*(part.known for part in parts)))
        drops.extend(itertools.chain(*(part.doubted for part in parts), *(part.repeated for part in parts)))
        said = {part.name: (part.text, part.unfit_text) for part in parts}
        texts["sentences.txt"] = [text for pair in said.values() for text in pair]
        texts.update({f"sentences.{name}.txt": pair for name, pair in said.items() if any(pair)})

    write_sorted(out, [entry for part in parts for entry in part.recordings], lines(), drops, 1.0, texts)


def _write_long(out: Path, parts: Sequence[Part]) -> None:
    """Write `out`, what is to be cut before it is trained on; without it there is no such folder."""
    if out.is_dir():
        shutil.rmtree(out)
    entries = [entry for part in parts for entry in part.long]
    if entries:
        _write(out, [entry for part in parts for entry in part.recordings], entries, {})


def number_texts(parts: Sequence[Part], data: Data) -> None:
    """Count for each training utterance how often its text was there before, over all of `parts`."""
    drop = data.uncertain == "drop"
    trained = [part.is_fit & ~part.is_dev & ~part.is_known & ~(part.columns.is_doubted & drop) for part in parts]
    numbers = occurrences(np.concatenate([part.columns.text[rows] for part, rows in zip(parts, trained, strict=True)]))
    for part, rows in zip(parts, trained, strict=True):
        part.number[rows], numbers = numbers[: rows.sum()], numbers[rows.sum() :]


def _by_recording(parts: Sequence[Part], data: Data) -> Iterator[tuple[Entry, str]]:
    """The training utterances of all parts, with their lines, in the order of recordings."""

    def recordings(place: int) -> Iterator[tuple[str, int, list[tuple[Entry, str]]]]:
        rows = enumerate(read_utterances(parts[place].folder))
        for id_, group in itertools.groupby(rows, key=lambda row: str(row[1][0]["recording_id"])):
            yield id_, place, list(_trained(parts[place], group, data))

    for _, _, lines in heapq.merge(*map(recordings, range(len(parts)))):
        yield from lines


def _trained(part: Part, rows: Iterable[tuple[int, tuple[Entry, str]]], data: Data) -> Iterator[tuple[Entry, str]]:
    """Those to train on, of which a text is there data.max_duplicates times at most; the others go where they belong.

    So does all text that is said in training. The limit is that of Kaldi's remove_dup_utts.sh.
    """
    for row, (entry, line) in rows:
        is_fit, is_training = part.is_fit[row], not (part.is_dev[row] or part.is_known[row])
        text = entry.get("text") or ""
        if is_training and text:
            (part.text if is_fit else part.unfit_text).extend(f"{text}\n".encode())
        if not is_fit:
            is_wanted = is_training and not (part.columns.is_doubted[row] and data.uncertain == "drop")
            if data.cut_long and is_wanted and entry["duration"] > data.max_duration_s:
                part.long.append(_with_corpus(entry, part.name))
            else:
                part.unfit.append(_unfit(entry, data))
        elif part.is_dev[row]:
            part.dev.append(_with_corpus(entry, part.name))
        elif part.is_known[row]:
            part.known.append(Drop(entry["id"], "speaker in dev", str(entry.get("speaker"))))
        elif not part.number[row]:
            part.doubted.append(Drop(entry["id"], "uncertain", text))
        elif part.number[row] > data.max_duplicates:
            part.repeated.append(Drop(entry["id"], "duplicate", f"{part.number[row]} times: {text}"))
        elif "custom" in entry or "alignment" in entry:
            yield format_line(_with_corpus(entry, part.name))
        else:  # as format_line has it, in a tenth of the time
            yield entry, f'{line.rstrip()[:-1]}, "custom": {{"corpus": "{part.name}"}}}}\n'


def _write_dev(out: Path, parts: Sequence[Dev], glm: str) -> None:
    from lhotse import SupervisionSegment

    corpus_of = {entry["id"]: part.name for part in parts for entry in part.recordings}
    entries = [entry for part in parts for entry in part.entries]
    reference = format_reference(map(SupervisionSegment.from_dict, entries), corpus_of)
    recordings = [entry for part in parts for entry in part.recordings]
    _write(out, recordings, entries, {"ref.stm": reference, "ref.glm": glm})


def _write(out: Path, recordings: list[Entry], entries: Sequence[Entry], texts: Mapping[str, str]) -> None:
    sentences = "".join(f"{entry['text']}\n" for entry in entries if entry.get("text"))
    lines = map(format_line, sorted(entries, key=lambda e: (e["recording_id"], e["start"], e["channel"], e["id"])))
    write_sorted(out, recordings, lines, [], 1.0, {"sentences.txt": sentences, **texts})


def _with_corpus(entry: Entry, name: str) -> Entry:
    """`entry` that knows its corpus."""
    return {**entry, "custom": {**entry.get("custom", {}), "corpus": name}}


def _names(data: Data, role: str) -> list[str]:
    return [corpus.name for corpus in with_role(data, role)]


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, a test set needs it", "run the prepare stage again")
    return path.read_text(encoding="utf-8")
