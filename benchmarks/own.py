"""Word error rates of recipes/own with its defaults, on small sets that a user might bring.

    .venv/bin/python benchmarks/own.py WORK [--sets yes_no,digits] [--seeds 1,2] [--set KEY=VALUE ...]

`yes_no`: 60 utterances of eight words, each of the two, by one speaker; half of them are the test set. `digits`: 3,000
single digits of six speakers, two of whom are the test set. Both are made by espeak-ng, with noise. `an4-1` to `an4-3`:
real digits, cut out of the recordings of `--an4`; `--words` are words.ctm of `asrtool align`, one a set of AN4. Eight
speakers are the training set, 26 others the test set, the same in all three. What is finished in WORK is not run again;
with other settings, name another WORK.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import scipy.signal
import soundfile

from asrtool.local.mini.espeak import SAMPLING_RATE_HZ, Espeak, Voice

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPEAKERS = (
    Voice("en-US", "m1", "M", 45, 160),
    Voice("en-US", "f2", "F", 60, 170),
    Voice("en", "m4", "M", 38, 150),
    Voice("en-US", "f4", "F", 55, 185),
    Voice("en", "m7", "M", 50, 165),
    Voice("en-US", "f3", "F", 65, 175),
)
HELD_OUT = 2  # of SPEAKERS, the last ones
AN4_FOLDS, AN4_TRAIN, AN4_TEST = 3, 8, 26  # folds, and speakers
MARGIN_S = 0.1  # around a word that is cut out, but to the middle between it and the next at most
SHORTEST_S = 0.15  # of a cut
Said = tuple[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--an4", type=Path)
    parser.add_argument("--words", type=Path, nargs="+", default=[])
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    options = parser.parse_args()
    sets = SETS | {f"an4-{i + 1}": lambda _, i=i: an4(options.an4, options.words, i) for i in range(AN4_FOLDS)}
    print("| set | seed | greedy / beam / graph WER % | s of CPU |\n|---|---|---|---|")
    for name in options.sets.split(","):
        data = options.work / "data" / name
        if not (data / "done").exists():
            make(data, sets[name])
        for seed in options.seeds.split(","):
            rates, seconds = run(data, options.work / f"{name}-{seed}", [*options.settings, f"train.seed={seed}"])
            print(f"| {name} | {seed} | {' / '.join(f'{rate:.1f}' for rate in rates)} | {seconds:.0f} |", flush=True)


def make(data: Path, draw: Callable[[np.random.Generator], Iterable[tuple[str, str, Said]]]) -> None:
    """A folder for each part, of recordings with their texts, and in it one for each speaker."""
    rng = np.random.default_rng(0)
    for number, (part, speaker, (text, samples_S)) in enumerate(draw(rng)):
        folder = data / part / speaker
        folder.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{number:04d}.wav", samples_S, SAMPLING_RATE_HZ, "PCM_16")
        (folder / f"{number:04d}.txt").write_text(text + "\n", encoding="utf-8")
    (data / "done").touch()


def yes_no(rng: np.random.Generator) -> Iterable[tuple[str, str, Said]]:
    """Of words with pauses between, as drawn."""
    with Espeak(seed=1) as espeak:
        for number in range(60):
            words = rng.choice(("yes", "no"), 8)
            said = [espeak.speak([word], _someday(SPEAKERS[0], rng))[0] for word in words]
            pauses = [np.zeros(int(rng.uniform(0.05, 0.4) * SAMPLING_RATE_HZ)) for _ in said]
            joined = np.concatenate([part for both in zip(pauses, said, strict=True) for part in both])
            yield "test" if number % 2 else "train", "one", (" ".join(words), _recorded(joined, rng))


def digits(rng: np.random.Generator) -> Iterable[tuple[str, str, Said]]:
    """Each speaker says each digit fifty times."""
    with Espeak(seed=1) as espeak:
        for number, speaker in enumerate(SPEAKERS):
            part = "train" if number < len(SPEAKERS) - HELD_OUT else "test"
            for digit in DIGITS * 50:
                samples_S = espeak.speak([digit], _someday(speaker, rng))[0]
                yield part, f"s{number}", (digit, _recorded(samples_S, rng))


def an4(corpus: Path, words: Sequence[Path], fold: int) -> Iterable[tuple[str, str, Said]]:
    """Digits of AN4, at the times of words.ctm."""
    files = {path.stem: path for path in (corpus / "wav").rglob("*.flac")}
    said = defaultdict(list)
    for line in [line for path in words for line in path.read_text(encoding="utf-8").splitlines()]:
        recording, _, start_s, duration_s, word, _ = line.split()
        said[recording].append((float(start_s), float(start_s) + float(duration_s), word))
    speakers = sorted({files[recording].parent.name for recording in said})
    random.Random(7).shuffle(speakers)
    part_of = dict.fromkeys(speakers[-AN4_TEST:], "test")
    part_of |= dict.fromkeys(speakers[AN4_TRAIN * fold : AN4_TRAIN * (fold + 1)], "train")
    for recording in sorted(said):
        speaker = files[recording].parent.name
        if speaker in part_of:
            for digit in _cut(files[recording], sorted(said[recording])):
                yield part_of[speaker], speaker, digit


def _cut(path: Path, words: Sequence[tuple[float, float, str]]) -> Iterable[Said]:
    """The digits among `words`, each with its start and end, of a recording of twice the rate."""
    samples_S, rate_hz = soundfile.read(path)
    starts, ends = [start_s for start_s, _, _ in words] + [np.inf], [-np.inf] + [end_s for _, end_s, _ in words]
    for i, (start_s, end_s, word) in enumerate(words):
        begin_s = max(0.0, start_s - MARGIN_S, (ends[i] + start_s) / 2)
        stop_s = min(end_s + MARGIN_S, (end_s + starts[i + 1]) / 2)
        cut_S = samples_S[int(begin_s * rate_hz) : int(stop_s * rate_hz)]
        if word in (*DIGITS, "oh") and len(cut_S) >= SHORTEST_S * rate_hz:
            yield word, scipy.signal.resample_poly(cut_S, 1, rate_hz // SAMPLING_RATE_HZ)


SETS = {"yes_no": yes_no, "digits": digits}


def run(data: Path, work: Path, settings: list[str]) -> tuple[list[float], float]:
    """Error rates of the searches, and the CPU seconds that the run took where it was not finished."""
    began = sum(_children_s())
    paths = [f"paths.own_train={data / 'train'}", f"paths.own_test={data / 'test'}"]
    keys = [part for setting in (*paths, *settings) for part in ("--set", setting)]
    asrtool = str(Path(sys.executable).parent / "asrtool")
    command = [asrtool, "run", "--recipe", "own", "--work", str(work), *keys]
    work.mkdir(parents=True, exist_ok=True)
    with open(work.parent / f"{work.name}.log", "a", encoding="utf-8") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    seconds = sum(_children_s()) - began
    return [_rate(work / "score" / "own" / method) for method in ("greedy", "beam", "graph")], seconds


def _someday(voice: Voice, rng: np.random.Generator) -> Voice:
    """The same person, a little higher or faster."""
    return Voice(
        voice.accent,
        voice.variant,
        voice.sex,
        voice.pitch + int(rng.integers(-8, 9)),
        voice.rate_wpm + int(rng.integers(-25, 26)),
    )


def _recorded(samples_S: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """With some silence around, at some level, in noise of 10 to 25 dB less."""
    margins = [np.zeros(int(rng.uniform(0.05, 0.3) * SAMPLING_RATE_HZ)) for _ in range(2)]
    speech = np.concatenate([margins[0], samples_S, margins[1]])
    level = np.sqrt((samples_S**2).mean())
    noise = rng.standard_normal(len(speech)) * level * 10 ** (-rng.uniform(10, 25) / 20)
    both = (speech + noise) * 10 ** (rng.uniform(-20, 0) / 20)
    return np.clip(both, -1, 1)


def _rate(score: Path) -> float:
    """In percent."""
    counts = json.loads((score / "score.json").read_text(encoding="utf-8"))["overall"]
    return 100 * float(counts["err"]) / float(counts["words"])


def _children_s() -> tuple[float, float]:
    times = os.times()
    return times.children_user, times.children_system


if __name__ == "__main__":
    main()
