"""Seconds and peak memory of `asrtool lm` on a generated text as large as Fisher's, for several bounds of memory.

Example: .venv/bin/python benchmarks/lm.py --words 20000000 --folder /tmp/lm-bench
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

CODE = "from asrtool.cli.main import main; main()"
NUM_KINDS = 30_000  # words of the vocabulary
NUM_FOLLOWERS = 60  # words that a word likes to be followed by
SENTENCES = 20_000  # made at a time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=20_000_000, help="words of the text")
    parser.add_argument("--folder", type=Path, required=True, help="where the text and the models go")
    parser.add_argument("--gib", type=float, nargs="+", default=[0.25, 1.0, 4.0], help="bounds of memory")
    parser.add_argument("--set", dest="settings", nargs="*", default=["lm.order=4", "lm.min_counts=1,1,2,2"])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    text = arguments.folder / f"text.{arguments.words}"
    if not text.exists():
        # In a process of its own: what this one holds would count as memory of those it starts.
        maker = multiprocessing.Process(target=write_text, args=(text, arguments.words))
        maker.start()
        maker.join()
    print("| lm.memory_gib | s of CPU time | s | peak GiB | digest of the model |\n|---|---|---|---|---|")
    for gib in arguments.gib:
        arpa = arguments.folder / "G.arpa"
        line = ["-c", CODE, "lm", "--text", str(text), "--arpa", str(arpa)]
        for setting in [f"lm.memory_gib={gib}", *arguments.settings]:
            line += ["--set", setting]
        cpu_s, wall_s, peak_bytes = measure(line)
        print(f"| {gib:g} | {cpu_s:.0f} | {wall_s:.0f} | {peak_bytes / 2**30:.2f} | {digest(arpa)} |", flush=True)


class Language:
    """Words of Zipf's frequencies; three in four are such as the one before likes."""

    def __init__(self, random: np.random.Generator, num_kinds: int) -> None:
        self._random = random
        frequency = 1 / (np.arange(num_kinds) + 3.7)
        self._frequency = frequency / frequency.sum()
        self._followers = random.choice(num_kinds, (num_kinds, NUM_FOLLOWERS), p=self._frequency)

    def draw(self, num: int, size: int) -> np.ndarray:
        """`num` sentences of `size` words: their numbers, the most frequent 0, of shape (num, size)."""
        random = self._random
        words = random.choice(len(self._frequency), (num, size), p=self._frequency)
        for i in range(1, size):
            liked = self._followers[words[:, i - 1], (NUM_FOLLOWERS * random.random(num) ** 2.5).astype(int)]
            words[:, i] = np.where(random.random(num) < 0.75, liked, words[:, i])
        return words


def write_text(path: Path, num_words: int) -> None:
    """Sentences of 2 to 19 words with Zipf's frequencies; three words in four are such as the one before likes."""
    random = np.random.default_rng(5)
    language = Language(random, NUM_KINDS)
    names = np.array([f"w{i}" for i in range(NUM_KINDS)], dtype=object)
    written = 0
    with path.open("w") as out:
        while written < num_words:
            lengths = random.integers(2, 20, SENTENCES)
            words = language.draw(SENTENCES, 19)
            out.writelines(" ".join(row[:n]) + "\n" for row, n in zip(names[words].tolist(), lengths, strict=True))
            written += int(lengths.sum())


def measure(line: list[str]) -> tuple[float, float, int]:
    """Seconds of CPU time, seconds, and the most memory in bytes of a Python process."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, *line], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, line
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start, usage.ru_maxrss * 1024


def digest(path: Path) -> str:
    """The first digits of its SHA-256."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()[:8]


if __name__ == "__main__":
    main()
