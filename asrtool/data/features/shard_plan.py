"""Plan sampling rate and shards of utterances, in one pass over a manifest.

It keeps compressed lines instead of objects, to save memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import logging
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asrtool.data.features.cache_key import MANIFEST_HINT, DigestFiles, join_texts, sizes_and_times
from asrtool.data.manifests.manifest import RECORDINGS, read_lines, read_report
from asrtool.data.manifests.speed_copies import refuse_copy
from asrtool.data.manifests.validator import Entry
from asrtool.errors import AsrtoolError
from asrtool.settings.data import RATES_HZ, Features

if TYPE_CHECKING:
    from lhotse import Recording, SupervisionSegment


def with_rate(features: Features, manifests: Path) -> Features:
    """Set the rate of most hours in `manifests` (in ties the lower) if it is 0.

    Raises AsrtoolError for a missing or half-written manifest.
    """
    if features.sampling_rate_hz:
        return features
    read_report(manifests)
    seconds: defaultdict[int, float] = defaultdict(float)
    for entry in read_lines(manifests / RECORDINGS, Entry):
        seconds[int(entry["sampling_rate"])] += entry["duration"]
    rate_hz = min(seconds, key=lambda rate: (-seconds[rate], rate))
    percent = 100 * seconds[rate_hz] / sum(seconds.values())
    logging.info(
        "features.sampling_rate_hz is 0: %d Hz, as %.3g %% of the hours of recordings to train on have",
        rate_hz,
        percent,
    )
    return dataclasses.replace(features, sampling_rate_hz=rate_hz)


def log_resampled(where: Path, num_by_rate: Mapping[int, int], rate_hz: int, is_fixed: bool) -> None:
    """Log the number of resampled recordings; `num_by_rate` counts them by rate.

    Upsampling is a warning, since the upper band is missing. Another rate is advised unless it `is_fixed`.
    """
    total = sum(num_by_rate.values())
    for rate, num in sorted(num_by_rate.items()):
        if rate < rate_hz:
            is_advised = not is_fixed and rate == min(num_by_rate)
            alike = f"; features.sampling_rate_hz={rate} would make all alike" if is_advised else ""
            logging.warning(
                "%s: %d of %d recordings have %d Hz, resampled to %d: NOTHING ABOVE %d Hz IS IN THEM%s",
                where, num, total, rate, rate_hz, rate // 2, alike,
            )  # fmt: skip
        elif rate > rate_hz:
            logging.info("%s: %d of %d recordings have %d Hz, resampled to %d", where, num, total, rate, rate_hz)


@dataclass(frozen=True)
class ShardJob:
    """The part of a set that becomes one shard, all at one speed."""

    number: int
    speed: float
    packed: bytes  # recordings with their utterances, as compressed lines
    utterances_digest: str  # digest of the utterances' digests in made_of.npy
    data_of: int  # number of the shard with their data: this one, or that of speed 1
    keeps_audio: bool = False

    @property
    def name(self) -> str:
        """Title for error messages."""
        return f"shard {self.number:06d}"

    @property
    def digest(self) -> str:
        """Digest of the shard's content, without settings."""
        return f"{self.utterances_digest} {self.speed:g} {self.keeps_audio:d}"

    def sources(self, rate_hz: int) -> list[tuple[Recording, list[SupervisionSegment]]]:
        """Return recordings with their segments; other rates are resampled."""
        from lhotse import Recording, SupervisionSegment

        recordings, utterances = json.loads(zlib.decompress(self.packed))
        sources: dict[str, tuple[Recording, list[SupervisionSegment]]] = {}
        for entry in recordings:
            recording = Recording.from_dict(entry)
            other_rate = recording.sampling_rate != rate_hz
            sources[recording.id] = (recording.resample(rate_hz) if other_rate else recording, [])
        for entry in utterances:
            sources[entry["recording_id"]][1].append(SupervisionSegment.from_dict(entry))
        return list(sources.values())


