"""A Kaldi data directory (wav.scp, text; optional utt2spk, segments) to manifests.

Recordings are named as in wav.scp and have one channel, but for the two sides that sph2pipe takes out of a file, which
are the channels of one recording. An utterance is a row of numbers until its recording is written. Times are as
lhotse's load_kaldi_data_dir has them, and a test compares.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asrtool.data.manifests.manifest import Drop
from asrtool.data.manifests.validator import Entry as Utterance
from asrtool.errors import AsrtoolError
from asrtool.local.layouts.finish import lost_with_recording, say_left_out, write_spoken
from asrtool.local.layouts.kaldi_tables import Places, Table, read_segments, read_table, whole_files
from asrtool.local.layouts.wav_scp import Entry, command_line, read_wav_scp, run_pipes
from asrtool.local.text.own_text import Rule, text_rule
from asrtool.local.utterances import Sound, recording_entry, usable_audio
from asrtool.settings.data import Data

SIDES = "reco2file_and_channel"
BLOCK = 512  # utterances whose lines are in memory at a time


def prepare_kaldi(directory: Path, out: Path, data: Data, label: str) -> None:
    """Write the manifest folder `out`, with ref.stm of that label, and ref.glm.

    Raises AsrtoolError for a missing file, as read_wav_scp, or if too much cannot be used.
    """
    drops: list[Drop] = []
    sides = read_table(directory / SIDES) if (directory / SIDES).is_file() else {}
    entries = read_wav_scp(directory, read_table(directory / "wav.scp"), sides, data.allow_pipes)
    text = Table(directory / "text", allow_empty=True)
    utt2spk = directory / "utt2spk"
    speakers = Table(utt2spk) if utt2spk.exists() else None
    copies = [id_ for id_, _ in text.read(np.flatnonzero(text.is_copy))]
    say_left_out(directory, copies, len(text.ids), drops)
    segments = read_segments(directory / "segments") if (directory / "segments").is_file() else None
    wanted = segments.wanted() if segments else {id_ for id_, _ in text.read(np.flatnonzero(~text.is_copy))}
    entries = _run_commands(_wanted(entries, wanted, drops), out, drops)
    recordings = _usable_recordings(entries, out, drops)
    sounds = {id_: recordings[entry.recording][0] for id_, entry in entries.items() if entry.recording in recordings}
    places = (segments or whole_files(sorted(wanted))).ending({id_: sound.duration_s for id_, sound in sounds.items()})
    rows = _usable_rows(places, text, drops)
    rate_hz = max((sound.sampling_rate_hz for sound in sounds.values()), default=1)  # at which durations are rounded
    spoken = _Spoken(places, text, speakers, entries, rate_hz).by_recording(rows)
    whole = (recording_entry(id_, *recording) for id_, recording in recordings.items())
    write_spoken(out, whole, spoken, drops, data, lambda _: label, _kaldi_rule(data))


def _wanted(entries: Mapping[str, Entry], wanted: Collection[str], drops: list[Drop]) -> dict[str, Entry]:
    """Return the entries that have an utterance; mismatches go to `drops`."""
    drops += [Drop(id_, "no transcript", f"{id_} has no utterance in text") for id_ in entries if id_ not in wanted]
    drops += [Drop(id_, "no audio", f"{id_} is not in wav.scp") for id_ in sorted(set(wanted) - entries.keys())]
    return {id_: entry for id_, entry in entries.items() if id_ in wanted}


def _run_commands(entries: Mapping[str, Entry], out: Path, drops: list[Drop]) -> dict[str, Entry]:
    """Return file entries, and the files that commands of the others wrote."""
    commands = {id_: entry.command for id_, entry in entries.items() if entry.command}
    written = run_pipes(commands, out / "audio", drops)
    return {
        id_: dataclasses.replace(entry, path=written.get(id_, entry.path))
        for id_, entry in entries.items()
        if not entry.command or id_ in written
    }


def _usable_recordings(entries: Mapping[str, Entry], out: Path, drops: list[Drop]) -> dict[str, tuple[Sound, int]]:
    """Return recording -> its audio file and number of channels."""
    recordings = {}
    for num_channels in (1, 2):
        files = {entry.recording: entry.path for entry in entries.values() if entry.num_channels == num_channels}
        for id_, sound in (usable_audio(files, None, num_channels, out, drops) if files else {}).items():
            recordings[id_] = (sound, num_channels)
    piped = {entry.recording: entry for entry in entries.values() if entry.command}
    for number, drop in enumerate(drops):
        if entry := piped.get(drop.id):  # the file that it wrote says nothing to a user, and may be gone soon
            detail = drop.detail.replace(str(entry.path), command_line(entry.command))
            drops[number] = dataclasses.replace(drop, detail=detail)
    return recordings


def _kaldi_rule(data: Data) -> Rule:
    """Return the rule for custom text, with the period of a letter before 's kept off."""
    rule = text_rule(data)
    if data.text_rules != "english":
        return rule
    return lambda text: rule(re.sub(r"(?<=[A-Za-z])\.(?='s)", "", text))


