"""A person's own data through the whole recipe: a folder of wav and txt to train on, a Kaldi data directory to test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from warm import run_asrtool

ROOT = Path(__file__).resolve().parents[2]
RATE_HZ = 8000
SMALL = [
    "features.fbank.num_mel_bins=40", "features.speeds=1.0",
    "model.lstm.num_layers=1", "model.lstm.hidden_size=16", "train.num_epochs=1",
    "train.batch_s=40", "data.dev_minutes=0.1", "decode.methods=greedy,graph", "decode.graph.lm_weights=0.5",
    "features.num_jobs=1",
]  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]


def utterances(mini_corpus: Path, side: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Speaker, plain text and samples of every spoken segment on a side of the mini corpus."""
    for transcript in sorted(mini_corpus.rglob(f"sw*{side}-ms98-a-trans.text")):
        call = transcript.name[2:6]
        samples, _ = soundfile.read(mini_corpus / f"LDC97S62/swb1_d1/data/sw0{call}.sph", dtype="int16")
        for line in transcript.read_text().splitlines():
            _, start, end, text = line.split(maxsplit=3)
            if re.fullmatch(r"[a-z' ]+", text):
                first, last = (int(float(time) * RATE_HZ) for time in (start, end))
                yield f"{call}{side}", text, samples[first:last, "AB".index(side)]


def write_folder(folder: Path, mini_corpus: Path) -> None:
    for number, (speaker, text, samples) in enumerate(utterances(mini_corpus, "A")):
        (folder / speaker).mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / speaker / f"utt{number}.wav", samples, RATE_HZ)
        (folder / speaker / f"utt{number}.txt").write_text(text.capitalize() + ".\n")


def write_kaldi(folder: Path, mini_corpus: Path) -> None:
    folder.mkdir()
    lines: dict[str, list[str]] = {"wav.scp": [], "text": [], "utt2spk": []}
    for number, (speaker, text, samples) in enumerate(utterances(mini_corpus, "B")):
        utterance = f"{speaker}-{number:04d}"
        soundfile.write(folder / f"{utterance}.wav", samples, RATE_HZ)
        lines["wav.scp"].append(f"{utterance} {folder / utterance}.wav")
        lines["text"].append(f"{utterance} {text}")
        lines["utt2spk"].append(f"{utterance} {speaker}")
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n")


def test_own_speech_gets_results_like_any_corpus(tmp_path: Path, mini_corpus: Path) -> None:
    write_folder(tmp_path / "train", mini_corpus)
    write_kaldi(tmp_path / "test", mini_corpus)
    settings = [f"paths.own_train={tmp_path / 'train'}", f"paths.own_test={tmp_path / 'test'}", *SMALL]
    overrides = [word for setting in settings for word in ("--set", setting)]
    run_asrtool(["run", "--recipe", "recipes/own", "--work", str(tmp_path / "work"), *overrides], ROOT)
    assert "| graph | 0.5 |" in (tmp_path / "work" / "RESULTS.md").read_text(encoding="utf-8")
