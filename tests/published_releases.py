"""Published corpora of a few seconds in the layout of their publishers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

RATE_HZ = 16000


def sound(path: Path, duration_s: float = 1.0, rate_hz: int = RATE_HZ) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = np.random.default_rng(1).integers(-500, 500, int(duration_s * rate_hz)).astype(np.int16)
    if path.suffix == ".sph":
        soundfile.write(path, samples, rate_hz, format="NIST")
    elif path.suffix == ".mp3" and "MP3" not in soundfile.available_formats():
        pytest.skip("this libsndfile writes no MP3")
    elif path.suffix == ".opus":
        soundfile.write(path, samples, rate_hz, format="OGG", subtype="OPUS")
    else:
        soundfile.write(path, samples, rate_hz)
    return path


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def write_librispeech(root: Path) -> None:
    for name, speaker in (("train-clean-5", 19), ("dev-clean-2", 84), ("test-clean", 61), ("test-other", 367)):
        chapter = root / "LibriSpeech" / name / f"{speaker}" / "198"
        lines = []
        for number, words in enumerate(("NORTHANGER ABBEY", "THIS LITTLE WORK WASN'T FINISHED")):
            sound(chapter / f"{speaker}-198-{number:04d}.flac")
            lines.append(f"{speaker}-198-{number:04d} {words}\n")
        text(chapter / f"{speaker}-198.trans.txt", "".join(lines))


def write_mls(root: Path, suffix: str = ".flac") -> None:
    folder = root / ("mls_english" if suffix == ".flac" else "mls_english_opus")
    text(folder / "metainfo.txt", " SPEAKER | GENDER\n 4800 | M | train\n 12 | F | dev\n 13 | F | test\n")
    text(root / "mls_polish" / "metainfo.txt", "another language that is not read")
    for name, speaker in (("train", 4800), ("dev", 12), ("test", 13)):
        id_ = f"{speaker}_10003_000000"
        sound(folder / name / "audio" / f"{speaker}" / "10003" / f"{id_}{suffix}")
        text(folder / name / "transcripts.txt", f"{id_}\toh my dear you must see him\n")


FIRST_COLUMNS = ("client_id", "path", "sentence", "up_votes", "down_votes", "age", "gender")
# Columns of Common Voice by the release that added them.
HEADINGS = {
    1: (*FIRST_COLUMNS, "accent"),
    5: (*FIRST_COLUMNS, "accent", "locale", "segment"),
    8: (*FIRST_COLUMNS, "accents", "locale", "segment"),
    13: (*FIRST_COLUMNS, "accents", "variant", "locale", "segment"),
    17: ("client_id", "path", "sentence_id", "sentence", "sentence_domain", "up_votes", "down_votes", "age", "gender",
         "accents", "variant", "locale", "segment"),
}  # fmt: skip


def write_commonvoice(root: Path, release: int = 13) -> None:
    folder = root / f"cv-corpus-{release}.0" / "en"
    for name in ("train", "dev", "test"):
        clip = f"common_voice_en_{name}.mp3"
        sound(folder / "clips" / clip, 1.0, 48000)
        path = clip if release > 1 else Path(clip).stem
        known = {"client_id": f"speaker{name}", "path": path, "sentence": 'She said, "It\u2019s fine."'}
        row = (known.get(column, "") for column in HEADINGS[release])
        text(folder / f"{name}.tsv", "\t".join(HEADINGS[release]) + "\n" + "\t".join(row) + "\n")


def write_peoples_speech(root: Path) -> None:
    for place, session in (("train/clean", "a talk"), ("validation/validation", "council"), ("test/test", "radio")):
        names = [f"{session.replace(' ', '')}_{number}.flac" for number in range(2)]
        for name in names:
            sound(root / place / "x" / name)
        data = {
            "duration_ms": [1000, 1000],
            "label": ["yes we can", "room 42"],
            "name": [f"x/{name}" for name in names],
        }
        text(root / f"{place}.json", json.dumps({"identifier": session, "training_data": data}) + "\n")


def write_tedlium(root: Path) -> None:
    for name in ("train", "dev", "test"):
        folder = root / "TEDLIUM_release-3" / "legacy" / name
        sound(folder / "sph" / f"Talk_{name}.sph", 4.0)
        turns = (
            "{0} 1 {0} 0.00 1.50 <o,f0,male> they 're <unk> {{NOISE}} fine\n"
            "{0} 1 {0} 1.5 2.0 <o,f0,male> ignore_time_segment_in_scoring\n"
        )
        text(folder / "stm" / f"Talk_{name}.stm", turns.format(f"Talk_{name}"))
