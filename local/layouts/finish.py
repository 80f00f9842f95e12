"""Rules for foreign data: each utterance is kept or listed, in every layout."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrtool.data.manifests.manifest import DROPPED, Drop, format_line, read_drops, read_sorted, write_counted
from asrtool.data.manifests.speed_copies import COPY, refuse_copy
from asrtool.data.manifests.validator import DURATION_TOLERANCE_S, Entry, ManifestCounts, channels
from asrtool.local.text.own_text import Rule, text_rule
from asrtool.local.text.references import NO_RULES_GLM, Reference
from asrtool.local.utterances import clean_id, cut_to_recording, normalised, warn_of_unknown
from asrtool.settings.data import Data

if TYPE_CHECKING:
    from lhotse import SupervisionSegment

AS_IT_WAS = "sp1.0-"


def originals_of(id_: str) -> tuple[str, ...]:
    """Return possible ids of the original if `id_` is named as a speed copy."""
    match = COPY.match(id_)
    if not match or match[0] == AS_IT_WAS:
        return ()
    return id_[match.end() :], AS_IT_WAS + id_[match.end() :]


def copies_among(ids: Collection[str]) -> set[str]:
    """Return the ids of speed copies whose original is among them."""
    named = {id_: names for id_ in ids if (names := originals_of(id_))}
    known = set(ids) if named else set()
    return {id_ for id_, names in named.items() if not known.isdisjoint(names)}


def log_left_out(where: object, copies: Collection[str], num_all: int, drops: list[Drop]) -> None:
    """Log that `copies` of `num_all` utterances are left out, and add them to `drops`."""
    drops += [Drop(id_, "copy at another speed") for id_ in sorted(copies)]
    if copies:
        logging.warning(
            "%s: %d of %d utterances are copies at other speeds, the first is %s: left out, as features.speeds makes"
            " them", where, len(copies), num_all, min(copies),
        )  # fmt: skip


DENSE = 30  # characters a second, impossible for speech: fast speech has 20 to 25
EARLY_S = 0.01  # tolerance for a begin before the recording: times are rounded
LATE_S = DURATION_TOLERANCE_S  # tolerance for an end after the recording, as in Kaldi's extract-segments
ADVICE = "Name them: a column speaker, utt2spk, or a folder for each speaker."


class Names:
    """Unique names for different content with one id: the second gets ID-2."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._names: dict[tuple[str, object], str] = {}
        self._numbers: dict[str, int] = {}
        self._renamed: list[str] = []

    def add(self, id_: str, content: Hashable) -> tuple[str, bool]:
        """Return the name for `id_` with this content, and whether it is new."""
        key = id_, hash(content)
        if key in self._names:
            return self._names[key], False
        name = id_
        while name in self._numbers:
            self._numbers[id_] += 1
            name = f"{id_}-{self._numbers[id_]}"
        self._numbers[name] = 1
        self._names[key] = name
        self._renamed += [name] if name != id_ else []
        return name, True

    def log_renamed(self, where: object) -> None:
        """Log the number of renamed ones."""
        if self._renamed:
            logging.warning(
                "%s: %d %s have the id of another one with other content, the first is now called %s",
                where, len(self._renamed), self._kind, self._renamed[0],
            )  # fmt: skip


def write_set(
    out: Path,
    recordings: Iterable[Entry],
    segments: Collection[SupervisionSegment],
    drops: list[Drop],
    data: Data,
    label: str,
) -> None:
    """Write the manifest folder `out`, with ref.stm of that label, and ref.glm.

    `segments` are all utterances as read, `recordings` the usable ones. Speed copies are left out. Raises
    AsrtoolError if too much cannot be used.
    """
    copies = copies_among([segment.id for segment in segments])
    log_left_out(out, copies, len(segments), drops)
    kept = [segment for segment in segments if segment.id not in copies]
    unused = {s.recording_id for s in segments if s.id in copies} - {s.recording_id for s in kept}
    used = (entry for entry in recordings if entry["id"] not in unused)
    write_utterances(out, used, by_recording(kept), drops, data, lambda _: label)


def by_recording(segments: Iterable[SupervisionSegment]) -> Iterator[list[Entry]]:
    """Yield the utterances of one recording at a time, sorted by recording id."""
    ordered = sorted(segments, key=lambda segment: segment.recording_id)
    for _, group in itertools.groupby(ordered, key=lambda segment: segment.recording_id):
        yield [segment.to_dict() for segment in group]


