"""The sets of corpora to a training, a development and test sets.

The development set is whole conversations, and none of its speakers is heard in training: sides of other conversations
that they speak are left out of it. Conversations are chosen so that few are.

What is said in the training conversations is text, in sentences.txt, also where training does not hear it because it
was said often or for too short or too long: at test time words are as frequent as they are said.

Manifests are read twice: once for the columns by which it is decided, once to write. No utterance of training is kept.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import REPORT, Drop, format_line, read_sorted, write_counted, write_sorted
from asrtool.data.manifests.sets import DEV, FILE, LONG, TRAIN, EvaluationSet, Sets, write_sets
from asrtool.data.manifests.validator import Entry, Tally
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import CORPORA, Corpus, named_corpora, with_role
from asrtool.local.sets.held_out import choose_fold
from asrtool.local.sets.split_part import Part, decide, read_part, training_lines, unfit, with_corpus
from asrtool.local.text.references import format_reference, reference_rules
from asrtool.settings.data import Data

LARGEST_DEV_FRACTION = 0.1  # of the speech, whatever data.dev_minutes says


@dataclass(frozen=True)
class Dev:
    """Part of a corpus in dev."""

    name: str
    recordings: list[Entry]
    entries: list[Entry]


def split_manifests(manifests: Path, data: Data) -> None:
    """Write `manifests`/train, dev, a folder for each test corpus, and sets.json.

    With data.cut_long long utterances go to `manifests`/long. Without a dev set, a part of training is held out.
    Raises AsrtoolError if a folder is missing or broken, or if nothing would be left to train on.
    """
    named_corpora(data)
    tested = with_role(data, "test")
    (manifests / FILE).unlink(missing_ok=True)
    glms = [_write_test(manifests, corpus) for corpus in tested]
    parts = [read_part(manifests / CORPORA / name / "train", name, data) for name in _names(data, "train")]
    given = [name for name in _names(data, "dev") if (manifests / CORPORA / name / "dev" / REPORT).is_file()]
    drops: list[Drop] = []
    dev = [_read_dev(manifests / CORPORA / name / "dev", name, data, drops) for name in given]
    if not given:
        _hold_out(parts, data.dev_minutes * 60, data.dev_fold)
    elif data.dev_fold:
        what = f"data.dev_fold is {data.dev_fold}, but {', '.join(given)} has a development set, so nothing is held out"
        raise AsrtoolError(what, "set data.dev_fold=0, or data.dev=[] to hold out a part of the training set")
    _write_train(manifests / TRAIN, parts, drops, data)
    _write_long(manifests / LONG, parts)
    held_out = [Dev(part.name, part.recordings, part.dev) for part in parts]
    _write_dev(manifests / DEV, dev or held_out, reference_rules(glms[0]), data)
    sets = [EvaluationSet(corpus.name, corpus.title, dict(corpus.labels)) for corpus in tested]
    write_sets(manifests, Sets(tuple(sets)))


def _read_dev(folder: Path, name: str, data: Data, drops: list[Drop]) -> Dev:
    """Read a dev set without too short and too long utterances, which are drops."""
    recordings, lines = read_sorted(folder)
    fit = []
    for entry, _ in lines:
        if data.min_duration_s <= entry["duration"] <= data.max_duration_s:
            fit.append(with_corpus(entry, name))
        else:
            drops.append(unfit(entry, data))
    return Dev(name, recordings, fit)


def _hold_out(parts: Sequence[Part], target_s: float, fold: int) -> None:
    """Choose dev from `parts`, each in proportion to its speech.

    Raises AsrtoolError if all speakers of one are in earlier folds.
    """
    speech_s = {part.name: sum(part.columns.duration_s[part.is_fit].tolist()) for part in parts}
    fraction = target_s / max(sum(speech_s.values()), 1.0)
    if fraction > LARGEST_DEV_FRACTION:
        what = f"data.dev_minutes is {target_s / 60:g}, more than {LARGEST_DEV_FRACTION:.0%} of the training speech"
        fraction = LARGEST_DEV_FRACTION
        logging.warning("%s: dev has %.1f minutes", what, fraction * sum(speech_s.values()) / 60)
    for part in parts:
        columns = part.columns
        said = columns.speech_s(part.is_fit), columns.num_utterances(part.is_fit)
        chosen = choose_fold(*said, fraction * speech_s[part.name], fold)
        if not chosen and speech_s[part.name]:
            what = f"data.dev_fold is {fold}, but all conversations of {part.name} are in the folds before it"
            raise AsrtoolError(what, "set a lower one; fewer data.dev_minutes make more folds, at most one a speaker")
        part.is_dev = np.isin(columns.recording, [i for i, id_ in enumerate(columns.recordings) if id_ in chosen])
    held_out = {name for part in parts for name in _speakers(part)}
    for part in parts:
        names = _speakers(part) | held_out - {None}  # who has no name is another person in another corpus
        part.is_known = ~part.is_dev & part.columns.is_of(names)
    if not any((part.is_training & part.is_fit).any() for part in parts):
        _hold_out_utterances(parts, fraction)


def _speakers(part: Part) -> set[str | None]:
    """Return the speakers of the held-out part."""
    columns = part.columns
    return {columns.speakers[place] for place in np.unique(columns.speaker[part.is_dev & part.is_fit]).tolist()}


def _hold_out_utterances(parts: Sequence[Part], fraction: float) -> None:
    """Hold out utterances at even distances, if all speakers would be held out.

    Speakers are then in training too.
    """
    logging.warning(
        "no speaker would be left to train on: UTTERANCES ARE HELD OUT INSTEAD, dev and training share speakers,"
        " and dev looks better than a test with others; give a development set, or more speakers, if you can"
    )
    for part in parts:
        fit = np.flatnonzero(part.is_fit)
        chosen = fit[np.linspace(0, len(fit) - 1, max(1, round(fraction * len(fit))), dtype=int)] if len(fit) else fit
        part.is_dev = np.isin(np.arange(len(part.is_fit)), chosen)
        part.is_known = np.zeros_like(part.is_fit)


def _write_test(manifests: Path, corpus: Corpus) -> str:
    """Write the test set of `corpus`; return the rules of its reference."""
    folder = manifests / CORPORA / corpus.name / "test"
    recordings, lines = read_sorted(folder)
    entries = [with_corpus(entry, corpus.name) for entry, _ in lines]
    texts = {name: _read_text(folder / name) for name in ("ref.stm", "ref.glm")}
    _write(manifests / corpus.name, recordings, entries, texts)
    return texts["ref.glm"]


def _write_train(out: Path, parts: Sequence[Part], drops_of_dev: Sequence[Drop], data: Data) -> None:
    """Write the training set, and its text as one file and one a corpus.

    A corpus without text left has no file, so a language model can weigh the others.
    """
    decide(parts, data)
    if not any(part.is_trained.any() for part in parts):
        raise _nothing_to_train_on(out.parent, parts, data)
    for old in out.glob("sentences.*.txt"):  # of a corpus that may no longer be trained on
        old.unlink()
    _check_apart(parts)
    tally = Tally((entry for part in parts for entry in part.recordings), out)
    for part in parts:
        part.columns.count(part.is_trained, tally)
    drops: list[Drop] = []

    def lines() -> Iterator[str]:
        yield from training_lines(parts, data)
        drops.extend(itertools.chain(*(part.unfit for part in parts), drops_of_dev))
        drops.extend(itertools.chain(*(part.known for part in parts)))
        drops.extend(itertools.chain(*(part.doubted for part in parts), *(part.repeated for part in parts)))

    said = {part.name: part.said() for part in parts}
    texts = {f"sentences.{name}.txt": pieces for name, pieces in said.items() if pieces}
    all_said = list(itertools.chain(*said.values()))
    write_counted(out, tally, lines(), drops, 1.0, {"sentences.txt": all_said, **texts})


def _check_apart(parts: Sequence[Part]) -> None:
    """Raise AsrtoolError where two corpora have a recording of one id."""
    corpus_of: dict[str, str] = {}
    for part in parts:
        for entry in part.recordings:
            other = corpus_of.setdefault(entry["id"], part.name)
            if other != part.name:
                what = f"{entry['id']} is a recording of {other} and of {part.name}, both in data.train"
                raise AsrtoolError(what, "rename its file in one of them, or train on one, if they are the same speech")


def _nothing_to_train_on(manifests: Path, parts: Sequence[Part], data: Data) -> AsrtoolError:
    num_unfit, num_dev = (
        int(sum(rows.sum() for rows in masks)) for masks in zip(*((~p.is_fit, p.is_dev) for p in parts), strict=True)
    )
    total = sum(len(part.is_fit) for part in parts)
    limits = f"data.min_duration_s = {data.min_duration_s:g} and data.max_duration_s = {data.max_duration_s:g}"
    hint = "give more utterances, or a development set apart"
    return AsrtoolError(
        f"{manifests}: no training utterance is left of {total}: {num_dev} are held out, {num_unfit} too short or long",
        f"look at {limits}" if num_unfit == total else hint,
    )


def _write_long(out: Path, parts: Sequence[Part]) -> None:
    """Write `out`, the utterances to cut before training, if there are any."""
    if out.is_dir():
        shutil.rmtree(out)
    entries = [entry for part in parts for entry in part.long]
    if entries:
        _write(out, [entry for part in parts for entry in part.recordings], entries, {})


def _write_dev(out: Path, parts: Sequence[Dev], glm: str, data: Data) -> None:
    corpus_of = {entry["id"]: part.name for part in parts for entry in part.recordings}
    entries = [entry for part in parts for entry in part.entries]
    reference = format_reference(entries, corpus_of, data.text_rules == "english")
    recordings = [entry for part in parts for entry in part.recordings]
    _write(out, recordings, entries, {"ref.stm": reference, "ref.glm": glm})


def _write(out: Path, recordings: list[Entry], entries: Sequence[Entry], texts: Mapping[str, str]) -> None:
    sentences = "".join(f"{entry['text']}\n" for entry in entries if entry.get("text"))
    lines = map(format_line, sorted(entries, key=lambda e: (e["recording_id"], e["start"], e["channel"], e["id"])))
    write_sorted(out, recordings, lines, [], 1.0, {"sentences.txt": sentences, **texts})


def _names(data: Data, role: str) -> list[str]:
    return [corpus.name for corpus in with_role(data, role)]


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, a test set needs it", "run the prepare stage again")
    return path.read_text(encoding="utf-8")
