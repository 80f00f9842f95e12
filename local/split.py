"""The sets of corpora to a training, a development and test sets.

The development set is whole conversations, and none of its speakers is heard in training: sides of other conversations
that they speak are left out of it. Conversations are chosen so that few are.

What is said in the training conversations is text, in sentences.txt, also where training does not hear it because it
was said often or for too short or too long: at test time words are as frequent as they are said.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.corpus.manifest import REPORT, Drop, read_manifests, write_manifests
from asrtool.corpus.sets import DEV, FILE, TRAIN, EvaluationSet, Sets, write_sets
from asrtool.corpus.settings import Data
from asrtool.errors import AsrtoolError
from local.corpus import UNCERTAIN, Corpus
from local.named import named_corpora, with_role
from local.prepare import CORPORA
from local.references import format_reference, reference_rules

if TYPE_CHECKING:
    from lhotse import Recording, SupervisionSegment

LARGEST_DEV_FRACTION = 0.1  # of the speech, whatever data.dev_minutes says


@dataclass(frozen=True)
class Part:
    """What one corpus gives to a set."""

    name: str
    recordings: Sequence[Recording]
    segments: Sequence[SupervisionSegment]
    unfit: Sequence[SupervisionSegment] = ()  # those that are too short or too long; their text is said all the same


def split_manifests(manifests: Path, data: Data) -> None:
    """Write `manifests`/train, `manifests`/dev, a folder for each corpus of data.test, and, last, sets.json.

    Reads `manifests`/corpora. Where no corpus of data.dev has a development set, a part of data.train is held out.
    Raises AsrtoolError when a folder is missing or broken, or when nothing would be left to train on.
    """
    named_corpora(data)
    tested = with_role(data, "test")
    (manifests / FILE).unlink(missing_ok=True)
    glms = [_write_test(manifests, corpus) for corpus in tested]
    drops: list[Drop] = []
    parts = [_read_fit(manifests, name, "train", data, drops) for name in _names(data, "train")]
    given = [name for name in _names(data, "dev") if (manifests / CORPORA / name / "dev" / REPORT).is_file()]
    if given:
        dev = [_read_fit(manifests, name, "dev", data, drops) for name in given]
        train = parts
    else:
        dev, train = _hold_out(parts, data.dev_minutes * 60, drops)
    _write_train(manifests / TRAIN, train, drops, data)
    _write_dev(manifests / DEV, dev, reference_rules(glms[0]))
    sets = [EvaluationSet(corpus.name, corpus.title, dict(corpus.labels)) for corpus in tested]
    write_sets(manifests, Sets(tuple(sets)))


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


def _read_fit(manifests: Path, name: str, role: str, data: Data, drops: list[Drop]) -> Part:
    """`_read` with the utterances that are too short or too long set apart; they are in `drops`, too."""
    part = _read(manifests, name, role)
    fit, unfit = [], []
    for s in part.segments:
        if data.min_duration_s <= s.duration <= data.max_duration_s:
            fit.append(s)
        else:
            unfit.append(s)
            reason = "too short" if s.duration < data.min_duration_s else "too long"
            drops.append(Drop(s.id, reason, f"{s.duration:.3f} s"))
    return dataclasses.replace(part, segments=fit, unfit=unfit)


def _hold_out(parts: Sequence[Part], target_s: float, drops: list[Drop]) -> tuple[list[Part], list[Part]]:
    """Development and training parts; each corpus gives in proportion to its speech."""
    speech_s = {part.name: sum(s.duration for s in part.segments) for part in parts}
    fraction = target_s / max(sum(speech_s.values()), 1.0)
    if fraction > LARGEST_DEV_FRACTION:
        what = f"data.dev_minutes is {target_s / 60:g}, more than {LARGEST_DEV_FRACTION:.0%} of the training speech"
        fraction = LARGEST_DEV_FRACTION
        logging.warning("%s: dev has %.1f minutes", what, fraction * sum(speech_s.values()) / 60)
    dev, train = [], []
    for part in parts:
        chosen = choose_conversations(part.segments, fraction * speech_s[part.name])
        held = [s for s in part.segments if s.recording_id in chosen]
        speakers = {s.speaker for s in held}
        dev.append(dataclasses.replace(part, segments=held))
        others = [s for s in part.segments if s.recording_id not in chosen]
        unfit = [s for s in part.unfit if s.recording_id not in chosen]
        drops += [Drop(s.id, "speaker in dev", str(s.speaker)) for s in others if s.speaker in speakers]
        heard, unheard = ([s for s in found if s.speaker not in speakers] for found in (others, unfit))
        train.append(dataclasses.replace(part, segments=heard, unfit=unheard))
    return dev, train


def _shuffled(id_: str) -> str:
    """A key that orders ids at random but always the same way, so that no kind of name is preferred."""
    return hashlib.sha256(id_.encode()).hexdigest()


def _write_test(manifests: Path, corpus: Corpus) -> str:
    """Write `manifests`/NAME, the test set of `corpus` as it is; returns the rules of its reference."""
    folder = manifests / CORPORA / corpus.name / "test"
    tested = _read(manifests, corpus.name, "test")
    texts = {name: _read_text(folder / name) for name in ("ref.stm", "ref.glm")}
    _write(manifests / corpus.name, tested.recordings, tested.segments, [], texts)
    return texts["ref.glm"]


def _write_train(out: Path, parts: Sequence[Part], drops: Sequence[Drop], data: Data) -> None:
    """Write `out`: the utterances to train on, and the text of all, as one file and as one a corpus.

    A corpus that has no text left has none, so that a language model can weigh those that have.
    """
    segments = [segment for part in parts for segment in part.segments]
    doubted = [] if data.uncertain == "keep" else [s for s in segments if (s.custom or {}).get(UNCERTAIN)]
    dropped = [Drop(s.id, "uncertain", s.text or "") for s in doubted]
    certain = _without(segments, dropped)
    dropped += duplicates(certain, data.max_duplicates)
    kept = _without(certain, dropped)
    if not kept:
        raise AsrtoolError(
            f"{out.parent}: no training utterance is left beside the development set",
            "lower data.dev_minutes, or name a corpus in data.dev that has a development set",
        )
    for old in out.glob("sentences.*.txt"):  # of a corpus that may no longer be trained on
        old.unlink()
    recordings = [recording for part in parts for recording in part.recordings]
    texts = {f"sentences.{part.name}.txt": _sentences([*part.segments, *part.unfit]) for part in parts}
    of_all = {"sentences.txt": "".join(texts.values())}
    write_manifests(
        out, recordings, kept, [*drops, *dropped], 1.0, of_all | {name: text for name, text in texts.items() if text}
    )


def _without(segments: Iterable[SupervisionSegment], drops: Iterable[Drop]) -> list[SupervisionSegment]:
    ids = {drop.id for drop in drops}
    return [segment for segment in segments if segment.id not in ids]


def _write_dev(out: Path, parts: Sequence[Part], glm: str) -> None:
    segments = [s for part in parts for s in part.segments]
    recordings = [r for part in parts for r in part.recordings]
    corpus_of = {r.id: part.name for part in parts for r in part.recordings}
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


def _names(data: Data, role: str) -> list[str]:
    return [corpus.name for corpus in with_role(data, role)]


def _read(manifests: Path, name: str, role: str) -> Part:
    """What the corpus `name` gives in `role`; each utterance knows its corpus."""
    recordings, segments = read_manifests(manifests / CORPORA / name / role)
    return Part(name, list(recordings), [s.with_custom("corpus", name) for s in segments])


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise AsrtoolError(f"{path}: missing, a test set needs it", "run the prepare stage again")
    return path.read_text(encoding="utf-8")