def plan_shards(
    manifests: Path,
    directory: Path,
    features: Features,
    digest_files: DigestFiles = sizes_and_times,
    first: int = 0,
    is_fixed: bool = False,
) -> tuple[list[ShardJob], np.ndarray]:
    """Plan shards from number `first` on; write texts; return utterance digests.

    Recordings in order, about `features.shard_cuts` utterances a shard and no recording in two; once for each speed.
    Copies are in other shards, so that a batch seldom holds the same words twice. Raises AsrtoolError for a missing
    or corrupt manifest, and for a sampling rate other than the features' unless these resample. Also for a channel
    that is neither 0 nor 1, an utterance without speaker or text, an id like a speed copy's, and utterances in
    another order than recordings. With `is_fixed` no other sampling rate is advised.
    """
    grouping = _Grouping(manifests, features)
    digests = join_texts(manifests, directory, digest_files, grouping.add)
    grouping.end_group()
    groups = grouping.groups
    log_resampled(manifests, grouping.num_by_rate, features.sampling_rate_hz, is_fixed)
    speeds = list(features.speeds)
    shares_audio = features.storage == "flac"  # copies use the audio of the shard at speed 1, which comes first
    if shares_audio:
        speeds.sort(key=lambda speed: speed != 1)
    jobs = []
    for number, (speed, (k, group)) in enumerate(itertools.product(speeds, enumerate(groups)), first):
        data_of = first + k if shares_audio else number
        jobs.append(ShardJob(number, speed, *group, data_of, features.keep_audio))
    return jobs, digests


class _Grouping:
    """Division of a sorted manifest into groups."""

    def __init__(self, where: Path, features: Features) -> None:
        self._where, self._features = where, features
        self.num_by_rate: Counter[int] = Counter()  # number of recordings
        self.groups: list[tuple[bytes, str]] = []  # as ShardJob has them
        self._seen: set[str] = set()  # recordings
        self._recordings: list[Entry] = []  # recordings of the next group
        self._utterances: list[Entry] = []
        self._digests: list[int] = []

    def add(self, recording: Entry, utterance: Entry, digest: int) -> None:
        """Add the next utterance, without its text, and its recording."""
        if not self._recordings or recording["id"] != self._recordings[-1]["id"]:
            self._begin(recording)
        if utterance["channel"] not in (0, 1):
            raise AsrtoolError(
                f"{self._where}: utterance {utterance['id']} is on channel {utterance['channel']},"
                " expected 0 (side A) or 1 (B)",
                "write each pair of channels as a recording of its own",
            )
        if not utterance.get("speaker"):
            raise AsrtoolError(f"{self._where}: utterance {utterance['id']} has no speaker", "give it one")
        refuse_copy(self._where, utterance["id"], utterance["speaker"])
        self._utterances.append(utterance)
        self._digests.append(digest)

    def _begin(self, recording: Entry) -> None:
        if recording["id"] in self._seen:
            what = f"{self._where}: utterances of recording {recording['id']} lie apart, expected one after the other"
            raise AsrtoolError(what, MANIFEST_HINT)
        rate_hz = recording["sampling_rate"]
        if rate_hz != self._features.sampling_rate_hz and not self._features.resample:
            raise wrong_rate(f"{self._where}: recording {recording['id']}", rate_hz, self._features)
        if len(self._utterances) >= self._features.shard_cuts:
            self.end_group()
        self._seen.add(recording["id"])
        self.num_by_rate[rate_hz] += 1
        self._recordings.append(recording)

    def end_group(self) -> None:
        """Add the last group."""
        if self._utterances:
            packed = zlib.compress(json.dumps([self._recordings, self._utterances]).encode(), 1)
            digest = hashlib.blake2b(json.dumps(self._digests).encode(), digest_size=16).hexdigest()
            self.groups.append((packed, digest))
            self._recordings, self._utterances, self._digests = [], [], []


def wrong_rate(what: str, found_hz: int, features: Features) -> AsrtoolError:
    """Return the error for audio with another sampling rate than features."""
    convert = "convert the audio, or set features.resample=true"
    set_rate = f"{convert}, or features.sampling_rate_hz={found_hz} if all have that rate"
    hint = set_rate if RATES_HZ[0] <= found_hz <= RATES_HZ[1] else convert
    return AsrtoolError(f"{what} has {found_hz} samples a second, expected {features.sampling_rate_hz}", hint)