def _usable_rows(places: Places, text: Table, drops: list[Drop]) -> np.ndarray:
    """Return the rows with text in usable recordings; others go to `drops`."""
    of_text = text.find(places.ids)
    has_text = of_text >= 0
    has_text[has_text] = ~text.is_copy[of_text[has_text]]
    is_there = ~np.isnan(places.end_s) & ~places.is_copy
    unsaid = places.read_ids(np.flatnonzero(is_there & ~has_text))
    drops += [Drop(id_, "no text", f"{id_} is not in the file text") for id_ in unsaid]
    is_placed = np.zeros(len(text.ids), dtype=bool)
    is_placed[of_text[has_text & ~places.is_copy]] = True
    is_lost = has_text & ~is_there & ~places.is_copy
    drops += lost_with_recording(zip(*places.read_names(np.flatnonzero(is_lost)), strict=True))
    lost = text.read(np.flatnonzero(~is_placed & ~text.is_copy))
    drops += [Drop(id_, "no segment", "in text, but not in segments") for id_, _ in lost]
    return np.flatnonzero(is_there & has_text)


@dataclass(frozen=True)
class _Spoken:
    """Texts, speakers, times, recordings and channels of a directory."""

    places: Places
    text: Table
    speakers: Table | None  # None: not known
    entries: Mapping[str, Entry]
    rate_hz: int  # at which durations are whole numbers of samples

    def by_recording(self, rows: np.ndarray) -> Iterator[list[Utterance]]:
        """Yield the utterances of one recording at a time, sorted by recording id."""
        recordings = [self.entries[name].recording if name in self.entries else "" for name in self.places.names]
        rank = {id_: place for place, id_ in enumerate(sorted(set(recordings)))}
        ranks = np.array([rank[id_] for id_ in recordings], dtype=np.int32)
        rows = rows[np.argsort(ranks[self.places.recording[rows]], kind="stable")]
        blocks = (rows[begin : begin + BLOCK] for begin in range(0, len(rows), BLOCK))
        utterances = itertools.chain.from_iterable(self._read(block) for block in blocks)
        for _, group in itertools.groupby(utterances, key=lambda utterance: utterance["recording_id"]):
            yield list(group)

    def _read(self, rows: np.ndarray) -> Iterator[Utterance]:
        ids = self.places.read_ids(rows)
        columns = (self.places.recording, self.places.start_s, self.places.end_s)
        places = zip(*(column[rows].tolist() for column in columns), strict=True)
        hashes = self.places.ids[rows]
        said = self._values(self.text, hashes, ids)
        speakers = self._values(self.speakers, hashes, ids) if self.speakers else {}
        for id_, (recording, start_s, end_s) in zip(ids, places, strict=True):
            entry = self.entries[self.places.names[recording]]
            yield {
                "id": id_,
                "recording_id": entry.recording,
                "start": start_s,
                "duration": length_s(start_s, end_s, self.rate_hz),
                "channel": entry.channel,
                "text": said[id_],
                "speaker": speakers.get(id_),
            }

    def _values(self, table: Table, hashes: np.ndarray, ids: list[str]) -> dict[str, str]:
        """Return the values of `ids` in `table`."""
        found = table.find(hashes)
        found = found[found >= 0]
        lines = dict(table.read(found))
        if len(lines.keys() & set(ids)) != len(found):
            raise AsrtoolError(f"{table.path}: has changed while it was read", "run the command again")
        return lines


def length_s(start_s: float, end_s: float, rate_hz: int) -> float:
    """Return a duration with both times rounded to samples, halves up, as lhotse."""
    start, end = (math.floor(round(time_s * rate_hz, 8) + 0.5) for time_s in (start_s, end_s))
    return (end - start) / rate_hz
