"""Word error rates on noisy calls by what training did to its audio, on the mini corpus.

    .venv/bin/python benchmarks/noise.py WORK [--trainings NAME,...] [--seed N]

A side of a noisy call has one noise all the time, whose ratio is to the mean power of what is spoken there. Noises are
made here: coloured noise, motors, and babble of several voices. Training draws from recordings of the first two kinds,
the noisy sets have others of these, and babble. What is finished in WORK is not run again.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from lhotse import Recording, SupervisionSegment
from lhotse.audio import audio_backend

from asrtool.data.manifests.manifest import read_manifests, write_manifests
from asrtool.data.manifests.sets import EvaluationSet, Sets, read_sets, write_sets

RATE_HZ = 8000
CONFIG = Path(__file__).parents[1] / "recipes/swbd/conf/mini.toml"
CONDITIONS = {f"{kind}{snr_db}": (kind, snr_db) for kind in ("noise", "babble") for snr_db in (20, 10, 5)}
NUM_NOISES = 40  # recordings that training draws from
NOISE_S = 30.0  # seconds of each
TRAININGS = {
    "plain": (),
    "noise": ("augment.noise_dir={work}/noises", "augment.noise_prob=0.5", "augment.snr_db=0,20"),
    "tempo": ("augment.tempo=0.9,1.1",),
    "band-codec": ("augment.band_prob=0.3", "augment.codec_prob=0.3"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--trainings", default=",".join(TRAININGS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    work = options.work.resolve()
    prepare(work)
    names = ["hub5", *CONDITIONS]
    print(" ".join([f"{'training':12}", "seconds", *(f"{name:>8}" for name in names)]), flush=True)
    for name in options.trainings.split(","):
        out = train(work, name, options.seed)
        seconds = json.loads((out / "train" / "train.json").read_text(encoding="utf-8"))["seconds"]
        rates = [f"{word_error_rate(out, one):8.2f}" for one in names]
        print(" ".join([f"{name:12}", f"{seconds:7.0f}", *rates]), flush=True)


def prepare(work: Path) -> None:
    """Manifests with the noisy sets, features, tokenizer, and the noises of training."""
    if not (work / "tokenizer").exists():
        base = work / "base"
        asrtool("run", "--config", "mini", "--work", base, "--stop-stage", "prepare")
        shutil.copytree(base / "manifests", work / "manifests", dirs_exist_ok=True)
        write_noises(work / "noises")
        write_noisy_sets(work)
        asrtool("features", work / "manifests", work / "features", *settings("features.keep_audio=true"))
        asrtool("tokenizer", work / "manifests/train/sentences.txt", work / "tokenizer", *settings())


def train(work: Path, name: str, seed: int) -> Path:
    """The folder of a training that was decoded and scored."""
    out = work / f"{name}-{seed}"
    sets = settings(f"train.seed={seed}", *(text.format(work=work) for text in TRAININGS[name]))
    decoding = settings("decode.methods=greedy")
    if not (out / "score").exists():
        asrtool("train", work / "features", work / "tokenizer", out / "train", *sets)
        asrtool("average", out / "train", out / "model.pt", *sets)
        model, tokens = out / "model.pt", ("--tokenizer", work / "tokenizer")
        asrtool("tune", model, work / "features/dev", out / "tune", *tokens, *decoding)
        tuning = ("--tuning", out / "tune/tuning.json")
        asrtool("decode", model, work / "features", out / "decode", *tuning, *tokens, *decoding)
        asrtool("score", "all", out / "decode", work / "manifests", out / "score")
    return out


def word_error_rate(out: Path, name: str) -> float:
    """In percent."""
    overall = json.loads((out / "score" / name / "greedy/score.json").read_text(encoding="utf-8"))["overall"]
    return 100 * float(overall["err"]) / float(overall["words"])


def write_noises(folder: Path) -> None:
    """Those that training draws from."""
    folder.mkdir(exist_ok=True)
    for i in range(NUM_NOISES):
        noise = make_noise("noise", int(NOISE_S * RATE_HZ), np.random.default_rng((1, i)))
        soundfile.write(folder / f"{i}.wav", noise, RATE_HZ, subtype="PCM_16")


def write_noisy_sets(work: Path) -> None:
    """For each condition a copy of the test set, with the same reference."""
    manifests = work / "manifests"
    recordings, supervisions = read_manifests(manifests / "hub5")
    segments = list(supervisions)
    for name, (kind, snr_db) in CONDITIONS.items():
        shutil.copytree(manifests / "hub5", manifests / name, dirs_exist_ok=True)
        (work / "audio" / name).mkdir(parents=True, exist_ok=True)
        noisy = []
        for i, recording in enumerate(recordings):
            spoken = [segment for segment in segments if segment.recording_id == recording.id]
            path = work / "audio" / name / f"{recording.id}.wav"
            sides = [noise_of_side(kind, 2 * i + side) for side in range(recording.num_channels)]
            soundfile.write(path, add_noise(recording, spoken, sides, snr_db).T, RATE_HZ, subtype="PCM_16")
            noisy.append(Recording.from_file(path, recording_id=recording.id))
        write_manifests(manifests / name, noisy, segments, [], 0.0, {})  # what else is there stays
    sets = read_sets(manifests)
    (hub5,) = sets.test
    tests = [EvaluationSet(name, name, hub5.labels) for name in CONDITIONS]
    write_sets(manifests, Sets((hub5, *tests), sets.train, sets.dev))


@functools.cache
def noise_of_side(kind: str, number: int) -> np.ndarray:
    """Of a side of the test set: the same at each ratio, so that conditions differ in that alone."""
    return make_noise(kind, int(NOISE_S * RATE_HZ), np.random.default_rng((2, number)))


def add_noise(
    recording: Recording, spoken: Sequence[SupervisionSegment], noises: Sequence[np.ndarray], snr_db: float
) -> np.ndarray:
    """The sides of a call, float32 (2, samples), each with its noise over and over; softer where they are too loud."""
    with audio_backend("LibsndfileBackend"):
        audio: np.ndarray = recording.load_audio()
    for side, noise in enumerate(noises):
        own = [segment for segment in spoken if segment.channel == side]
        spans = [audio[side, round(s.start * RATE_HZ) : round(s.end * RATE_HZ)] for s in own]
        if spans:
            power = float(np.mean(np.concatenate(spans) ** 2))
            audio[side] += np.resize(noise, audio.shape[1]) * np.sqrt(power / 10 ** (snr_db / 10)) / noise.std()
    in_range: np.ndarray = audio / max(1.0, float(np.abs(audio).max()))
    return in_range


def make_noise(kind: str, num_samples: int, random: np.random.Generator) -> np.ndarray:
    """Samples whose root mean square is 0.1."""
    if kind == "babble":
        noise = np.sum([voice(num_samples, random) for _ in range(6)], axis=0)
    else:
        noise = motor(num_samples, random) if random.random() < 0.5 else coloured(num_samples, random)
    scaled: np.ndarray = 0.1 * noise / noise.std()
    return np.clip(scaled, -1, 1)


def coloured(num_samples: int, random: np.random.Generator, slope: float | None = None) -> np.ndarray:
    """Noise whose power falls with frequency: evenly drawn between white and brown."""
    spectrum = np.fft.rfft(random.standard_normal(num_samples))
    falling = np.maximum(np.arange(len(spectrum)), 20 * num_samples / RATE_HZ)
    return np.fft.irfft(spectrum * falling ** -(random.uniform(0, 1) if slope is None else slope), num_samples)


def motor(num_samples: int, random: np.random.Generator) -> np.ndarray:
    """Harmonics of a pitch that wanders, and some noise."""
    t = np.arange(num_samples) / RATE_HZ
    wander = 1 + 0.05 * np.sin(2 * np.pi * random.uniform(0.1, 1.0) * t)
    phase = 2 * np.pi * np.cumsum(random.uniform(40, 160) * wander) / RATE_HZ
    tones = np.sum([random.uniform(0.2, 1) * np.sin(k * phase) / k for k in range(1, 16)], axis=0)
    hiss = coloured(num_samples, random, 0.5)
    return tones / tones.std() + 0.3 * hiss / hiss.std()


def voice(num_samples: int, random: np.random.Generator) -> np.ndarray:
    """A buzz with resonances that change a few times a second, and pauses: speech of which no word can be made out."""
    t = np.arange(num_samples) / RATE_HZ
    pitch = random.uniform(90, 230) * (
        1 + 0.1 * np.sin(2 * np.pi * random.uniform(0.3, 0.8) * t + random.uniform(0, 6))
    )
    phase = 2 * np.pi * np.cumsum(pitch) / RATE_HZ
    syllable = int(RATE_HZ / random.uniform(3, 5))
    num = num_samples // syllable + 2
    out = np.zeros(num_samples)
    for first, low_hz, high_hz in ((1.0, 300, 800), (0.6, 900, 2300)):
        places = np.arange(num) * syllable
        center = np.interp(np.arange(num_samples), places, random.uniform(low_hz, high_hz, num))
        loud = np.interp(np.arange(num_samples), places, random.random(num) * (random.random(num) < 0.8))
        for k in range(1, 24):
            out += first * loud * np.exp(-(((k * pitch - center) / 120) ** 2)) * np.sin(k * phase)
    return out


def settings(*texts: str) -> list[object]:
    """The options of a command."""
    return ["--config", CONFIG, *(word for text in texts for word in ("--set", text))]


def asrtool(*words: object) -> None:
    """A command, quietly."""
    command = [sys.executable, "-c", "from asrtool.cli.main import main; main()", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
