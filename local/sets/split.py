"""Split corpora into a training, a development and test sets.

The development set is whole conversations, and none of its speakers is in training: sides of other conversations
that they speak are dropped. Conversations are chosen so that few sides are.

sentences.txt has the text of all training conversations, also of utterances that training drops as too short, too
long or repeated, so that words are as frequent as in speech.

Manifests are read twice: once for the columns that decide, once to write. No utterance of training is kept in memory.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrtool.data.manifests.manifest import REPORT, Drop, format_line, read_sorted, write_counted, write_sorted
from asrtool.data.manifests.sets import DEV, FILE, LONG, TRAIN, EvaluationSet, Sets, write_sets
from asrtool.data.manifests.validator import Entry, ManifestCounts
from asrtool.errors import AsrtoolError
from asrtool.local.corpus import CORPORA, Corpus, named_corpora, with_role
from asrtool.local.sets.held_out import choose_fold
from asrtool.local.sets.split_part import Decision, Part, decide, unfit, with_corpus
from asrtool.local.text.references import NO_RULES_GLM, format_reference, reference_rules
from asrtool.settings.data import Data

SHOWN = 5  # speakers named in the log
MAX_DEV_FRACTION = 0.1  # fraction of the speech, limits data.dev_minutes


class Dev(NamedTuple):
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
    corpora, tested = manifests / CORPORA, with_role(data, "test")
    (manifests / FILE).unlink(missing_ok=True)
    glms = [_write_test(manifests, corpus) for corpus in tested]
    parts = [Part(corpora / corpus.name / "train", corpus.name, data) for corpus in with_role(data, "train")]
    given = [corpus.name for corpus in with_role(data, "dev") if (corpora / corpus.name / "dev" / REPORT).is_file()]
    drops: list[Drop] = []
    dev = [_read_dev(corpora / name / "dev", name, data, drops) for name in given]
    if not given:
        _hold_out(parts, data.dev_minutes * 60, data.dev_fold)
    elif data.dev_fold:
        what = f"data.dev_fold is {data.dev_fold}, but {', '.join(given)} has a development set, so nothing is held out"
        raise AsrtoolError(what, "set data.dev_fold=0, or data.dev=[] to hold out a part of the training set")
    _write_train(manifests / TRAIN, parts, drops, data)
    _write_long(manifests / LONG, parts)
    held_out = [Dev(part.name, part.recordings, part.kept[Decision.DEV]) for part in parts]
    _write_dev(manifests / DEV, dev or held_out, reference_rules(glms[0] if glms else NO_RULES_GLM), data)
    sets = [EvaluationSet(corpus.name, corpus.title, dict(corpus.labels)) for corpus in tested]
    write_sets(manifests, Sets(tuple(sets)))


def _read_dev(folder: Path, name: str, data: Data, drops: list[Drop]) -> Dev:
    """Read a dev set without too short and too long utterances, which are drops."""
    recordings, lines = read_sorted(folder)
    entries = [entry for entry, _ in lines]
    fit = [data.min_duration_s <= entry["duration"] <= data.max_duration_s for entry in entries]
    drops += [unfit(entry, data) for entry, is_fit in zip(entries, fit, strict=True) if not is_fit]
    return Dev(name, recordings, [with_corpus(entry, name) for entry in itertools.compress(entries, fit)])


def _hold_out(parts: Sequence[Part], target_s: float, fold: int) -> None:
    """Choose dev from `parts`, each in proportion to its speech.

    Raises AsrtoolError if all speakers of one are in earlier folds.
    """
    speech_s = {part.name: sum(part.rows["duration_s"][part.is_fit].tolist()) for part in parts}
    fraction = target_s / max(sum(speech_s.values()), 1.0)
    if fraction > MAX_DEV_FRACTION:
        what = f"data.dev_minutes is {target_s / 60:g}, more than {MAX_DEV_FRACTION:.0%} of the training speech"
        fraction = MAX_DEV_FRACTION
        logging.info("%s: dev has %.1f minutes", what, fraction * sum(speech_s.values()) / 60)
    recordings: set[str] = set()
    for part in parts:
        sizes = part.speech_s(part.is_fit), part.num_utterances(part.is_fit)
        chosen = choose_fold(*sizes, fraction * speech_s[part.name], fold)
        if not chosen and speech_s[part.name]:
            what = f"data.dev_fold is {fold}, but all conversations of {part.name} are in the folds before it"
            raise AsrtoolError(what, "set a lower one; fewer data.dev_minutes make more folds, at most one a speaker")
        part.is_dev = np.isin(part.rows["recording"], [i for i, id_ in enumerate(part.ids) if id_ in chosen])
        recordings |= chosen
    own = {part.name: part.speakers_of(part.is_dev & part.is_fit) for part in parts}
    held_out = set().union(*own.values()) - {None}  # unnamed speakers of different corpora are different
    for part in parts:
        part.is_known = ~part.is_dev & part.is_of(own[part.name] | held_out)
    if not any((part.is_training & part.is_fit).any() for part in parts):
        _hold_out_utterances(parts, fraction)
        return
    names = sorted(filter(None, held_out))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    logging.info("held out as dev: speakers %s%s", ", ".join(names[:SHOWN]), more)
    num_unknown = sum(not {name, name.rpartition("-")[0]}.isdisjoint(recordings) for name in names)
    if num_unknown:
        logging.warning(
            "%d of %d speakers held out as dev are recordings without a known speaker, who may be in training too:"
            " dev may look better than test", num_unknown, len(names),
        )  # fmt: skip


def _hold_out_utterances(parts: Sequence[Part], fraction: float) -> None:
    """Hold out utterances at even distances, if all speakers would be held out.

    Speakers are then in training too.
    """
    logging.warning(
        "no speaker would be left to train on: utterances are held out instead, dev and training share speakers,"
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
    for old in out.glob("sentences.*.txt"):  # files of corpora that may no longer be trained on
        old.unlink()
    _check_apart(parts)
    counts = ManifestCounts((entry for part in parts for entry in part.recordings), out)
    for part in parts:
        part.count(counts)
    drops: list[Drop] = []

    def lines() -> Iterator[str]:
        by_recording = heapq.merge(*(part.training_lines(data) for part in parts), key=lambda item: item[0])
        yield from itertools.chain.from_iterable(lines for _, lines in by_recording)
        for decision in (Decision.UNFIT, Decision.KNOWN, Decision.DOUBTED, Decision.REPEATED):
            drops.extend(itertools.chain(*(part.drops[decision] for part in parts)))
            drops.extend(drops_of_dev if decision == Decision.UNFIT else ())

    by_corpus = {part.name: part.text() for part in parts}
    texts = {f"sentences.{name}.txt": pieces for name, pieces in by_corpus.items() if pieces}
    everything = list(itertools.chain(*by_corpus.values()))
    write_counted(out, counts, lines(), drops, 1.0, {"sentences.txt": everything, **texts})


def _check_apart(parts: Sequence[Part]) -> None:
    """Raise AsrtoolError if two corpora have a recording of one id."""
    corpus_of: dict[str, str] = {}
    for part in parts:
        for entry in part.recordings:
            other = corpus_of.setdefault(entry["id"], part.name)
            if other != part.name:
                what = f"{entry['id']} is a recording of {other} and of {part.name}, both in data.train"
                raise AsrtoolError(what, "rename its file in one of them, or train on one, if they are the same speech")


def _nothing_to_train_on(manifests: Path, parts: Sequence[Part], data: Data) -> AsrtoolError:
    total, num_dev = sum(len(part.rows) for part in parts), sum(int(part.is_dev.sum()) for part in parts)
    num_unfit = total - sum(int(part.is_fit.sum()) for part in parts)
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
    entries = [entry for part in parts for entry in part.kept[Decision.LONG]]
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


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, a test set needs it", "run the prepare stage again")
    return path.read_text(encoding="utf-8")
