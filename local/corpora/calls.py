"""Telephone calls of two sides with transcripts, read and written one by one.

lhotse's preparers hold all utterances of a corpus; Fisher has two million. Ids, times and trimming are as they have
them, and tests compare.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from asrtool.data.manifests.manifest import Drop, format_line, write_sorted
from asrtool.data.manifests.validator import Entry
from asrtool.local.corpus import UNCERTAIN
from asrtool.local.utterances import Sound, cut_to_recording, normalised, recording_entry, warn_of_unknown
from asrtool.settings.data import Data

SAMPLING_RATE_HZ = 8000
NUM_CHANNELS = 2
LICENCE = "LDC User Agreement"


@dataclass(frozen=True, slots=True)
class Line:
    """An utterance as transcribed; times in seconds."""

    id: str
    start_s: float
    duration_s: float
    side: str  # A or B
    transcript: str
    is_doubted: bool = False  # by its transcriber, of some words


@dataclass(frozen=True)
class Calls:
    """Calls of a corpus: usable audio, and how to read and normalise its transcripts."""

    corpus: str
    sounds: Mapping[str, Sound]
    read: Callable[[str, Sound, list[Drop]], Sequence[Line]]  # lines of a call, faults are added to the drops
    rule: Callable[[str], str]
    speakers: Mapping[str, str]  # CALL-SIDE -> speaker
    advice: str  # for sides without speaker

    def write(self, out: Path, drops: list[Drop], data: Data) -> None:
        """Write the manifest folder `out`; AsrtoolError if too much cannot be used."""
        recordings = [recording_entry(id_, sound, NUM_CHANNELS) for id_, sound in self.sounds.items()]
        write_sorted(out, recordings, map(format_line, self._utterances(drops)), drops, data.bad_fraction, {})

    def _utterances(self, drops: list[Drop]) -> Iterator[Entry]:
        """Yield all utterances by call; drops go to `drops`, broken lines first."""
        faults: dict[str, list[Drop]] = {id_: [] for id_ in self.sounds}  # in the order of the files
        without_text: list[Drop] = []
        transcribed = []
        for id_, sound in sorted(self.sounds.items()):
            if lines := self.read(id_, sound, faults[id_]):
                transcribed.append(id_)
            texts = [normalised(line.id, line.transcript, self.rule, without_text) for line in lines]
            usable = [(line, text) for line, text in zip(lines, texts, strict=True) if text]
            entries = [self._entry(id_, line, text, sound) for line, text in usable]
            yield from sorted(entries, key=lambda entry: (entry["start"], entry["channel"], entry["id"]))
        drops += itertools.chain(*faults.values(), without_text)
        sides = (f"{id_}-{side}" for id_ in transcribed for side in "AB")
        warn_of_unknown(sides, self.speakers, self.corpus, self.advice)

    def _entry(self, id_: str, line: Line, text: str, sound: Sound) -> Entry:
        side = f"{id_}-{line.side}"
        return {
            "id": line.id,
            "recording_id": id_,
            "start": line.start_s,
            "duration": cut_to_recording(line.start_s, line.duration_s, sound.duration_s),
            "channel": "AB".index(line.side),
            "text": text,
            "language": "English",
            "speaker": self.speakers.get(side, side),
            **({"custom": {UNCERTAIN: True}} if line.is_doubted else {}),
        }
