"""Measure word error rates in two domains by data.mix.

    benchmarks/bench.py mix [--mixes MIX;MIX...] [--seeds 1,2]

The telephone domain is the mini corpus. Wide-band speech, a quarter as much, is synthesised in the layout of
LibriSpeech at 16 kHz: British accents, no line, and read sentences that are longer than turns of a call. The model
reads both at 16 kHz. Finished trainings in WORK are kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import soundfile
from trainings import asrtool, options_of

from asrtool.local.mini.espeak import Espeak
from asrtool.local.mini.grammar import draw_sentence
from asrtool.local.mini.plan import CALLHOME, TRAIN, Pool, draw_voices

RATE_HZ = 16000
CONFIG = Path(__file__).parents[1] / "recipes/swbd/conf/mini.toml"
MIXES = "utterances;hours;temperature:2;swbd:1,librispeech:1"
TRAIN_HOURS = 1.25  # of the mini corpus, of which Switchboard is 60 %
WIDE_MINUTES = {"train-clean": 11.0, "test-clean": 5.0}
SENTENCES = (1, 3)  # in an utterance, fewer than the second number
UTTERANCES = 10  # of a speaker
ACCENTS = ("en-GB-x-rp", "en-GB-scotland", "en-GB-x-gbclan")
SETTINGS = (
    "data.train=swbd,librispeech",
    "data.test=hub5,librispeech",
    f"features.sampling_rate_hz={RATE_HZ}",
    "features.resample=true",
    "features.speeds=1.0",
    "features.shard_cuts=50",
    "train.num_epochs=6",
    "model.lstm.hidden_size=128",
    "train.batch_s=30",
    "decode.methods=greedy",
)
DOMAINS = {"telephone": ("swbd", "hub5"), "wide-band": ("librispeech", "librispeech")}  # label of dev, test set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--mixes", default=MIXES, help="values of data.mix, with ; between")
    parser.add_argument("--seeds", default="1")
    options = parser.parse_args()
    work = options.work.resolve()
    prepare(work)
    for seed in options.seeds.split(","):
        for mix in options.mixes.split(";"):
            out = train(work, mix, int(seed))
            rates = [
                f"{name} dev {word_error_rate(out, 'dev', label):.1f} %, test {word_error_rate(out, test):.1f} %"
                for name, (label, test) in DOMAINS.items()
            ]
            print(f"seed {seed}, {mix}: {'; '.join([*rates, portions(out)])}", flush=True)


def prepare(work: Path) -> None:
    """Make both corpora and run the stages before training."""
    if not (work / "mini").exists():
        asrtool(
            "corpus",
            work / "mini",
            *options_of([f"mini.train_hours={TRAIN_HOURS}", "data.train=swbd", "data.test=hub5"]),
        )
    if not (work / "LibriSpeech").exists():
        shutil.rmtree(work / "wide", ignore_errors=True)
        for seed, (name, minutes) in enumerate(WIDE_MINUTES.items()):
            write_part(work / "wide" / name, 60 * minutes, CALLHOME if name.startswith("test") else TRAIN, seed)
        (work / "wide").rename(work / "LibriSpeech")
    asrtool("run", "--work", work / "base", "--stop-stage", "tokenizer", *settings(work))


def train(work: Path, mix: str, seed: int) -> Path:
    """Train, decode and score; return the work folder."""
    out = work / f"{mix.replace(':', '-').replace(',', '-')}-{seed}"
    if not (out / "score").exists():
        base = work / "base"
        sets = settings(work, f"data.mix={mix}", f"train.seed={seed}")
        asrtool("train", base / "features", base / "tokenizer", out / "train", *sets)
        asrtool("average", out / "train", out / "model.pt", *sets)
        tokens = ("--tokenizer", base / "tokenizer", *sets)
        asrtool("tune", out / "model.pt", base / "features/dev", out / "tune", *tokens)
        tuning = ("--tuning", out / "tune/tuning.json")
        asrtool("decode", out / "model.pt", base / "features", out / "decode", *tuning, *tokens)
        asrtool("score", "all", out / "decode", base / "manifests", out / "score")
    return out


def word_error_rate(out: Path, name: str, label: str = "") -> float:
    """Return the rate in percent on a set, or on the part with this label."""
    score = json.loads((out / "score" / name / "greedy/score.json").read_text(encoding="utf-8"))
    counts = score["labels"][label] if label else score["overall"]
    return 100 * float(counts["err"]) / float(counts["words"])


def portions(out: Path) -> str:
    """Describe the part of each corpus in the first epoch."""
    lines = map(json.loads, (out / "train/metrics.jsonl").read_text(encoding="utf-8").splitlines())
    found = {line["kind"]: line for line in lines if line["kind"].startswith("corpus/") and line["epoch"] == 1}
    return ", ".join(
        f"{kind.removeprefix('corpus/')} {line['utterances']} utterances ({100 * line['fraction']:.0f} %),"
        f" {60 * line['hours']:.1f} min"
        for kind, line in found.items()
    )


def write_part(folder: Path, speech_s: float, pool: Pool, seed: int) -> None:
    """Write a part of LibriSpeech with `speech_s` of speech, a chapter a speaker."""
    rng = np.random.default_rng((RATE_HZ, seed))
    voices = draw_voices(Pool(pool.variants, ACCENTS, pool.rates_wpm), rng)
    total_s, speaker = 0.0, 100 * (seed + 1)
    with Espeak(seed, RATE_HZ) as espeak:
        while total_s < speech_s:
            voice, speaker = next(voices), speaker + 1
            chapter = folder / str(speaker) / "1"
            chapter.mkdir(parents=True)
            lines = []
            for number in range(UTTERANCES):
                words = read_aloud(rng)
                samples, _ = espeak.speak(words, voice)
                samples *= 0.08 / np.sqrt((samples**2).mean())
                samples += 0.0005 * rng.standard_normal(len(samples)).astype(np.float32)
                name = f"{speaker}-1-{number:04d}"
                soundfile.write(chapter / f"{name}.flac", np.clip(samples, -1, 1), RATE_HZ, subtype="PCM_16")
                lines.append(f"{name} {' '.join(words).upper()}\n")
                total_s += len(samples) / RATE_HZ
            (chapter / f"{speaker}-1.trans.txt").write_text("".join(lines), encoding="utf-8")


def read_aloud(rng: np.random.Generator) -> list[str]:
    """Draw the words of a few sentences, without words spelled with points."""
    words: list[str] = []
    for _ in range(rng.integers(*SENTENCES)):
        words += [word for word in draw_sentence("turn", rng) if "." not in word]
    return words


def settings(work: Path, *texts: str) -> list[object]:
    """Return the options of a command."""
    names = ("LDC97S62", "swb_ms98_transcriptions", "LDC2002S09", "LDC2002T43")
    paths = [f"paths.{name.lower()}={work / 'mini' / name}" for name in names]
    paths.append(f"paths.librispeech={work / 'LibriSpeech'}")
    return ["--config", CONFIG, *options_of([*paths, *SETTINGS, *texts])]


if __name__ == "__main__":
    main()
