"""Corpora to training, development and test sets.

The development set is whole conversations, and none of its speakers is heard in training: sides of other conversations
that they speak are left out of it. Conversations are chosen so that few are.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lhotse import Recording, SupervisionSegment

from asrtool.corpus.manifest import Drop, read_manifests, write_manifests
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.references import format_reference, reference_rules

LARGEST_DEV_SHARE = 0.1  # of the speech, whatever data.dev_minutes says
OWN_TRAIN, OWN_DEV = "own_train", "own_dev"


@dataclass(frozen=True)
class Corpus:
    """The manifests of one corpus."""

    name: str
    recordings: Sequence[Recording]
    segments: Sequence[SupervisionSegment]


def split_manifests(manifests: Path, test: str, data: Data) -> None:
    """Write `manifests`/train, dev and test from the folders of data.train and the folder `test`.

    Raises AsrtoolError when a folder is missing or broken, or when nothing would be left to train on.
    """
    drops: list[Drop] = []
    train_names = [corpus.name for corpus in data.train]
    names = [OWN_TRAIN if name == "own" else name for name in train_names]
    corpora = [_of_fit_length(_read(manifests / name), data, drops) for name in names]
    if "own" in train_names and (manifests / OWN_DEV).is_dir():
        dev = [_of_fit_length(_read(manifests / OWN_DEV), data, drops)]
        train = [segment for corpus in corpora for segment in corpus.segments]
    else:
        dev, train = _hold_out(corpora, data.dev_minutes * 60, drops)
    repeated = duplicates(train, data.max_duplicates)
    dropped = {drop.id for drop in repeated}
    kept = [segment for segment in train if segment.id not in dropped]
    if not kept:
        raise AsrtoolError(
            f"{manifests}: no training utterance is left beside the development set",
            "lower data.dev_minutes, or give a development set of your own with paths.own_dev",
        )
    recordings = [recording for corpus in corpora for recording in corpus.recordings]
    glm = _read_text(manifests / test / "ref.glm")
    for old in (manifests / "train").glob("sentences.*.txt"):  # of a corpus that may no longer be trained on
        old.unlink()
    _write(manifests / "train", recordings, kept, drops + repeated, _texts_by_corpus(corpora, kept))
    _write_dev(manifests / "dev", dev, reference_rules(glm))
    tested = _read(manifests / test)
    references = {"ref.stm": _read_text(manifests / test / "ref.stm"), "ref.glm": glm}
    _write(manifests / "test", tested.recordings, tested.segments, [], references)


def choose_conversations(segments: Iterable[SupervisionSegment], target_s: float) -> set[str]:
    """Ids of recordings that hold about `target_s` seconds of speech, and the speakers of which are in few others.

    At least one; those all of whose speakers are held out anyway are among them. Deterministic.
    """
    speech_s, num_utterances = Counter[str](), Counter[tuple[str, str]]()
    speakers, recordings = defaultdict(set), defaultdict(set)
    for s in segments:
        speech_s[s.recording_id] += s.duration
        num_utterances[s.recording_id, str(s.speaker)] += 1
        speakers[s.recording_id].add(str(s.speaker))
        recordings[str(s.speaker)].add(s.recording_id)
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


def duplicates(segments: Iterable[SupervisionSegment], max_duplicates: int) -> list[Drop]:
    """The utterances beyond the first `max_duplicates` that have the same text, as Kaldi's remove_dup_utts.sh."""
    seen = Counter[str]()
    drops = []
    for segment in segments:
        text = segment.text or ""
        seen[text] += 1
        if seen[text] > max_duplicates:
            drops.append(Drop(segment.id, "duplicate", f"{seen[text]} times: {text}"))
    return drops


def _of_fit_length(corpus: Corpus, data: Data, drops: list[Drop]) -> Corpus:
    """`corpus` without the utterances that are too short or too long, which go to `drops`."""
    fit = []
    for s in corpus.segments:
        if data.min_duration_s <= s.duration <= data.max_duration_s:
            fit.append(s)
        else:
            reason = "too short" if s.duration < data.min_duration_s else "too long"
            drops.append(Drop(s.id, reason, f"{s.duration:.3f} s"))
    return dataclasses.replace(corpus, segments=fit)


def _hold_out(
    corpora: Sequence[Corpus], target_s: float, drops: list[Drop]
) -> tuple[list[Corpus], list[SupervisionSegment]]:
    """Development corpora and training utterances; each corpus gives in proportion to its speech."""
    speech_s = {corpus.name: sum(s.duration for s in corpus.segments) for corpus in corpora}
    share = min(target_s / max(sum(speech_s.values()), 1.0), LARGEST_DEV_SHARE)
    dev, train = [], []
    for corpus in corpora:
        chosen = choose_conversations(corpus.segments, share * speech_s[corpus.name])
        held = [s for s in corpus.segments if s.recording_id in chosen]
        speakers = {s.speaker for s in held}
        dev.append(dataclasses.replace(corpus, segments=held))
        for s in corpus.segments:
            if s.recording_id not in chosen and s.speaker in speakers:
                drops.append(Drop(s.id, "speaker in dev", str(s.speaker)))
            elif s.recording_id not in chosen:
                train.append(s)
    return dev, train


def _shuffled(id_: str) -> str:
    """A key that orders ids at random but always the same way, so that no kind of name is preferred."""
    return hashlib.sha256(id_.encode()).hexdigest()


def _texts_by_corpus(corpora: Sequence[Corpus], kept: Iterable[SupervisionSegment]) -> dict[str, str]:
    """One file a corpus, so that a language model can weigh them; none for a corpus that has no utterance left."""
    ids = {s.id for s in kept}
    texts = {
        f"sentences.{corpus.name}.txt": _sentences(s for s in corpus.segments if s.id in ids) for corpus in corpora
    }
    return {name: text for name, text in texts.items() if text}


def _write_dev(out: Path, corpora: Sequence[Corpus], glm: str) -> None:
    segments = [s for corpus in corpora for s in corpus.segments]
    recordings = [r for corpus in corpora for r in corpus.recordings]
    corpus_of = {r.id: corpus.name for corpus in corpora for r in corpus.recordings}
    _write(out, recordings, segments, [], {"ref.stm": format_reference(segments, corpus_of), "ref.glm": glm})


def _write(
    out: Path,
    recordings: Iterable[Recording],
    segments: Sequence[SupervisionSegment],
    drops: Sequence[Drop],
    texts: Mapping[str, str],
) -> None:
    write_manifests(out, recordings, segments, drops, 1.0, {"sentences.txt": _sentences(segments), **texts})


def _sentences(segments: Iterable[SupervisionSegment]) -> str:
    return "".join(f"{s.text}\n" for s in segments if s.text)


def _read(folder: Path) -> Corpus:
    recordings, segments = read_manifests(folder)
    return Corpus(folder.name, list(recordings), list(segments))


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, a test set needs it", "run the prepare stage again")
    return path.read_text(encoding="utf-8")
