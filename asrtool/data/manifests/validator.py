"""Check and count a pair of manifests line by line."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from asrtool.errors import AsrtoolError

Entry = dict[str, Any]  # a recording or an utterance, with the names of the fields that lhotse gives it
TOLERANCE_S = 1e-3  # tolerance of lhotse for an utterance that exceeds its recording
DURATION_TOLERANCE_S = 0.5  # between the duration and the samples of a recording, as lhotse has it
MANIFEST_HINT = "make the manifest again"


class ManifestCounts:
    """Checks and sums of the utterances of `recordings` in the folder `where`.

    Raises AsrtoolError for a recording that is inconsistent or occurs twice.
    """

    def __init__(self, recordings: Iterable[Entry], where: Path) -> None:
        self._where = where
        self._recordings: dict[str, Entry] = {}
        for entry in recordings:
            if entry["id"] in self._recordings:
                raise AsrtoolError(f"{where}: recording id {entry['id']} occurs more than once", "make the ids unique")
            self._check_recording(entry)
            self._recordings[entry["id"]] = entry
        self._channels = {id_: channels(entry) for id_, entry in self._recordings.items()}
        self._used: set[str] = set()
        self._speakers: set[str | None] = set()
        self._ids = array("q")  # hashes: the ids of a large set would take more memory than all the rest
        self._num_words = 0
        self._speech_s = 0.0

    @property
    def num_utterances(self) -> int:
        return len(self._ids)

    @property
    def recordings(self) -> Mapping[str, Entry]:
        """The recordings by id."""
        return self._recordings

    def add(self, entry: Entry) -> bool:
        """Count an utterance, after `check`."""
        self.check(entry)
        self._used.add(entry["recording_id"])
        self._speakers.add(entry.get("speaker"))
        self._ids.append(hash(entry["id"]))
        self._num_words += len((entry.get("text") or "").split())
        self._speech_s += entry["duration"]
        return True

    def check(self, entry: Entry) -> None:
        """Raise AsrtoolError unless an utterance is inside a recording and its channels."""
        recording = self._recordings.get(entry["recording_id"])
        if recording is None:
            self._fail(entry, f"references non-existent recording {entry['recording_id']}")
        start_s, duration_s, channel = entry["start"], entry["duration"], entry["channel"]
        if duration_s <= 0:
            self._fail(entry, f"duration has to be greater than 0 (is {duration_s})")
        if not 0 <= start_s <= start_s + duration_s <= recording["duration"]:
            self._check_bounds(entry, recording)
        known = self._channels[recording["id"]]
        if channel not in known if isinstance(channel, int) else not set(channel) <= set(known):
            self._fail(entry, f"channel {channel} does not exist in its recording {recording['id']} (it has {known})")

    def add_checked(
        self, recordings: Iterable[str], speakers: Iterable[str | None], ids: bytes, num_words: int, speech_s: float
    ) -> None:
        """Count checked utterances: recordings, speakers, sums, and hashes of `ids`."""
        self._used.update(recordings)
        self._speakers.update(speakers)
        self._ids.frombytes(ids)
        self._num_words += num_words
        self._speech_s += speech_s

    def used(self) -> list[Entry]:
        """Return the recordings with an utterance, by id."""
        return [self._recordings[id_] for id_ in sorted(self._used)]

    def check_unique(self, ids: Callable[[], Iterator[str]]) -> None:
        """Raise AsrtoolError if an utterance id occurs twice.

        `ids` are read again if two hashes are equal.
        """
        import numpy as np  # looking at all corpora, as settings do, loads this module

        hashes = np.sort(np.frombuffer(self._ids, dtype=np.int64)) if self._ids else np.empty(0, dtype=np.int64)
        suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        seen: set[str] = set()
        for id_ in ids() if suspects else ():
            if id_ in seen:
                raise AsrtoolError(f"{self._where}: utterance id {id_} occurs more than once", "make the ids unique")
            if hash(id_) in suspects:
                seen.add(id_)

    def report(self) -> dict[str, Any]:
        """Return counts and hours, for report.json."""
        used = self.used()
        return {
            "num_recordings": len(used),
            "num_utterances": self.num_utterances,
            "num_speakers": len(self._speakers),
            "num_words": self._num_words,
            "speech_hours": round(self._speech_s / 3600, 4),
            "audio_hours": round(sum(entry["duration"] for entry in used) / 3600, 4),
        }

    def _check_bounds(self, entry: Entry, recording: Entry) -> None:
        start_s, end_s = entry["start"], round(entry["start"] + entry["duration"], 8)
        if not -TOLERANCE_S <= start_s <= end_s <= recording["duration"] + TOLERANCE_S:
            span = f"it spans {start_s} to {end_s} s; the recording 0 to {recording['duration']} s"
            self._fail(entry, f"exceeded the bounds of its recording {recording['id']} ({span})")

    def _fail(self, entry: Entry, fault: str) -> NoReturn:
        raise AsrtoolError(f"{self._where}: Supervision {entry['id']} {fault}", MANIFEST_HINT)

    def _check_recording(self, entry: Entry) -> None:
        samples_s = entry["num_samples"] / entry["sampling_rate"]
        if entry["duration"] <= 0 or abs(samples_s - entry["duration"]) > DURATION_TOLERANCE_S:
            raise AsrtoolError(
                f"{self._where}: recording {entry['id']} has a duration of {entry['duration']} s,"
                f" expected {samples_s} s by its samples",
                MANIFEST_HINT,
            )
        if not channels(entry):
            raise AsrtoolError(f"{self._where}: recording {entry['id']} has no channel", MANIFEST_HINT)


def channels(recording: Entry) -> list[int]:
    """Return the channels of a recording, else of its files."""
    return recording.get("channel_ids") or sorted({c for source in recording["sources"] for c in source["channels"]})
