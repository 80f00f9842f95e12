"""The columns of a large set: bytes an utterance, seconds to build, to open and to plan an epoch, memory of learners.

Utterances are invented, with lengths, words and copies at three speeds as Fisher has them; nothing else is read.

    python benchmarks/index.py                      # 7 million utterances, 8 learners
    python benchmarks/index.py --num 200000 --learners 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from asrtool.corpus.cmvn import Moments, write_cmvn
from asrtool.corpus.index import Utterance, write_index
from asrtool.corpus.settings import Features
from asrtool.corpus.transcripts import TRANSCRIPTS
from asrtool.lang.tokenizer import Tokenizer, train_tokenizer
from asrtool.models.acoustic import build_model
from asrtool.models.settings import Model
from asrtool.settings import Choice
from asrtool.train.inputs import ColumnsFolder
from asrtool.train.plan import FAR
from asrtool.train.settings import Shards as ShardsSettings
from asrtool.train.shards import Shards
from asrtool.train.source import Epoch, SourceContext

FEATURES = Features()
SPEEDS = (1.0, 0.9, 1.1)
NUM_WORDS = 20_000  # of the language, by Zipf's law
WORDS_A_SECOND = 3.3  # of speech
SYLLABLES = tuple(consonant + vowel for consonant in "bdfghklmnprstvwz" for vowel in "aeiou")
VOCAB_SIZE = 1000
BATCH_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=7_000_000, help="utterances, all speeds together")
    parser.add_argument("--learners", type=int, default=8)
    parser.add_argument("--learner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.learner:
        be_learner(options.learner)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_set(work, options.num)
        first = run_learner(work)
        print(f"{options.num} utterances, {first['tokens']:.1f} tokens in a text, a batch of {BATCH_S} s")
        print(f"{bytes_of(work / 'train' / 'index' / 'train') / options.num:.1f} bytes an utterance in files")
        print(f"the learner that builds them: {first['open_s']:.0f} s, then {first['own_mib']:.0f} MiB of its own")
        measure(work, options.learners)


def write_set(work: Path, num: int) -> None:
    """An index of `num` utterances and a tokenizer."""
    texts = Texts()
    directory = work / "features" / "train"
    directory.mkdir(parents=True)
    sentences = work / "sentences.txt"
    sentences.write_text("\n".join(text for _, text in texts.draw(20_000)) + "\n", encoding="utf-8")
    train_tokenizer(sentences, work / "tokenizer", VOCAB_SIZE)
    write_index(directory, utterances(texts, num))
    write_transcripts(directory, num // len(SPEEDS))
    write_cmvn(directory, {}, Moments.of(np.ones((1, FEATURES.num_features), dtype=np.float32)))


def write_transcripts(directory: Path, said: int) -> None:
    """Those of the utterances at one speed, which the others share."""
    with open(directory / TRANSCRIPTS, "w", encoding="utf-8") as file:
        for i, (_, text) in enumerate(Texts().draw(said)):
            file.write(f"fe_03_{i // 200:05d}-{i % 200:03d}\t{text}\n")


def utterances(texts: Texts, num: int) -> Iterator[Utterance]:
    """All at one speed, then all at the next."""
    said = num // len(SPEEDS)
    for copy, speed in enumerate(SPEEDS):
        drawn = Texts().draw(said)
        first = copy * -(-said // FEATURES.shard_cuts)
        prefix = "" if speed == 1 else f"sp{speed}-"
        for i, (duration_s, _) in enumerate(drawn):
            call, side = f"fe_03_{i // 200:05d}", "AB"[i % 2]
            yield Utterance(
                f"{prefix}{call}-{i % 200:03d}", call, side, float(i % 200), round(duration_s / speed, 3),
                f"{prefix}fisher-{i // 200}{side}", None, first + i // FEATURES.shard_cuts,
                int(100 * duration_s / speed), "fisher",
            )  # fmt: skip


class Texts:
    """Durations and texts, always the same."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        words = ["".join(self._random.choice(SYLLABLES, size)) for size in self._random.integers(1, 4, NUM_WORDS)]
        self._words = np.array(words, dtype=object)
        self._ranks = np.log(NUM_WORDS)

    def draw(self, num: int) -> Iterator[tuple[float, str]]:
        """3 s in the mean and 20 s at most, lognormal as tests/unit/distributed/test_decodes.py has them."""
        for _ in range(0, num, 10_000):
            durations_s = self._random.lognormal(0.65, 0.95, 10_000).clip(0.3, 20)
            for duration_s in durations_s[: min(num, 10_000)].tolist():
                size = max(1, int(WORDS_A_SECOND * duration_s))
                numbers = np.exp(self._random.random(size) * self._ranks).astype(int) - 1
                yield duration_s, " ".join(self._words[numbers])
            num -= 10_000


def open_set(work: Path) -> Shards:
    """As each learner does."""
    tokenizer = Tokenizer.load(work / "tokenizer")
    model = build_model(
        Model(encoder=Choice.of("encoder", "lstm", num_layers=1, hidden_size=2)),
        FEATURES.num_features,
        tokenizer.num_tokens,
    )
    folder = ColumnsFolder(work / "train" / "index", {"features/train/index.jsonl": "benchmark"}, {})
    directory = work / "features" / "train"
    max_frames = int(BATCH_S * 1000 / FEATURES.frame_shift_ms)
    return Shards(SourceContext(ShardsSettings(), directory, FEATURES, tokenizer.encode, model, max_frames, 1, folder))


def run_learner(work: Path) -> dict[str, float]:
    """A learner by itself; what it reports."""
    process = start_learner(work)
    line, _ = process.communicate("\n")
    assert process.returncode == 0
    return dict(json.loads(line))


def start_learner(work: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--learner", str(work)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def be_learner(work: Path) -> None:
    """Open the set and plan an epoch; print what that took, and end when asked to."""
    before, begin = memory(), time.monotonic()
    source = open_set(work)
    opened = time.monotonic()
    epoch = Epoch(source, 0)
    num_batches = epoch.extend(FAR)
    planned, after = time.monotonic(), memory()
    report = {
        "open_s": opened - begin,
        "plan_s": planned - opened,
        "batches": num_batches,
        "tokens": len(source.columns.tokens) / (len(source.columns.ends) - 1),
        "own_mib": after["own"] - before["own"],
        "shared_mib": after["mapped"] - before["mapped"],
    }
    print(json.dumps(report), flush=True)
    sys.stdin.readline()


def memory() -> dict[str, float]:
    """MiB that only this process has, and those of files that it maps, which the system has once."""
    rows = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kib = {name: int(value.split()[0]) for name, _, value in (row.partition(":") for row in rows)}
    return {"own": kib["Private_Dirty"] / 1024, "mapped": (kib["Rss"] - kib["Private_Dirty"]) / 1024}


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def measure(work: Path, num_learners: int) -> None:
    """Learners side by side, one after the other in computing, all with their plan in memory at the end."""
    print("\n| learner | s to open | s to plan | MiB of its own | MiB shared |")
    print("|---|---|---|---|---|")
    learners = []
    try:
        for number in range(num_learners):
            learners.append(start_learner(work))
            assert learners[-1].stdout
            report = json.loads(learners[-1].stdout.readline())
            print(
                f"| {number} | {report['open_s']:.2f} | {report['plan_s']:.2f} | {report['own_mib']:.0f}"
                f" | {report['shared_mib']:.0f} |",
                flush=True,
            )
    finally:
        for learner in learners:
            learner.communicate("\n")


if __name__ == "__main__":
    main()
