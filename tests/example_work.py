"""A folder in which the examples of the help can be run: data, releases, a finished run, a bundle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import soundfile
from lhotse import CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from published_releases import (
    write_commonvoice,
    write_librispeech,
    write_mls,
    write_peoples_speech,
    write_tedlium,
)
from small_releases import write_fisher, write_hub5, write_hub5_01, write_rt03, write_sound, write_swbd
from warm import run_asrtool

from asrtool.local.corpus import open_corpus
from asrtool.settings import registry

RATE_HZ = 8000
TEXTS = [
    "so what did you do",
    "I went to the sea",
    "the sea was fine",
    "what did you see",
    "yeah I see the sea",
    "so do I",
]
SETTINGS = """
[data]
dev_minutes = 0.1
[features]
num_jobs = 1
speeds = [1.0]
cmvn = "global"
[features.fbank]
num_mel_bins = 40
[model.lstm]
num_layers = 1
hidden_size = 16
bidirectional = false
conv_channels = 0
[train]
num_epochs = 1
batch_s = 20.0
[average]
num = 1
[decode]
methods = ["greedy", "graph"]
num_jobs = 1
[decode.graph]
lm_weights = [0.5]
[nnlm]
num_epochs = 1
[nnlm.word-lstm]
num_layers = 1
hidden_size = 8
"""
TRN = "so what (a-1)\nthe sea (a-2)\n"
STM = ';; LABEL "O" "Overall" "Overall"\n'
STM += "a 1 ann 0 2 <O> so what\na 1 ann 2 4 <O> the sea\n"
CTM = "a 1 0.5 0.3 so\na 1 0.9 0.3 what\na 1 2.5 0.3 sea\n"


def make_example_work(folder: Path, run_line: list[str]) -> None:
    """Fill `folder`, in which `run_line`, the words of an `asrtool run`, writes exp."""
    write_own(folder / "data")
    write_releases(folder / "corpus")
    write_files(folder)
    run_asrtool(run_line, folder)
    for name in ("small", "large"):
        shutil.copytree(folder / "exp", folder / "exp" / name, ignore=shutil.ignore_patterns("small"))
    run_asrtool(["export", "exp", "swbd.asrtool"], folder)
    shutil.copy(folder / "swbd.asrtool", folder / "live.asrtool")
    (folder / "own").mkdir()
    (folder / "own" / "features").symlink_to(folder / "exp" / "features")
    for name in ("aligner", "cutter"):
        shutil.copytree(folder / "exp" / "average", folder / "exp" / name)
    shutil.copytree(folder / "exp" / "manifests" / "dev", folder / "exp" / "manifests" / "long")


def write_own(data: Path) -> None:
    """Write the same utterances in each layout."""
    random = np.random.default_rng(1)
    recordings, segments, lines = [], [], []
    tables: dict[str, list[str]] = {"wav.scp": [], "text": [], "utt2spk": []}
    for number in range(18):
        speaker, name, text = f"s{number % 3}", f"u{number:02d}", TEXTS[number % len(TEXTS)]
        wav = data / "train" / speaker / f"{name}.wav"
        wav.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(wav, 0.1 * random.normal(size=RATE_HZ * 3), RATE_HZ)
        wav.with_suffix(".txt").write_text(f"{text}\n")
        recordings.append(Recording.from_file(wav, name))
        segments.append(SupervisionSegment(name, name, 0.0, 3.0, 0, text, speaker=speaker))
        lines.append(json.dumps({"audio_filepath": str(wav), "duration": 3.0, "text": text, "speaker": speaker}) + "\n")
        if number < 6:
            for table, value in (("wav.scp", str(wav)), ("text", text), ("utt2spk", speaker)):
                tables[table].append(f"{name} {value}\n")
    (data / "train.jsonl").write_text("".join(lines))
    for place in ("test", "eval"):
        (data / place).mkdir()
        for table, rows in tables.items():
            (data / place / table).write_text("".join(rows))
    (data / "lhotse").mkdir()
    RecordingSet.from_recordings(recordings).to_file(data / "lhotse" / "recordings.jsonl.gz")
    SupervisionSet.from_segments(segments).to_file(data / "lhotse" / "supervisions.jsonl.gz")
    cuts = CutSet.from_manifests(RecordingSet.from_recordings(recordings), SupervisionSet.from_segments(segments))
    (data / "shar").mkdir()
    cuts.to_shar(data / "shar", fields={"recording": "wav"}, shard_size=9, include_cuts=True)


def write_releases(corpus: Path) -> None:
    """Write the releases of each corpus as `asrtool corpus` links them; `own` are links to the data beside them."""
    site = corpus.with_name("site")
    for write in (write_swbd, write_fisher, write_hub5, write_rt03):
        write(site)
    write_hub5_01(site / "hub5_01")
    shutil.copytree(site / "hub5_01" / "LDC2002S13", site / "LDC2002S13")
    published = (write_librispeech, write_mls, write_commonvoice, write_peoples_speech, write_tedlium)
    for write_one in published:
        write_one(site / write_one.__name__.removeprefix("write_"))
    for path in site.rglob("*.json"):
        path.write_text(path.read_text().replace("room 42", "room forty two"))
    write_an4(site / "an4")
    corpus.mkdir()
    found = {path.name.lower(): path for path in site.iterdir()}
    for name in registry.names("corpus"):
        for release in open_corpus(name).releases:
            place = found.get(release.key) or site.parent / "data" / release.key.removeprefix("own_")
            if place.is_dir() and not (corpus / release.name).exists():
                (corpus / release.name).symlink_to(place)


def write_an4(root: Path) -> None:
    """Write two utterances to train on, and one to test."""
    for name, places in (
        ("train", ["an4_clstk/fash/an1-fash-b", "an4_clstk/fash/an2-fash-b"]),
        ("test", ["an4test_clstk/mxyz/cen8-mxyz-b"]),
    ):
        (root / "etc").mkdir(parents=True, exist_ok=True)
        (root / "etc" / f"an4_{name}.fileids").write_text("".join(f"{place}\n" for place in places))
        lines = (f"<s> YES A </s> ({place.rpartition('/')[2]})\n" for place in places)
        (root / "etc" / f"an4_{name}.transcription").write_text("".join(lines))
        for place in places:
            write_sound(root / "wav" / f"{place}.sph", 1.0, 1, 16000)


def write_files(folder: Path) -> None:
    """Files that examples name beside the data."""
    (folder / "mine.toml").write_text(SETTINGS)
    sentences = "".join(f"{text.lower()}\n" for text in TEXTS * 3)
    for name in ("swbd.txt", "fisher.txt", "dev.txt", "more.txt"):
        (folder / name).write_text(sentences)
    (folder / "ref.trn").write_text(TRN)
    (folder / "hyp.trn").write_text(TRN.replace("the ", ""))
    (folder / "ref.stm").write_text(STM)
    (folder / "hyp.ctm").write_text(CTM)
    (folder / "en.glm").write_text('* name "x"\nOK => O. K. / [ ] __ [ ]\n')
    (folder / "calls").mkdir()
    (folder / "call.txt").write_text((folder / "data" / "train" / "s0" / "u00.txt").read_text())
    call = folder / "data" / "train" / "s0" / "u00.wav"
    for place in ("call.wav", "calls/a.wav", "calls/b.wav"):
        shutil.copy(call, folder / place)
