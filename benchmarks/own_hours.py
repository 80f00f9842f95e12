"""A hundred hours of one's own: what each stage before training takes, and whether training begins and resumes.

    .venv/bin/python benchmarks/own_hours.py WORK [--hours 100] [--train-s 300] [--set KEY=VALUE ...]

Sentences of the docstrings of installed packages, with some ten thousands of words, by 60 voices of espeak-ng with
noise, 16 kHz FLAC and a manifest as NeMo writes them; three voices are the test set. Training runs for --train-s, is
stopped by SIGTERM, and runs for as long again: with all of the data it takes days on two cores. Recordings that are in
WORK are not made again, nor are stages that are done.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

from asrtool.local.mini.espeak import Espeak, Voice

RATE_HZ = 16000
ACCENTS = ("en-US", "en-GB-x-rp", "en-GB-scotland", "en-029", "en")
VARIANTS = ("f1", "f2", "f3", "f4", "f5", "m1", "m2", "m3", "m4", "m5", "m6", "m7")
VOICES, HELD_OUT = 60, 3
AT_ONCE = 400  # sentences of one voice, one behind the other
STAGES = ("corpus", "prepare", "check", "features", "tokenizer", "lang", "lm", "graph")
LARGEST_FILE = 400_000  # bytes of a module that is read
SENTENCE = re.compile(r"[A-Za-z' ,.;:!?-]+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--hours", type=float, default=100)
    parser.add_argument("--train-s", type=float, default=300)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    options = parser.parse_args()
    data = options.work / "data"
    if not (data / "done").exists():
        make(data, options.hours)
    paths = [f"paths.own_{part}={data / part}.json" for part in ("train", "test")]
    keys = [word for setting in (*paths, *options.settings) for word in ("--set", setting)]
    command = [str(Path(sys.executable).parent / "asrtool"), "run", "--recipe", "own", "--work"]
    command += [str(options.work / "exp"), *keys]
    print("| stage | wall s | CPU s | peak GiB of a process |\n|---|---|---|---|", flush=True)
    for stage in STAGES:
        begin = time.monotonic()
        cpu_s, peak_gib = _usage([*command, "--stage", stage, "--stop-stage", stage], options.work / "log", None)
        print(f"| {stage} | {time.monotonic() - begin:.0f} | {cpu_s:.0f} | {peak_gib:.2f} |", flush=True)
    for _ in range(2):
        cpu_s, peak_gib = _usage([*command, "--stop-stage", "train"], options.work / "log", options.train_s)
        print(f"| train, stopped | {options.train_s:.0f} | {cpu_s:.0f} | {peak_gib:.2f} |", flush=True)


def _usage(command: list[str], log: Path, limit_s: float | None) -> tuple[float, float]:
    """CPU seconds of a command and its children, and the most memory of one of them; it is stopped at the limit."""
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        if limit_s:
            time.sleep(limit_s)
            process.send_signal(signal.SIGTERM)
        _, status, usage = os.wait4(process.pid, 0)
    if status and not limit_s:
        raise SystemExit(f"{' '.join(command)}: failed, see {log}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


def make(data: Path, hours: float) -> None:
    """Recordings of that many hours in all, and the manifests of both sets."""
    said, turn = sentences(), 0
    voices = draw_voices()
    data.mkdir(parents=True, exist_ok=True)
    made_s = 0.0
    with open(data / "train.json", "w", encoding="utf-8") as train, open(data / "test.json", "w") as test:
        while made_s < hours * 3600:
            of_voice = turn % VOICES
            texts = [said[(turn * AT_ONCE + number) % len(said)] for number in range(AT_ONCE)]
            folder = data / "audio" / f"s{of_voice:02}"
            folder.mkdir(parents=True, exist_ok=True)
            manifest = test if of_voice >= VOICES - HELD_OUT else train
            for number, (text, samples_S) in enumerate(read_aloud(texts, voices[of_voice], turn)):
                path = folder / f"{turn:04}-{number:03}.flac"
                soundfile.write(path, samples_S, RATE_HZ)
                line = {
                    "audio_filepath": str(path.relative_to(data)),
                    "duration": len(samples_S) / RATE_HZ,
                    "text": text,
                }
                manifest.write(json.dumps({**line, "speaker": folder.name}) + "\n")
                made_s += len(samples_S) / RATE_HZ
            turn += 1
    (data / "done").touch()


def sentences() -> list[str]:
    """Of docstrings, 5 to 30 words each, in an order of their own."""
    roots = (Path(np.__file__).parents[1], Path(ast.__file__).parent)
    found = {sentence for root in roots for path in sorted(root.rglob("*.py")) for sentence in _sentences(path)}
    said = sorted(found)
    random.Random(7).shuffle(said)
    return said


def _sentences(path: Path) -> Iterator[str]:
    if path.stat().st_size > LARGEST_FILE:
        return
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):  # of another Python, or a test of one
        return
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    for docstring in (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)):
        for piece in re.split(r"(?<=[.!?])\s+|\n\s*\n", docstring or ""):
            sentence = " ".join(piece.split())
            if SENTENCE.fullmatch(sentence) and 5 <= len(sentence.split()) <= 30:
                yield sentence


def draw_voices() -> list[Voice]:
    random_ = random.Random(7)
    return [
        Voice(random_.choice(ACCENTS), variant, variant[0].upper(), random_.randint(25, 75), random_.randint(130, 190))
        for variant in VARIANTS * (VOICES // len(VARIANTS))
    ]


def read_aloud(texts: list[str], voice: Voice, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each text with its samples, a little noise under it."""
    rng = np.random.default_rng(seed)
    margin_S = np.zeros(int(0.15 * RATE_HZ))
    with Espeak(seed, RATE_HZ) as espeak:
        for text in texts:
            samples_S = espeak.speak(text.split(), voice)[0]
            speech_S = samples_S * rng.uniform(0.2, 0.9) / np.abs(samples_S).max()
            with_margins_S = np.concatenate([margin_S, speech_S, margin_S])
            yield text, (with_margins_S + 1e-3 * rng.standard_normal(len(with_margins_S))).astype(np.float32)


if __name__ == "__main__":
    main()