def write_utterances(
    out: Path,
    recordings: Iterable[Entry],
    spoken: Iterable[Sequence[Entry]],
    drops: list[Drop],
    data: Data,
    corpus_of: Callable[[str], str],
    rule: Rule | None = None,
) -> None:
    """Write the manifest folder `out` from utterances by recording, in id order.

    Each utterance is written, or is in `drops`, itself or with its recording. `corpus_of` returns the label of a
    recording's segments, `rule` normalises texts (by default data.text_rules). Raises AsrtoolError if too much cannot
    be used, and for an utterance with the id of a speed copy.
    """
    reference = Reference(corpus_of, data.text_rules == "english")
    counts = ManifestCounts(recordings, out)
    usable = functools.partial(_usable, rule=rule or text_rule(data), drops=drops)

    def kept() -> Iterator[list[Entry]]:
        listed = {drop.id for drop in drops}
        seen, sides, known, num, dense = set(), set(), set(), 0, []
        for entries in spoken:
            recording = counts.recordings.get(id_ := entries[0]["recording_id"])
            seen.add(id_)
            if recording is None:
                drops.extend([] if id_ in listed else [Drop(id_, "no audio", "no recording of that id")])
                drops.extend(lost_with_recording((entry["id"], id_) for entry in entries))
                continue
            good = [entry for entry in entries if usable(entry, recording)]
            for entry in good:
                speaker = clean_id(entry.get("speaker") or "")
                side = id_ if len(channels(recording)) == 1 else f"{id_}-{entry['channel']}"
                sides.add(side)
                known.update([side] if speaker else [])
                entry["speaker"] = speaker or side
                refuse_copy(out, entry["id"], entry["speaker"])
            num += len(good)
            dense += [e["id"] for e in good if e["duration"] >= 1 and len(e["text"]) > DENSE * e["duration"]]
            if good:
                yield good
        without_text = sorted(counts.recordings.keys() - seen)
        drops.extend(Drop(id_, "no transcript", "no utterance of it") for id_ in without_text)
        warn_of_unknown(sides, known, str(out), ADVICE)
        if dense:
            logging.warning(
                "%s: %d of %d utterances have more than %d characters a second, the first is %s: is their audio cut"
                " off, or their text that of others?", out, len(dense), num, DENSE, dense[0],
            )  # fmt: skip

    def lines() -> Iterator[str]:
        for entries in kept():
            reference.add(entries)
            for entry in sorted(entries, key=lambda e: (e["start"], e["channel"], e["id"])):
                counts.add(entry)
                yield format_line(entry)[1]

    texts: dict[str, str | Iterator[bytes]] = {"ref.stm": reference.read(), "ref.glm": NO_RULES_GLM}
    write_counted(out, counts, lines(), drops, data.bad_fraction, texts)


def lost_with_recording(utterances: Iterable[tuple[str, str]]) -> list[Drop]:
    """List the utterances (id, recording) of recordings that are set aside."""
    return [
        Drop(id_, "lost recording", f"recording {recording} is set aside")
        for id_, recording in utterances
        if id_ != recording
    ]


def _usable(entry: Entry, recording: Entry, rule: Rule, drops: list[Drop]) -> bool:
    """Normalise the text and trim the times; False and a drop if unusable."""
    known, duration_s = channels(recording), recording["duration"]
    start_s, length_s = entry["start"], entry["duration"]
    end_s = round(start_s + length_s, 8)
    is_near = -EARLY_S <= start_s < min(end_s, duration_s) and round(end_s - duration_s, 6) <= LATE_S
    if entry["channel"] not in known[:2]:
        detail = f"channel {entry['channel']}, expected one of {known[:2]} as its recording has them"
        drops.append(Drop(entry["id"], "no channel", detail))
        return False
    if start_s < 0:
        entry["start"], length_s = 0.0, end_s
    entry["duration"] = cut_to_recording(entry["start"], length_s, duration_s) if is_near else 0
    if entry["duration"] * recording["sampling_rate"] < 1 / 2:  # not a sample
        detail = f"from {start_s:g} s to {end_s:g} s of a recording of {duration_s:g} s"
        drops.append(Drop(entry["id"], "bad times", detail))
        return False
    entry["text"] = normalised(entry["id"], entry.get("text") or "", rule, drops)
    return bool(entry["text"])


def join_sets(out: Path, folders: Sequence[Path], data: Data, label: str) -> None:
    """Write the manifest folder `out` of checked manifest folders.

    If an id of a set is in an earlier one, all its ids begin with its folder's name.
    """
    taken: set[str] = set()
    recordings: list[Entry] = []
    drops: list[Drop] = []
    streams = []
    for folder in folders:
        found, lines = read_sorted(folder)
        ids = {entry["id"] for entry in found} | {entry["id"] for entry, _ in lines}
        prefix = f"{folder.name}-" if (twice := taken & ids) else ""
        if prefix:
            logging.warning("%s: an earlier set has %s as well: ids begin with %s", folder, min(twice), prefix)
        taken |= {prefix + id_ for id_ in ids}
        recordings += [{**entry, "id": prefix + entry["id"]} for entry in found]
        drops += [dataclasses.replace(drop, id=prefix + drop.id) for drop in read_drops(folder / DROPPED)]
        streams.append(_prefixed(folder, prefix))
    spoken = heapq.merge(*streams, key=lambda entry: entry["recording_id"])
    groups = (list(group) for _, group in itertools.groupby(spoken, key=lambda entry: entry["recording_id"]))
    tolerant = dataclasses.replace(data, bad_fraction=1.0)
    write_utterances(out, recordings, groups, drops, tolerant, lambda _: label, str)


def _prefixed(folder: Path, prefix: str) -> Iterator[Entry]:
    for entry, _ in read_sorted(folder)[1]:
        # A speaker without name gets the name of the recording.
        keys = ("id", "recording_id", *(["speaker"] if entry["speaker"] == entry["recording_id"] else []))
        yield {**entry, **{key: prefix + entry[key] for key in keys}}
