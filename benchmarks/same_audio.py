"""Precision and recall of data.same_audio, and its cost: a twentieth of a set is planted in it again, altered.

    python benchmarks/same_audio.py exp/manifests/train

Half of the copies are utterances of the same set, the others of a test set. Each is altered in one of the ways of
ALTERED, by ids drawn anew for each seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile
from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio import audio_backend
from scipy.signal import resample_poly

from asrtool.data.duplicates.same_audio import LEAST_S, find_same_audio
from asrtool.data.manifests.manifest import read_manifests, write_manifests
from asrtool.settings.data import Features

RATE_HZ = 8000
FRACTION = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", type=Path, help="folder of recordings and supervisions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    recordings, segments = read_manifests(options.manifests)
    long_enough = SupervisionSet.from_segments(s for s in segments if s.duration >= LEAST_S)
    planted, found, false_pairs, cpu_s = Counter[str](), Counter[str](), 0, 0.0
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            how = plant(Path(folder), recordings, long_enough, np.random.default_rng(seed))
            planted.update(how.values())
            began = time.process_time()
            pairs = find_same_audio(Path(folder), ["test"], ["train"], Features(num_jobs=1))
            cpu_s += time.process_time() - began
        right = {pair.one.id: pair for pair in pairs if pair.other.id == original(pair.one.id)}
        right |= {p.other.id: p for p in pairs if p.one.id == original(p.other.id)}
        found.update(how[name] for name in right)
        false_pairs += len(pairs) - len(right)
    hours = len(options.seeds) * sum(s.duration for s in long_enough) / 3600
    print("| altered | planted | recall |\n|---|---|---|")
    for name, num in [*sorted(planted.items()), ("all", planted.total())]:
        print(f"| {name} | {num} | {(found[name] if name != 'all' else found.total()) / num:.2f} |")
    print(
        f"\nprecision {found.total() / max(1, found.total() + false_pairs):.3f}, {cpu_s / hours:.1f} s of CPU an hour"
    )


def plant(
    folder: Path, recordings: RecordingSet, segments: SupervisionSet, random: np.random.Generator
) -> dict[str, str]:
    """Write the sets `train` and `test` below `folder`; ids of the copies with how each is altered."""
    items = list(segments)
    drawn = random.choice(len(items), max(1, round(FRACTION * len(items))), replace=False)
    copies: dict[str, list[tuple[Recording, SupervisionSegment]]] = {"train": [], "test": []}
    how = {}
    for number, place in enumerate(drawn.tolist()):
        source, (name, alter) = items[place], list(ALTERED.items())[number % len(ALTERED)]
        copy = f"{source.id}.copy"
        samples_S = alter(load(recordings[source.recording_id], source))
        soundfile.write(folder / f"{copy}.wav", samples_S, RATE_HZ, subtype="PCM_16")
        recording = Recording.from_file(folder / f"{copy}.wav", recording_id=copy)
        segment = dataclasses.replace(
            source, id=copy, recording_id=copy, start=0, duration=recording.duration, channel=0
        )
        copies[("train", "test")[number // len(ALTERED) % 2]].append((recording, segment))
        how[copy] = name
    for name, added in copies.items():
        old = (list(recordings), items) if name == "train" else ([], [])
        whole = [*old[0], *(recording for recording, _ in added)], [*old[1], *(segment for _, segment in added)]
        write_manifests(folder / name, *whole, [], 1.0, {})
    return how


def original(copy: str) -> str:
    return copy.removesuffix(".copy") if copy.endswith(".copy") else ""


def load(recording: Recording, segment: SupervisionSegment) -> np.ndarray:
    """Its samples at RATE_HZ, float32 (S,)."""
    with audio_backend("LibsndfileBackend"):  # which reads SPHERE files, too
        audio = recording.resample(RATE_HZ).load_audio(
            channels=segment.channel, offset=segment.start, duration=segment.duration
        )
    return np.asarray(audio[0], dtype=np.float32)


def at_speed(speed: float) -> Callable[[np.ndarray], np.ndarray]:
    """At another speed, and so at another pitch."""
    fraction = Fraction(speed).limit_denominator(20)
    return lambda samples_S: resample_poly(samples_S, fraction.denominator, fraction.numerator)


def through(kind: str, subtype: str | None) -> Callable[[np.ndarray], np.ndarray]:
    """Through a codec of libsndfile."""

    def code(samples_S: np.ndarray) -> np.ndarray:
        file = io.BytesIO()
        soundfile.write(file, samples_S, RATE_HZ, format=kind, subtype=subtype)
        return soundfile.read(io.BytesIO(file.getvalue()), dtype="float32")[0]

    return code


GSM = through("WAV", "GSM610")
ALTERED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "not at all": lambda samples_S: samples_S,
    "a tenth as loud": lambda samples_S: 0.1 * samples_S,
    "speed 0.9": at_speed(0.9),
    "speed 1.1": at_speed(1.1),
    "GSM": GSM,
    "MP3": through("MP3", None),
    "mu-law": through("WAV", "ULAW"),
    "speed 1.1, a third as loud, GSM": lambda samples_S: GSM(0.3 * at_speed(1.1)(samples_S)),
}


if __name__ == "__main__":
    main()
