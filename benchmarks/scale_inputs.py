"""What further rows of benchmarks/scale.py read, each made once in a folder beside releases and work."""

from __future__ import annotations

import json
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import numpy as np
import score
from scale_releases import RATE_HZ
from scale_sizes import (
    INDEX_UTTERANCES,
    NUM_CALLS,
    NUM_CUT,
    NUM_LEARNERS,
    NUM_OWN,
    NUM_SHORTENED,
    NUM_STEPS,
    SETS,
    SHORTENED,
)

from asrtool.data.manifests.manifest import read_sorted, write_sorted
from asrtool.data.manifests.sets import EvaluationSet, Sets, write_sets
from asrtool.data.manifests.validator import Entry
from asrtool.utils.sphere import write_sphere

CALL_S, CALL_NAME = 600.0, "fe_03_"
OWN_RATE_HZ, OWN_S = 16_000, 4.5


def part(num: int, scale: float, least: int = 2) -> int:
    return max(least, round(num * scale))


def make_index(folder: Path, scale: float) -> None:
    from large_set import write_set

    write_set(folder, int(scale * INDEX_UTTERANCES))


def make_shortened(folder: Path, scale: float) -> None:
    for number in range(part(NUM_SHORTENED, scale)):
        shutil.copyfile(SHORTENED, folder / f"{number:04}.sph")


def make_calls(folder: Path, scale: float) -> None:
    """Manifests of the first calls of Fisher in the training set, all of which are one call of noise."""
    noise = 500 * np.random.default_rng(1).standard_normal((int(CALL_S * RATE_HZ), 2))
    (folder / "manifests").mkdir(parents=True)
    write_sphere(folder / "noise.sph", noise.astype(np.int16), RATE_HZ)
    place = folder.parent / "calls" / "noise.sph"  # where the folder will be
    for name, num in (("train", part(NUM_CALLS, scale)), ("dev", 1), ("test", 1), ("long", part(NUM_CUT, scale))):
        lines = read_calls(folder.parent / "work" / "manifests" / "train", num)
        recordings = {entry["recording_id"]: _noise(entry["recording_id"], place) for entry, _ in lines}
        write_sorted(folder / "manifests" / name, recordings.values(), lines, [], 0.0, {})
    write_sets(folder / "manifests", Sets((EvaluationSet("test"),)))


def read_calls(manifests: Path, num: int) -> list[tuple[Entry, str]]:
    """The utterances of so many calls, as the training set has them first."""
    recordings, lines = read_sorted(manifests)
    chosen = {entry["id"] for entry in recordings[:num]}
    assert all(name.startswith(CALL_NAME) for name in chosen)
    return list(takewhile(lambda item: item[0]["recording_id"] in chosen, lines))


def _noise(name: str, place: Path) -> Entry:
    source = {"type": "file", "channels": [0, 1], "source": str(place)}
    sizes = {"sampling_rate": RATE_HZ, "num_samples": int(CALL_S * RATE_HZ), "duration": CALL_S}
    return {"id": name, "sources": [source], **sizes, "channel_ids": [0, 1]}


def make_own(folder: Path, scale: float) -> None:
    """A hundred hours as WAV files of one utterance each, a header and a hole, with the table of `recipes/own`."""
    texts = (folder.parent / "work" / "manifests" / "dev" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    header = _wav_header(int(OWN_S * OWN_RATE_HZ))
    for name, num in (("own_train", part(NUM_OWN, scale, 60)), ("own_test", 60)):
        lines = []
        for number in range(num):
            path = folder / name / f"s{number % 60:02}" / f"{number:06}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(header)
                file.truncate(len(header) + 2 * int(OWN_S * OWN_RATE_HZ))
            line = {"audio_filepath": str(path.relative_to(folder / name)), "duration": OWN_S}
            lines.append(json.dumps({**line, "text": texts[number % len(texts)], "speaker": path.parent.name}) + "\n")
        (folder / name / "manifest.json").write_text("".join(lines), encoding="utf-8")


def _wav_header(num_samples: int) -> bytes:
    """Of 16-bit samples in one channel."""
    size, rate_hz = 2 * num_samples, OWN_RATE_HZ
    fields = b"RIFF", size + 36, b"WAVEfmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16, b"data", size
    return struct.pack("<4sI8sIHHIIHH4sI", *fields)


def make_decoded(folder: Path, scale: float) -> None:
    """A run that a report can be written of: references and hypotheses of whole sets, and records of learners."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "report"))
    from report_work import HUB5, usual, write_json, write_set, write_work
    from run_files import write_training

    write_work(folder, said=usual(), audio=False)
    shutil.rmtree(folder / "score")
    write_training(folder / "train", NUM_LEARNERS, part(NUM_STEPS, scale, 100))
    write_sets(folder / "manifests", Sets((HUB5, EvaluationSet("rt03", "RT-03"))))
    decoding = json.loads((folder / "decode" / "decode.json").read_text(encoding="utf-8"))
    write_json(folder / "decode" / "decode.json", {**decoding, "sets": dict.fromkeys(SETS, decoding["sets"]["dev"])})
    rng = random.Random(1)
    words = score.draw_words(rng)
    for name, num in SETS.items():
        write_set(folder, name, list(_said(words, part(num, scale, 40), rng)), audio=False)


def _said(words: list[str], num: int, rng: random.Random) -> Iterator[object]:
    """Segments of 1 to 20 words of 80 sides, with about 13 % errors."""
    from report_work import Said

    for number in range(num):
        begin = rng.randrange(len(words) - 20)
        text = words[begin : begin + rng.randint(1, 20)]
        side = 80 * number // num
        label = "EN" if side < 40 else "SW"
        heard = {method: " ".join(score.misheard(text, rng, words)) or "uh" for method in ("greedy", "graph")}
        name, channel = f"{label.lower()}_{4000 + side // 2}", "AB"[side % 2]
        yield Said(name, channel, f"{name}-{channel}", label, " ".join(text), heard)


MAKERS = {
    "index": make_index,
    "shortened": make_shortened,
    "calls": make_calls,
    "own": make_own,
    "decoded": make_decoded,
}
